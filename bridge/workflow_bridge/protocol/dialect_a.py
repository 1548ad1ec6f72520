"""Dialect A: SEP-1686 as first accepted. The client chooses the task id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final

import structlog

from workflow_bridge.core.service import (
    AlreadyFinal,
    CannotStop,
    StillRunning,
    TaskExpired,
    TaskNotFound,
    TaskService,
)
from workflow_bridge.core.task import Dialect, OutcomeKind, Payload, Status, Task
from workflow_bridge.protocol.cursors import cursor, position
from workflow_bridge.protocol.errors import expired, invalid, not_found
from workflow_bridge.protocol.limits import Limits
from workflow_bridge.protocol.metadata import TaskMetadata, id_fault
from workflow_bridge.protocol.progress import Progress, related, tell_created
from workflow_bridge.protocol.results import failure, may_tell
from workflow_bridge.protocol.tool_call import ToolCall, answer, create, follow
from workflow_bridge.protocol.tools import ToolSpec

log = structlog.get_logger(__name__)

OBSERVATION: Final = "workflow-bridge/observation"
"""In `_meta` while the engine cannot be asked: since when what is shown is as it is, and why."""
STEP: Final = "workflow-bridge/step"
STATUS_MESSAGE: Final = "workflow-bridge/statusMessage"


class DialectA:
    """Each method of the dialect, given the request's owner and raw params."""

    def __init__(
        self,
        service: TaskService,
        tools: Mapping[str, ToolSpec],
        limits: Limits,
        *,
        delete_running: bool,
    ) -> None:
        self._service = service
        self._tools = tools
        self._limits = limits
        self._delete_running = delete_running

    async def call(self, asked: ToolCall, wanted: TaskMetadata) -> dict[str, Any]:
        """Make the task, say so, and answer when the work has ended (A-4, A-5)."""
        task = await create(
            self._service,
            asked,
            task_id=wanted.task_id,
            dialect=Dialect.A,
            keep_alive=wanted.keep_alive,
            at_once=True,
            announce=partial(tell_created, asked.ctx),
        )
        progress = Progress(asked.ctx, related_task=task.task_id)
        async for current in follow(self._service, task, progress):
            task = current
        if not task.final:
            raise not_found()
        return _tied(await answer(self._service, task, asked.tool), task.task_id)

    async def get(self, owner: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer how a task stands (A-13)."""
        task_id = _task_id(params)
        fresh = self._limits.poll(owner)
        with _reading():
            read = self._service.get if fresh else self._service.peek
            task = await read(owner, task_id)
        return await self._shown_alone(task)

    async def result(self, owner: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer what the original request was or would have been answered (A-14)."""
        task_id = _task_id(params)
        self._limits.result(owner)
        with _reading():
            task = await self._service.get(owner, task_id)
        if task.status is not Status.COMPLETED:
            raise invalid(
                "not_completed",
                f"Cannot retrieve result: Task status is '{task.status}', not 'completed'",
            )
        result = await answer(self._service, task, self._tools.get(task.tool))
        log.info("result_read", row_id=task.row_id, owner=owner, tool=task.tool, dialect="a")
        return _tied(result, task_id)

    async def list(self, owner: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a page of the owner's tasks, oldest first (A-15)."""
        self._limits.list(owner)
        tasks, more = await self._service.page(owner, position(owner, params.get("cursor")))
        page: dict[str, Any] = {"tasks": [self._listed(task) for task in tasks]}
        if more is not None:
            page["nextCursor"] = cursor(owner, more)
        return page

    async def cancel(self, owner: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Cancel a task and answer it as it is then; a final one is refused."""
        task_id = _task_id(params)
        with _reading():
            try:
                task = await self._service.cancel(owner, task_id, at_once=True)
            except AlreadyFinal as exc:
                message = f"Cannot cancel task: Task status is '{exc.task.status}'"
                raise invalid("already_final", message) from None
            except CannotStop:
                message = "Cannot cancel task: its workflow runs inline and cannot be stopped"
                raise invalid("cannot_stop", message) from None
        log.info("cancel_requested", row_id=task.row_id, owner=owner, tool=task.tool, dialect="a")
        return await self._shown_alone(task)

    async def delete(self, owner: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Delete a task with its arguments and results (A-16, A-34)."""
        task_id = _task_id(params)
        with _reading():
            task = await self._service.peek(owner, task_id)
            try:
                await self._service.delete(owner, task_id, cancel_running=self._delete_running)
            except StillRunning as exc:
                raise invalid(
                    "still_running",
                    f"Cannot delete task: Task status is '{exc.task.status}'; cancel it first",
                ) from None
            except CannotStop:
                message = "Cannot delete task: its workflow runs inline and cannot be stopped"
                raise invalid("cannot_stop", message) from None
        log.info("task_deleted", row_id=task.row_id, owner=owner, tool=task.tool, dialect="a")
        return {"_meta": related(task_id)}

    # --- how a task is shown ---------------------------------------------------------------------

    async def _shown_alone(self, task: Task) -> dict[str, Any]:
        shown = _shown(task, self._service.poll_interval(task))
        if task.status is Status.FAILED:
            payload = Payload()
            if task.outcome is not OutcomeKind.REJECTED:
                payload = await self._service.payload(task)
            shown["error"] = failure(task, payload, self._tools.get(task.tool)).text
        shown["_meta"] = related(task.task_id) | self._beside(task)
        return shown

    def _listed(self, task: Task) -> dict[str, Any]:
        """Show a task on a page: without its payload, so with no more than the row has."""
        shown = _shown(task, self._service.poll_interval(task))
        if task.status is Status.FAILED and task.status_message and self._may_tell(task):
            shown["error"] = task.status_message
        return shown

    def _may_tell(self, task: Task) -> bool:
        return may_tell(task, self._tools.get(task.tool))

    def _beside(self, task: Task) -> dict[str, Any]:
        """Return what the dialect has no member for."""
        beside: dict[str, Any] = {}
        if not task.final and task.last_error is not None:
            since = task.last_observed_at or task.created_at
            beside[OBSERVATION] = {"since": since.isoformat(), "error": task.last_error}
        if not task.final and task.step is not None:
            beside[STEP] = task.step
        succeeded = task.outcome is OutcomeKind.SUCCEEDED
        told = task.status_message is not None and task.status is not Status.FAILED
        if told and (succeeded or self._may_tell(task)):
            beside[STATUS_MESSAGE] = task.status_message
        return beside


def _shown(task: Task, poll_interval: timedelta) -> dict[str, Any]:
    kept = task.keep_alive
    return {
        "taskId": task.task_id,
        "status": task.status.value,
        "keepAlive": None if kept is None else _milliseconds(kept),
        "pollFrequency": _milliseconds(poll_interval),
    }


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _tied(result: dict[str, Any], task_id: str) -> dict[str, Any]:
    # First, as the SDK writes it, so that both ways to a result give the same bytes.
    return {"_meta": {**result.get("_meta", {}), **related(task_id)}} | {
        name: value for name, value in result.items() if name != "_meta"
    }


def _task_id(params: Mapping[str, Any]) -> str:
    """Return ``params.taskId``, which wins over a differing or missing `_meta` (A-17)."""
    if "taskId" not in params:
        raise invalid("task_id", "params.taskId is missing")
    task_id = params["taskId"]
    if not isinstance(task_id, str):
        raise invalid("task_id", "params.taskId must be a string")
    if id_fault(task_id) is not None:
        raise not_found()
    return task_id


@contextmanager
def _reading() -> Iterator[None]:
    """Say in the dialect's words that there is no such task (A-18)."""
    try:
        yield
    except TaskNotFound:
        raise not_found() from None
    except TaskExpired:
        raise expired() from None
