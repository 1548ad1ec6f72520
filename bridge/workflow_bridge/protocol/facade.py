"""The tools with which clients that know no tasks look after theirs (P-2).

They say in plain words how a task stands, whichever dialect it was made in: never with a status of
a dialect that the client does not speak (X-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import structlog

from workflow_bridge.core.service import (
    AlreadyFinal,
    CannotStop,
    TaskExpired,
    TaskNotFound,
    TaskService,
)
from workflow_bridge.core.task import OutcomeKind, Payload, Task
from workflow_bridge.protocol.cursors import cursor, position
from workflow_bridge.protocol.errors import Refused
from workflow_bridge.protocol.facade_tools import LONGEST_PAGE
from workflow_bridge.protocol.inflight import Context
from workflow_bridge.protocol.limits import Limits
from workflow_bridge.protocol.metadata import id_fault
from workflow_bridge.protocol.pages import in_pages
from workflow_bridge.protocol.plain import HandOver
from workflow_bridge.protocol.progress import Progress, standing
from workflow_bridge.protocol.results import DEFAULT_MAX_TEXT, failure, may_tell
from workflow_bridge.protocol.tool_call import answer, follow
from workflow_bridge.protocol.tools import ToolSpec

log = structlog.get_logger(__name__)

Permitted: TypeAlias = Callable[[Context, str], bool]
"""Whether a request may have to do with tasks of the tool of this name."""

_MESSAGE: Final = 1000
"""Characters of a reason in a status; the result has all of it."""


class Facade:
    """Each of the tools, given a request's context, owner and checked arguments."""

    def __init__(
        self,
        service: TaskService,
        tools: Mapping[str, ToolSpec],
        limits: Limits,
        *,
        max_wait: timedelta,
        hand_over: HandOver,
        permitted: Permitted,
    ) -> None:
        self._service = service
        self._tools = tools
        self._limits = limits
        self._max_wait = max_wait
        self._hand_over = hand_over
        self._permitted = permitted
        self._answers = {
            "task_status": self._status,
            "task_result": self._result,
            "task_cancel": self._cancel,
            "task_list": self._list,
        }

    async def call(
        self, ctx: Context, owner: str, name: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Answer a call. What a model can put right is a tool error; raises `Refused` for rates."""
        task_id = arguments.get("task_id", "")
        try:
            return await self._answers[name](ctx, owner, arguments)
        except TaskNotFound:
            reason, text = "not_found", (
                f"You have no task {_quoted(task_id)}. Look for its id with task_list; it is"
                " case-sensitive, and a task that ended long ago is no longer kept."
            )  # fmt: skip
        except TaskExpired:
            reason, text = "expired", (
                f"Task {_quoted(task_id)} ended, and the time for which its result is kept is"
                " over: it can no longer be fetched."
            )  # fmt: skip
        log.info("task_lookup_failed", method=name, reason=reason, owner=owner, dialect="plain")
        return _says(text, is_error=True)

    # --- the tools -------------------------------------------------------------------------------

    async def _status(
        self, ctx: Context, owner: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        fresh = self._limits.poll(owner)
        task = await self._found(ctx, owner, arguments["task_id"], fresh=fresh)
        return await self._told(task)

    async def _result(
        self, ctx: Context, owner: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        self._limits.result(owner)
        task = await self._found(ctx, owner, arguments["task_id"])
        if not task.final:
            with self._hand_over.waiting(self._max_wait):
                async for current in follow(self._service, task, Progress(ctx)):
                    task = current
        if not task.final:
            # It may have been deleted meanwhile, which ends the waiting too.
            task = await self._service.peek(owner, task.task_id)
        if not task.final:
            return await self._told(task, "Its result is not there yet. ")
        tool = self._tools.get(task.tool)
        if task.outcome is OutcomeKind.REJECTED:
            return _says(f"The workflow was not started: {task.status_message}", is_error=True)
        try:
            result = await answer(self._service, task, tool, whole=True)
        except Refused as exc:
            if exc.reason == "not_found":
                raise TaskNotFound(task.task_id) from None
            return _says(exc.error.message, is_error=True)
        log.info("result_read", row_id=task.row_id, owner=owner, tool=task.tool, dialect="plain")
        limit = arguments.get("limit")
        return in_pages(
            result,
            task.task_id,
            most_bytes=tool.max_text if tool else DEFAULT_MAX_TEXT,
            offset=int(arguments.get("offset", 0)),
            most=None if limit is None else int(limit),
        )

    async def _cancel(
        self, ctx: Context, owner: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        task = await self._found(ctx, owner, arguments["task_id"])
        try:
            task = await self._service.cancel(owner, task.task_id, at_once=False)
        except AlreadyFinal as exc:
            return await self._told(exc.task, "There was nothing to cancel: it had ended. ")
        except CannotStop:
            text = (
                f"Task {task.task_id} cannot be stopped: its workflow runs to its end in one go."
                " task_result gives its result."
            )
            return _says(text, is_error=True)
        log.info(
            "cancel_requested", row_id=task.row_id, owner=owner, tool=task.tool, dialect="plain"
        )
        return await self._told(task)

    async def _list(self, ctx: Context, owner: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._limits.list(owner)
        try:
            after = position(owner, arguments.get("cursor"))
        except Refused:
            text = "That is no cursor; pass a next_cursor as it was given, or none to begin."
            return _says(text, is_error=True)
        limit = int(arguments.get("limit", LONGEST_PAGE))
        found, more = await self._service.page(owner, after, limit, newest_first=True)
        tasks = [task for task in found if self._permitted(ctx, task.tool)]
        structured: dict[str, Any] = {"tasks": [_described(task) for task in tasks]}
        lines = [
            f"{task.task_id}  {task.tool}  {standing(task)}  since {_time(_since(task))}"
            for task in tasks
        ]
        if more is not None:
            structured["next_cursor"] = cursor(owner, more)
            lines.append(f"There are more: task_list with cursor {structured['next_cursor']}")
        text = "\n".join(lines) or "There are no tasks."
        return _says(text, structured)

    # --- how a task is shown ---------------------------------------------------------------------

    async def _found(self, ctx: Context, owner: str, task_id: str, *, fresh: bool = True) -> Task:
        if id_fault(task_id) is not None:
            raise TaskNotFound(task_id)
        task = await self._service.peek(owner, task_id)
        if not self._permitted(ctx, task.tool):
            raise TaskNotFound(task_id)
        return await self._service.get(owner, task_id) if fresh else task

    async def _told(self, task: Task, before: str = "") -> dict[str, Any]:
        """Say how a task stands, and what can be done next."""
        structured = _described(task)
        reason = await self._reason(task)
        if reason:
            structured["message"] = reason
        text = f"{before}Task {task.task_id} of '{task.tool}' is {standing(task)}"
        if task.final:
            text += f" since {_time(_since(task))}"
            follows = "task_result gives its result."
        else:
            seconds = self._service.poll_interval(task).total_seconds()
            structured["ask_again_after_seconds"] = seconds
            if task.step is not None:
                text += f", in step {task.step}"
            follows = (
                "task_result waits for its end and gives its result;"
                f" ask task_status again after {seconds:g} s at the earliest."
            )
        text += f" ({reason}). " if reason else ". "
        return _says(text + follows, structured)

    async def _reason(self, task: Task) -> str | None:
        """Return what the engine, or the bridge, has to say of how a task stands."""
        if not task.final:
            if task.last_error is not None:
                seen = _time(task.last_observed_at or task.created_at)
                return f"as last seen at {seen}; the engine cannot be asked: {task.last_error}"
            return task.status_message
        tool = self._tools.get(task.tool)
        if standing(task) == "failed":
            payload = Payload()
            if task.outcome is not OutcomeKind.REJECTED:
                payload = await self._service.payload(task)
            return failure(task, payload, tool).text[:_MESSAGE]
        return task.status_message if may_tell(task, tool) else None


def _described(task: Task) -> dict[str, Any]:
    described: dict[str, Any] = {
        "task_id": task.task_id,
        "tool": task.tool,
        "status": standing(task),
        "ended": task.final,
        "created_at": _time(task.created_at),
    }
    if task.final_at is not None:
        described["ended_at"] = _time(_since(task))
    elif task.step is not None:
        described["step"] = task.step
    if task.expires_at is not None:
        described["kept_until"] = _time(task.expires_at)
    return described


def _since(task: Task) -> datetime:
    return task.ended_at or task.final_at or task.created_at


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _quoted(task_id: str) -> str:
    text = task_id if len(task_id) <= 100 else task_id[:99] + "…"
    return f"'{text.encode('utf-8', 'replace').decode()}'"


def _says(
    text: str, structured: Mapping[str, Any] | None = None, *, is_error: bool = False
) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return result if structured is None else result | {"structuredContent": structured}
