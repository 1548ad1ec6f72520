"""Notifications on a request's own stream: that its task was made, and how it gets on."""

from __future__ import annotations

from typing import Any, Literal, cast

from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import (
    Notification,
    NotificationParams,
    ProgressNotification,
    ProgressNotificationParams,
)

from workflow_bridge.core.task import OutcomeKind, Status, Task
from workflow_bridge.protocol.dialects import RELATED_TASK
from workflow_bridge.protocol.inflight import Context


class TaskCreated(Notification[NotificationParams, Literal["notifications/tasks/created"]]):
    """SEP-1686 §3.4: the task is there and can be asked for."""

    method: Literal["notifications/tasks/created"] = "notifications/tasks/created"


def related(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of what is tied to one task (SEP-1686 §4.7)."""
    return {RELATED_TASK: {"taskId": task_id}}


async def tell_created(ctx: Context, task: Task) -> None:
    """Send `notifications/tasks/created` (A-4); dropped where no stream can carry it (A-37)."""
    notification = TaskCreated(params=NotificationParams(_meta=related(task.task_id)))
    # The SDK types what a server may send as a closed union; its wire does not mind.
    await ctx.session.send_notification(cast("Any", notification), ctx.request_id)


class Progress:
    """Progress of one request, for a client that gave a token, and for no other (T11)."""

    def __init__(self, ctx: Context, *, related_task: str | None = None) -> None:
        self._ctx = ctx
        self._token = progress_token_from_params(ctx.params)
        self._meta = None if related_task is None else related(related_task)
        self._told: str | None = None
        self._count = 0

    @property
    def wanted(self) -> bool:
        """True if the request carries a progress token."""
        return self._token is not None

    async def tell(self, task: Task) -> None:
        """Send where the task is, if that is news: status, step, and what the engine says."""
        if self._token is None:
            return
        message = task_line(task)
        if message == self._told:
            return
        self._told = message
        self._count += 1
        params = ProgressNotificationParams(
            progress_token=self._token, progress=self._count, message=message, _meta=self._meta
        )
        await self._ctx.session.send_notification(
            ProgressNotification(params=params), self._ctx.request_id
        )


def task_line(task: Task) -> str:
    """Say in a line where a task is."""
    line: str = task.status.value
    if task.step is not None and not task.final:
        line += f": {task.step}"
    if task.status_message is not None and not task.final:
        line += f" ({task.status_message})"
    return line


def standing(task: Task) -> str:
    """Say in one plain word how a task stands, for those who know no statuses of tasks."""
    if not task.final and task.stop_requested_at is not None:
        return "stopping"
    match task.status:
        case Status.SUBMITTED:
            return "queued"
        case Status.WORKING:
            return "running"
        case Status.INPUT_REQUIRED:
            return "waiting"
        case Status.COMPLETED if task.outcome in (None, OutcomeKind.SUCCEEDED):
            return "done"
        # A tool whose failures complete its tasks has failed all the same.
        case Status.COMPLETED | Status.FAILED:
            return "failed"
        case Status.CANCELLED:
            return "cancelled"
        case Status.UNKNOWN:
            return "lost"
