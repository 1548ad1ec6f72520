"""Clients without tasks: the call waits a while, then says where the work can be found."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import anyio

from workflow_bridge.core.service import TaskService
from workflow_bridge.core.task import Dialect, OutcomeKind, Task
from workflow_bridge.protocol.dialects import TASK
from workflow_bridge.protocol.errors import no_such_method, without_result
from workflow_bridge.protocol.pages import in_pages
from workflow_bridge.protocol.progress import Progress, standing
from workflow_bridge.protocol.tool_call import ToolCall, answer, create, follow
from workflow_bridge.protocol.tools import ToolSpec


class HandOver:
    """Ends the waiting of plain calls before its time, for a server that is to end."""

    def __init__(self) -> None:
        self._waiting: set[anyio.CancelScope] = set()
        self._over = False

    @contextmanager
    def waiting(self, longest: timedelta) -> Iterator[None]:
        """Leave the block after the longest wait, or once the waiting is over."""
        with anyio.move_on_after(longest.total_seconds()) as scope:
            self._waiting.add(scope)
            if self._over:
                scope.cancel()
            try:
                yield
            finally:
                self._waiting.discard(scope)

    def begin(self) -> None:
        """End all waiting, from now on."""
        self._over = True
        for scope in self._waiting:
            scope.cancel()


class Plain:
    """`tools/call` for a client that knows no tasks (P-1, P-2, P-3)."""

    def __init__(
        self, service: TaskService, *, max_wait: timedelta, hand_over: HandOver, facade: bool
    ) -> None:
        self._service = service
        self._max_wait = max_wait
        self._hand_over = hand_over
        self._facade = facade

    def admit(self, tool: ToolSpec) -> None:
        """Raise `Refused` (-32601) for a tool that is called as a task or not at all (B-1)."""
        if tool.task == "required":
            raise no_such_method(
                f"Tool '{tool.name}' must be called as a task: "
                f"send _meta['{TASK}'] with a taskId of your own",
                reason="task_required",
            )

    async def call(self, asked: ToolCall) -> dict[str, Any]:
        """Answer with the result, or, after the longest wait, with where it will be.

        With the facade a long text is cut to its first page, which says how to get the next; and
        ``structuredContent``, the whole once more, is left out unless the tool promised it (R10).
        """
        task = await create(
            self._service,
            asked,
            task_id=secrets.token_urlsafe(16),
            dialect=Dialect.PLAIN,
            at_once=False,
        )
        with self._hand_over.waiting(self._max_wait):
            async for current in follow(self._service, task, Progress(asked.ctx)):
                task = current
        if not task.final:
            return self._handed_over(task, asked.tool)
        if task.outcome is OutcomeKind.REJECTED:
            raise without_result(f"The workflow was not started: {task.status_message}")
        result = await answer(self._service, task, asked.tool, whole=self._facade)
        if not self._facade:
            return result
        return in_pages(
            result,
            task.task_id,
            most_bytes=asked.tool.max_text,
            keep_structure=asked.tool.output_schema is not None,
        )

    def _handed_over(self, task: Task, tool: ToolSpec) -> dict[str, Any]:
        """Say that the work goes on, and how to get at it (P-2).

        Not an error, so that no model starts it again; except for a tool with an output schema: MCP
        clients throw away a result that is not as the schema says, unless it is one.
        """
        step = "" if task.step is None else f", in step {task.step}"
        text = (
            f"The work of '{task.tool}' goes on; do not call it again. Its task id is "
            f"{task.task_id} and it is {standing(task)}{step}. "
        )
        if self._facade:
            text += (
                "To wait for its end and get its result, call task_result with this task_id; to "
                "see how it stands, task_status; to stop it, task_cancel. task_list finds its id "
                "again."
            )
        else:
            text += (
                "To see how it stands, and its result once it has ended: "
                f"workflow-bridge tasks show {task.task_id}"
            )
        return {
            "content": [{"type": "text", "text": text}],
            "isError": tool.output_schema is not None,
        }
