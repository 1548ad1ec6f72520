"""One call, from connecting to printing."""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import click

from workflow_bridge.cli import options
from workflow_bridge.cli.exits import INTERRUPTED, OK, PROBLEM, Stop
from workflow_bridge.cli.live import Reporter, age_exactly
from workflow_bridge.cli.outages import Outage, is_outage, session_is_over
from workflow_bridge.cli.output import emit, note

if TYPE_CHECKING:
    from workflow_bridge.client import Call, Finished, HttpConnection, TaskClient

CANCEL_PATIENCE: Final = 30.0
"""Seconds that we wait for a cancelled task to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverHttp:
    """A bridge that listens; the headers may be secret."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the command line asks for."""

    config: Path
    over_http: OverHttp | None
    """None: of a bridge that we start."""
    tool: str
    arguments: dict[str, Any]
    task_id: str | None
    keep_alive: timedelta | None
    detach: bool
    as_json: bool
    quiet: bool


class Caller:
    """Carries one order out."""

    def __init__(self, order: Order, log: IO[str]) -> None:
        self._order = order
        self._log = log
        self._task_id = order.task_id or str(uuid.uuid4())
        self._reporter = Reporter(
            order.tool,
            quiet=order.quiet,
            status="connecting" if order.over_http else "starting the bridge",
        )
        self._call: Call | None = None
        self._resumed: TaskClient | None = None
        self._connection: HttpConnection | None = None
        self._owner: str | None = None
        """Of the session that the call was made in."""
        self._interrupted = False
        self._cancel_sent = False

    async def run(self) -> int:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            with self._reporter:
                if self._order.over_http is None:
                    return await self._over_stdio()
                return await self._over_http(self._order.over_http)
        except (MCPError, ExceptionGroup) as exc:
            error = _innermost(exc)
            if not isinstance(error, MCPError):
                raise
            if error.code == CONNECTION_CLOSED:
                raise self._lost(error.message) from None
            raise Stop(error.message, PROBLEM) from None

    async def _over_stdio(self) -> int:
        from mcp.client.stdio import StdioServerParameters

        from workflow_bridge.client import connect_stdio

        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "workflow_bridge", "serve", "-c", str(self._order.config)],
            env=dict(os.environ),
        )
        errlog = sys.stderr if "--debug" in sys.argv else self._log
        async with connect_stdio(server, errlog=errlog) as client:  # type: ignore[arg-type]
            return await self._follow(client)

    async def _over_http(self, server: OverHttp) -> int:
        from workflow_bridge.client import HttpConnection, connect_http

        if "--debug" not in sys.argv:
            # It tells of every failed request; so do we, once.
            logging.getLogger("mcp").setLevel(logging.CRITICAL)
        async with (
            HttpConnection(server.url, server.headers) as self._connection,
            connect_http(self._connection) as client,
        ):
            return await self._follow(client)

    async def _follow(self, client: TaskClient) -> int:
        finished: Finished | None = None
        async with anyio.create_task_group() as group:
            await group.start(self._watch_for_interrupt, group.cancel_scope)
            self._reporter.called()
            self._call = await client.start(
                self._order.tool,
                self._order.arguments,
                task_id=self._task_id,
                keep_alive=self._order.keep_alive,
                on_progress=self._reporter.progress,
            )
            self._reporter.created(self._call.task_id)
            self._owner = self._connection.session_owner if self._connection else None
            if not self._order.detach:
                finished = await self._end_of(self._call)
            group.cancel_scope.cancel()
        self._reporter.close()
        if self._call is None:
            note("interrupted before the task was created")
            return INTERRUPTED
        if finished is not None:
            return self._print(finished)
        return self._print_left(self._call.task_id)

    async def _end_of(self, call: Call) -> Finished:
        """Wait for the end; over HTTP through outages, and on a new session if need be."""
        from mcp.shared.exceptions import MCPError

        from workflow_bridge.client import connect_http

        try:
            return await call.wait(on_state=self._reporter.state)
        except MCPError as exc:
            if self._connection is None or not is_outage(exc) or not call.created.is_set():
                raise
        self._reporter.say(f"connection lost; task {call.task_id} goes on, trying to come back")
        outage = Outage()
        client: TaskClient | None = call.client
        while True:
            try:
                if client is not None:
                    return await self._polled(client, outage)
                async with connect_http(self._connection) as self._resumed:
                    return await self._polled(self._resumed, outage)
            except (MCPError, ExceptionGroup) as exc:
                error = _innermost(exc)
                if not isinstance(error, MCPError) or not is_outage(error):
                    raise
                if session_is_over(error):
                    client = None
                await outage.pause(error)

    async def _polled(self, client: TaskClient, outage: Outage) -> Finished:
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS

        from workflow_bridge.client import Finished

        try:
            await client.get(self._task_id)
        except MCPError as exc:
            if client is self._resumed and exc.code == INVALID_PARAMS:
                raise self._out_of_sight() from None
            raise
        outage.is_over()
        state = await client.wait(self._task_id, on_state=self._reporter.state)
        done = state.status == "completed"
        result = await client.result(self._task_id) if done else None
        return Finished(self._task_id, state, result)

    async def _watch_for_interrupt(
        self,
        following: anyio.CancelScope,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._call is None or self._interrupted:
                    self._interrupted = True
                    following.cancel()
                    return
                self._interrupted = True
                self._reporter.say("cancelling; press Ctrl-C again to leave at once")
                following.deadline = anyio.current_time() + CANCEL_PATIENCE
                await self._cancel(self._call)

    async def _cancel(self, call: Call) -> None:
        from mcp.shared.exceptions import MCPError

        if self._resumed is None:
            await call.cancel()
            self._cancel_sent = True
            return
        try:
            await self._resumed.cancel(call.task_id)
            self._cancel_sent = True
        except MCPError as exc:
            self._reporter.say(f"it cannot be cancelled: {exc.message}")

    def _print(self, finished: Finished) -> int:
        if self._order.as_json and finished.result is not None:
            emit(finished.result.model_dump(by_alias=True, mode="json", exclude_none=True))
        elif finished.succeeded and finished.result is not None:
            for block in finished.result.content:
                text = getattr(block, "text", None)
                click.echo(text if text is not None else block.model_dump_json(by_alias=True))
        took = age_exactly(self._reporter.elapsed)
        if finished.succeeded:
            self._reporter.say(f"completed in {took}")
        else:
            note(f"{finished.status}{_because(finished)} (after {took})")
        if self._interrupted:
            return INTERRUPTED
        return OK if finished.succeeded else PROBLEM

    def _print_left(self, task_id: str) -> int:
        if self._order.as_json:
            emit({"taskId": task_id})
        elif self._order.detach:
            click.echo(task_id)
        if not self._order.quiet:
            if self._cancel_sent:
                note(f"the cancel of task {task_id} was sent, and its end not waited for")
            elif not self._order.detach:
                note(f"task {task_id} lives on")
            note(f"see it with: workflow-bridge tasks {self._where(task_id)}")
        return INTERRUPTED if self._interrupted else OK

    def _where(self, task_id: str) -> str:
        """Return the subcommand that shows the task, and on which machine."""
        if self._connection is None:
            return f"show {task_id}{options.config_argument(self._order.config)}"
        # Whose it is, the server has decided: this session's, or everybody's.
        return "list, on the bridge's machine"

    def _lost(self, why: str) -> Stop:
        if self._order.over_http is None:
            return self._bridge_ended()
        if self._call is None:
            return Stop(why, PROBLEM)
        return Stop(
            f"{why}; task {self._task_id} lives on, see it with: workflow-bridge tasks"
            f" {self._where(self._task_id)}",
            PROBLEM,
        )

    def _out_of_sight(self) -> Stop:
        """Say that a task belongs to the session that it was lost with."""
        return Stop(
            f"the session has ended, and task {self._task_id} belongs to it: the task goes on, and"
            " over HTTP nobody can ask for it any more; on the bridge's machine:"
            f" workflow-bridge tasks show {self._task_id} --owner {self._owner}",
            PROBLEM,
        )

    def _bridge_ended(self) -> Stop:
        """Say why the bridge went away, in its own last words."""
        self._log.seek(0)
        said = [line for line in self._log.read().splitlines() if not line.startswith("{")]
        if said:
            words = "\n".join(said[-5:]).removeprefix("workflow-bridge: ")
            return Stop(f"the bridge ended: {words}")
        task = f"; task {self._call.task_id} lives on" if self._call else ""
        return Stop(f"the bridge ended unexpectedly{task}; add --debug to see its log", PROBLEM)


def _because(finished: Finished) -> str:
    """Name the reason, in the words of whoever gave one."""
    if finished.state is not None and finished.state.error:
        return f": {finished.state.error}"
    if finished.error is not None:
        return f": {finished.error.message}"
    if finished.result is not None and finished.result.is_error:
        texts = [text for block in finished.result.content if (text := getattr(block, "text", ""))]
        return f": {texts[0]}" if texts else ""
    if finished.state is not None and finished.state.remark not in (None, finished.status):
        return f": {finished.state.remark}"
    return ""


def _innermost(exc: Exception) -> Exception:
    """Return the first of what went wrong at once."""
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return exc
