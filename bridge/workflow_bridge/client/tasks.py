"""Start tasks, and follow them by nothing but their ids."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias

import anyio
import anyio.abc
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, Dispatcher, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    Request,
)
from pydantic import BaseModel, ConfigDict, Field

from workflow_bridge.client import wire
from workflow_bridge.client.wire import TaskState

OnState: TypeAlias = Callable[[TaskState], object]
OnProgress: TypeAlias = Callable[["Progress"], object]

ANSWER_PATIENCE: Final = 1.0
"""Seconds given to the original answer once a poll says that the task has ended."""


_CANCELLED: Final = -32800
"""With this the SDK's server ends the stream of a request that was cancelled."""


class Announcement(BaseModel):
    """The parameters of `notifications/tasks/created`: nothing but their ``_meta``."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    meta: dict[str, Any] = Field(default_factory=dict, alias="_meta")


class _Answer(BaseModel):
    """A result taken as it comes."""

    model_config = ConfigDict(extra="allow")

    def raw(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress notification of a call."""

    done: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Finished:
    """How a task ended.

    ``result`` is what the tool answered: always there when ``state`` says completed, and where the
    server answered the original request. ``error`` is what it answered in its place.
    """

    task_id: str
    state: TaskState | None
    """The task as last polled; None if it was never made, or is gone already."""
    result: CallToolResult | None = None
    error: MCPError | None = None

    @property
    def status(self) -> str:
        """The task's last word; where it was never told, read off the answer."""
        if self.state is not None:
            return self.state.status
        return "failed" if self.result is None or self.result.is_error else "completed"

    @property
    def succeeded(self) -> bool:
        """True if the workflow ended well."""
        return self.result is not None and not self.result.is_error and self.status == "completed"


class TaskClient:
    """Tasks of dialect A on one session; made by `connect`.

    Errors of the server arrive as `mcp.shared.exceptions.MCPError`. Nothing that is lost with the
    connection matters: any task can be taken up again by its id, on any later connection.
    """

    def __init__(
        self,
        session: ClientSession,
        dispatcher: Dispatcher[Any],
        group: anyio.abc.TaskGroup,
        created: dict[str, anyio.Event],
        *,
        created_within: float,
    ) -> None:
        self.session = session
        self._dispatcher = dispatcher
        self._group = group
        self._created = created
        self._created_within = created_within
        self._calls = 0

    async def start(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        task_id: str | None = None,
        keep_alive: timedelta | None = None,
        on_progress: OnProgress | None = None,
    ) -> Call:
        """Call a tool as a task, and return once the server says that the task was created.

        A server that says nothing in time is not polled: `Call.wait` then waits for its answer.
        Raises `MCPError` if the request is refused.
        """
        task_id = str(uuid.uuid4()) if task_id is None else task_id
        self._calls += 1
        call = Call(task_id, f"task-call-{self._calls}", self)
        self._created[task_id] = call.created
        params = wire.call_params(tool, arguments or {}, task_id, keep_alive)
        self._group.start_soon(self._request, call, params, on_progress)
        with anyio.move_on_after(self._created_within):
            await call.created_or_answered()
        if call.error is not None and not call.created.is_set():
            raise call.error
        return call

    async def get(self, task_id: str) -> TaskState:
        """Return how a task stands."""
        return wire.state(await self._ask("tasks/get", task_id), task_id)

    async def wait(self, task_id: str, *, on_state: OnState | None = None) -> TaskState:
        """Poll until the task has ended, as often as the server asks to be polled.

        ``on_state`` is given the first state and every one that differs from that before it.
        """
        last: TaskState | None = None
        while True:
            try:
                state = await self.get(task_id)
            except MCPError as exc:
                await anyio.sleep(_retry_after(exc))
                continue
            if on_state is not None and (last is None or state.raw != last.raw):
                on_state(state)
            if state.final:
                return state
            last = state
            await anyio.sleep(state.poll.total_seconds())

    async def result(self, task_id: str) -> CallToolResult:
        """Return what the tool answered; only completed tasks have that."""
        raw = await self._ask("tasks/result", task_id)
        return CallToolResult.model_validate(raw, by_name=False)

    async def cancel(self, task_id: str) -> None:
        """Ask for a task to be cancelled by its id; `wait` says what came of it."""
        await self._ask("tasks/cancel", task_id)

    async def delete(self, task_id: str) -> None:
        """Delete a task that has ended, and its result with it."""
        await self._ask("tasks/delete", task_id)

    async def list(self) -> AsyncIterator[TaskState]:
        """Yield all tasks, page by page."""
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page = await self._send("tasks/list", params)
            for raw in page.get("tasks", ()):
                yield wire.state(raw, "")
            cursor = page.get("nextCursor")
            if cursor is None:
                return

    async def cancel_call(self, call: Call) -> None:
        """Cancel the original request, and with it the task (§4.8), to which it is tied (§4.7)."""
        related = wire.task_params(call.task_id)["_meta"]
        params = CancelledNotificationParams(request_id=call.request_id, _meta=related)
        await self.session.send_notification(CancelledNotification(params=params))

    async def _ask(self, method: str, task_id: str) -> dict[str, Any]:
        return await self._send(method, wire.task_params(task_id))

    async def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request = Request[dict[str, Any], str](method=method, params=params)
        answer = await self.session.send_request(request, _Answer)
        return answer.raw()

    async def _request(
        self, call: Call, params: dict[str, Any], on_progress: OnProgress | None
    ) -> None:
        # Abandoning the request must not cancel it: whoever leaves may come back for the task.
        options = CallOptions(request_id=call.request_id, cancel_on_abandon=False)
        if self.session.protocol_version is not None:
            options["headers"] = {MCP_PROTOCOL_VERSION_HEADER: self.session.protocol_version}
        if on_progress is not None:
            options["on_progress"] = _telling(on_progress)
        try:
            raw = await self._dispatcher.send_raw_request("tools/call", params, options)
            call.result = CallToolResult.model_validate(raw, by_name=False)
        except MCPError as exc:
            call.error = exc
        finally:
            self._created.pop(call.task_id, None)
            call.answered.set()


