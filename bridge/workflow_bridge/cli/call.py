"""``workflow-bridge call``: a real MCP client that starts a bridge of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import click

from workflow_bridge.cli import composing, options
from workflow_bridge.cli.exits import INTERRUPTED, OK, PROBLEM, Stop
from workflow_bridge.cli.live import Reporter, age_exactly
from workflow_bridge.cli.output import emit, note

if TYPE_CHECKING:
    from workflow_bridge.client import Call, Finished, TaskClient

CANCEL_PATIENCE: Final = 30.0
"""Seconds that we wait for a cancelled task to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What the command line asks for."""

    config: Path
    tool: str
    arguments: dict[str, Any]
    task_id: str | None
    keep_alive: timedelta | None
    detach: bool
    as_json: bool
    quiet: bool


@click.command("call")
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON|@FILE|-]")
@options.config_option
@click.option("--task-id", help="The id of the task; a random one if left out.")
@click.option(
    "--keep-alive", metavar="DURATION", help="How long to keep the result, as in 30m or 7d."
)
@click.option("--detach", is_flag=True, help="Leave as soon as the task is created.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing while it runs.")
@options.json_option
@options.debug_option
def command(
    tool: str,
    arguments: str,
    config: Path,
    task_id: str | None,
    keep_alive: str | None,
    detach: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Call TOOL with JSON arguments, as a task, and follow it to its end.

    Prints the result on stdout; --json prints the whole CallToolResult. Exit code 1 says that the
    task did not end well. Ctrl-C cancels the task and waits until it is; a second Ctrl-C leaves at
    once.
    """
    if composing.load_config(config).server.transport != "stdio":
        raise Stop(
            "`call` starts a bridge of its own over stdio, and this configuration is for HTTP: name"
            " one with `server: {transport: stdio}` and the same database"
        )
    order = _Order(
        config=config,
        tool=tool,
        arguments=_arguments(arguments),
        task_id=task_id,
        keep_alive=None if keep_alive is None else _duration(keep_alive),
        detach=detach,
        as_json=as_json,
        quiet=quiet,
    )
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        return anyio.run(_Caller(order, log).run)


class _Caller:
    """One call, from connecting to printing."""

    def __init__(self, order: _Order, log: IO[str]) -> None:
        self._order = order
        self._log = log
        self._reporter = Reporter(order.tool, quiet=order.quiet)
        self._call: Call | None = None
        self._interrupted = False

    async def run(self) -> int:
        from mcp.client.stdio import StdioServerParameters
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        from workflow_bridge.client import connect_stdio

        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "workflow_bridge", "serve", "-c", str(self._order.config)],
            env=dict(os.environ),
        )
        errlog = sys.stderr if "--debug" in sys.argv else self._log
        try:
            with self._reporter:
                async with connect_stdio(server, errlog=errlog) as client:  # type: ignore[arg-type]
                    return await self._follow(client)
        except (MCPError, ExceptionGroup) as exc:
            error = _innermost(exc)
            if not isinstance(error, MCPError):
                raise
            if error.code == CONNECTION_CLOSED:
                raise self._bridge_ended() from None
            raise Stop(error.message, PROBLEM) from None

    async def _follow(self, client: TaskClient) -> int:
        finished: Finished | None = None
        async with anyio.create_task_group() as group:
            await group.start(self._watch_for_interrupt, group.cancel_scope)
            self._reporter.called()
            self._call = await client.start(
                self._order.tool,
                self._order.arguments,
                task_id=self._order.task_id,
                keep_alive=self._order.keep_alive,
                on_progress=self._reporter.progress,
            )
            self._reporter.created(self._call.task_id)
            if not self._order.detach:
                finished = await self._call.wait(on_state=self._reporter.state)
            group.cancel_scope.cancel()
        self._reporter.close()
        if self._call is None:
            note("interrupted before the task was created")
            return INTERRUPTED
        if finished is not None:
            return self._print(finished)
        return self._print_left(self._call.task_id)

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
                await self._call.cancel()
                following.deadline = anyio.current_time() + CANCEL_PATIENCE

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
            known = (options.DEFAULT_CONFIG, os.environ.get(options.CONFIG_VARIABLE))
            config = "" if str(self._order.config) in known else f" -c {self._order.config}"
            if not self._order.detach:
                note(f"task {task_id} lives on")
            note(f"see it with: workflow-bridge tasks show {task_id}{config}")
        return INTERRUPTED if self._interrupted else OK

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
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _arguments(given: str) -> dict[str, Any]:
    """Read the arguments: JSON itself, ``@file`` or ``-`` for stdin."""
    if given == "-":
        given = sys.stdin.read()
    elif given.startswith("@"):
        try:
            given = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise Stop(f"the arguments cannot be read from {given[1:]}: {_reason(exc)}") from exc
    try:
        arguments = json.loads(given)
    except ValueError as exc:
        raise Stop(f"the arguments are not JSON: {exc}") from exc
    if not isinstance(arguments, dict):
        raise Stop("the arguments must be a JSON object, as in '{\"key\": 1}'")
    return arguments


def _duration(text: str) -> timedelta:
    from workflow_bridge.config import parse_duration

    try:
        return parse_duration(text)
    except ValueError as exc:
        raise Stop(f"--keep-alive: {exc}") from exc


def _reason(exc: Exception) -> str:
    return exc.strerror or str(exc) if isinstance(exc, OSError) else "it is not UTF-8"
