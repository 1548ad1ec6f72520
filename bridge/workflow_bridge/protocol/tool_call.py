"""What all dialects do with a `tools/call`: make the task, follow it, tell how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import anyio
import anyio.lowlevel
import structlog

from workflow_bridge.core.service import InvalidArguments, NewTask, TaskService
from workflow_bridge.core.store import NameTaken, TooManyTasks
from workflow_bridge.core.task import Dialect, OutcomeKind, Status, Task
from workflow_bridge.protocol.errors import invalid, not_found, too_fast, without_result
from workflow_bridge.protocol.inflight import Binding, Call, Context
from workflow_bridge.protocol.progress import Progress
from workflow_bridge.protocol.results import tool_result
from workflow_bridge.protocol.tools import ToolSpec

log = structlog.get_logger(__name__)

RETRY_WHEN_FULL: Final = 5.0
"""Seconds after which a client at its cap of concurrent tasks is asked to try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A `tools/call` whose tool, rate and arguments have been checked."""

    ctx: Context
    call: Call
    owner: str
    tool: ToolSpec
    arguments: dict[str, Any]


async def create(
    service: TaskService,
    asked: ToolCall,
    *,
    task_id: str,
    dialect: Dialect,
    keep_alive: timedelta | None = None,
    at_once: bool,
    announce: Callable[[Task], Awaitable[None]] | None = None,
) -> Task:
    """Make the task of a call; once begun, it is never left half done.

    ``announce`` tells the client of it, before the engine is called. ``at_once`` is how a
    cancellation of the call cancels the task; one that arrives meanwhile waits until it is made.
    Raises `Refused`, with nothing written.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    new = NewTask(
        owner=asked.owner,
        task_id=task_id,
        dialect=dialect,
        tool=asked.tool.name,
        arguments=asked.arguments,
        keep_alive=keep_alive,
    )
    with anyio.CancelScope(shield=True):
        try:
            task = await service.create(new, announce)
        except NameTaken:
            raise invalid("name_taken", f"Task ID already exists: {task_id}") from None
        except InvalidArguments as exc:
            message = f"Invalid arguments for tool '{asked.tool.name}': {exc}"
            raise invalid("arguments", message) from exc
        except TooManyTasks:
            raise too_fast(
                "too_many_tasks",
                "Too many tasks are running; wait for one to end, or cancel one",
                RETRY_WHEN_FULL,
            ) from None
        asked.call.bind(Binding(asked.owner, task, at_once))
    log.info(
        "task_created",
        row_id=task.row_id,
        owner=task.owner,
        tool=task.tool,
        dialect=task.dialect.value,
    )
    return task


async def follow(service: TaskService, task: Task, progress: Progress) -> AsyncIterator[Task]:
    """Yield a task's versions up to its final one, telling progress of each."""
    async with service.watch(task, steps=progress.wanted) as watch:
        async for current in watch:
            await progress.tell(current)
            yield current


async def answer(
    service: TaskService, task: Task, tool: ToolSpec | None, *, whole: bool = False
) -> dict[str, Any]:
    """Return the `CallToolResult` of a final task; ``whole``: however long its text is.

    Raises `Refused` where it has none.
    """
    if task.status is Status.UNKNOWN:
        reason = task.status_message or "no reason known"
        raise without_result(f"What became of it can no longer be learned: {reason}")
    payload = await service.payload(task)
    if task.outcome is OutcomeKind.SUCCEEDED and payload.output is None:
        # Deleted or expired between the last look at the row and this one.
        raise not_found()
    return tool_result(task, payload, tool, whole=whole)