@dataclass(slots=True)
class Call:
    """One `tools/call` that became a task, on the connection that made it."""

    task_id: str
    request_id: str
    client: TaskClient
    created: anyio.Event = field(default_factory=anyio.Event)
    answered: anyio.Event = field(default_factory=anyio.Event)
    result: CallToolResult | None = None
    error: MCPError | None = None

    async def wait(self, *, on_state: OnState | None = None) -> Finished:
        """Wait for the end: the original answer or a final status, whichever is there first.

        Raises `MCPError` (`CONNECTION_CLOSED`) if the connection is lost: the task lives on.
        """
        seen: list[TaskState] = []

        def note(state: TaskState) -> None:
            seen[:] = [state]
            if on_state is not None:
                on_state(state)

        async def poll() -> None:
            await self.created.wait()
            await self.client.wait(self.task_id, on_state=note)
            with anyio.move_on_after(ANSWER_PATIENCE):
                await self.answered.wait()
            group.cancel_scope.cancel()

        async def listen() -> None:
            await self.answered.wait()
            if self._unanswered and self.created.is_set():
                # Over HTTP one stream may end and the rest go on. Where all is lost, this raises.
                try:
                    await self.client.get(self.task_id)
                except MCPError as exc:
                    _retry_after(exc)
                return
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(poll)
                group.start_soon(listen)
        except ExceptionGroup as errors:
            raise _innermost(errors) from None
        if self._unanswered and not (seen and seen[-1].final):
            assert self.error is not None
            raise self.error
        return await self._finished(seen[-1] if seen else None)

    @property
    def _unanswered(self) -> bool:
        """Whether the request ended without a word about its task."""
        return self.error is not None and self.error.code in (CONNECTION_CLOSED, _CANCELLED)

    async def cancel(self) -> None:
        """Cancel the original request; `wait` (or `TaskClient.wait`) says what came of it."""
        await self.client.cancel_call(self)

    async def created_or_answered(self) -> None:
        """Wait for the first word of the server."""

        async def either(event: anyio.Event) -> None:
            await event.wait()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(either, self.created)
            group.start_soon(either, self.answered)

    async def _finished(self, state: TaskState | None) -> Finished:
        """Fill in what has not been told yet."""
        if self.created.is_set() and (state is None or not state.final):
            with suppress(MCPError):
                state = await self.client.get(self.task_id)
        result = self.result
        if result is None and state is not None and state.status == "completed":
            result = await self.client.result(self.task_id)
        return Finished(self.task_id, state, result, None if self._unanswered else self.error)


def _telling(on_progress: OnProgress) -> ProgressFnT:
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        on_progress(Progress(progress, total, message))

    return tell


def _retry_after(error: MCPError) -> float:
    """How many seconds to wait after a refused poll; raises what waiting does not help with."""
    match error.error.data:
        case {"retryAfterMs": int(wait)} if error.code == wire.RATE_LIMITED:
            return wait / 1000
        case _:
            raise error


def _innermost(exc: Exception) -> Exception:
    """Return the first of what went wrong at once."""
    while isinstance(exc, ExceptionGroup):
        exc = exc.exceptions[0]
    return exc
