"""What can be done with tasks; every dialect and the command line say it through here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import anyio

from workflow_bridge.adapter import Adapter, Json, Rejected
from workflow_bridge.core import step as steps
from workflow_bridge.core.policy import KeepAlive, Tool
from workflow_bridge.core.store import Position, TaskStore
from workflow_bridge.core.task import (
    Dialect,
    Payload,
    Task,
    digest,
    execution_key,
    new_row_id,
)
from workflow_bridge.core.waiters import Waiters, Watch
from workflow_bridge.core.worker import Worker

PAGE: Final = 50
"""Tasks on a page of a list (A-35)."""
LEASE: Final = timedelta(seconds=5)
"""Held from the insertion to the start gate, which takes one of its own."""
PATIENCE: Final = 1.0
"""Seconds a read waits for the engine's answer before it answers the row as committed."""


class ServiceError(Exception):
    """Base of what the service refuses; nothing was started or written."""


class InvalidArguments(ServiceError):
    """The arguments cannot be sent to this workflow."""


class TaskNotFound(ServiceError):
    """The owner has no such task."""


class TaskExpired(ServiceError):
    """The owner had such a task; it has expired."""


class AlreadyFinal(ServiceError):
    """The task has ended; ``task`` is how."""

    def __init__(self, task: Task) -> None:
        super().__init__(f"the task is already {task.status}")
        self.task = task


class StillRunning(ServiceError):
    """The task has not ended; ``task`` is how it stands."""

    def __init__(self, task: Task) -> None:
        super().__init__(f"the task is still {task.status}")
        self.task = task


class CannotStop(ServiceError):
    """An inline run cannot be stopped: the engine offers no way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """What a request asks for."""

    owner: str
    task_id: str
    dialect: Dialect
    tool: str
    arguments: Json
    keep_alive: timedelta | None = None
    """As asked for; None is the default, and the bounds apply."""


class TaskService:
    """Create, read, list, cancel and delete tasks, for one owner at a time."""

    def __init__(
        self,
        store: TaskStore,
        worker: Worker,
        waiters: Waiters,
        adapters: Mapping[str, Adapter],
        tools: Mapping[str, Tool],
        *,
        keep_alive: KeepAlive,
        concurrent_tasks: int | None = None,
    ) -> None:
        self._store = store
        self._worker = worker
        self._waiters = waiters
        self._adapters = adapters
        self._tools = tools
        self._keep_alive = keep_alive
        self._cap = concurrent_tasks

    async def create(
        self, new: NewTask, announce: Callable[[Task], Awaitable[None]] | None = None
    ) -> Task:
        """Commit a task, then announce it, then have its execution started.

        A client that does not take the announcement within a second holds the start up no longer.
        Raises `InvalidArguments`, `NameTaken` or `TooManyTasks` before anything is written.
        """
        tool = self._tools[new.tool]
        adapter = self._adapters[tool.backend]
        try:
            payload = adapter.prepare(tool.workflow, new.arguments)
        except Rejected as exc:
            raise InvalidArguments(str(exc)) from exc
        row_id, now = new_row_id(), self._store.now()
        task = Task(
            row_id=row_id,
            owner=new.owner,
            task_id=new.task_id,
            dialect=new.dialect,
            tool=tool.name,
            backend=tool.backend,
            fingerprint=adapter.fingerprint,
            workflow=tool.workflow,
            key=execution_key(row_id),
            arguments_digest=digest(payload),
            inline=tool.inline,
            keep_alive=self._keep_alive.grant(new.keep_alive, tool.keep_alive),
            poll_interval=tool.poll,
            created_at=now,
            updated_at=now,
            due_at=now,
            # Inserted with the lease taken: no claim is needed before the start.
            lease_until=now + LEASE,
        )
        await self._store.insert(task, payload, cap=self._cap)
        try:
            if announce is not None:
                with anyio.move_on_after(PATIENCE):
                    await announce(task)
        finally:
            self._worker.adopt(task, payload)
        return task

    async def get(self, owner: str, task_id: str) -> Task:
        """Return a task, after a look at the engine if the last is older than the poll interval.

        Raises `TaskNotFound` or `TaskExpired`.
        """
        task = await self.peek(owner, task_id)
        if not self._worker.may_look(task):
            return task
        await self._worker.look(task, PATIENCE)
        return await self.peek(owner, task_id)

    async def peek(self, owner: str, task_id: str) -> Task:
        """Return a task as committed. Raises `TaskNotFound` or `TaskExpired`."""
        task = await self._store.get(owner, task_id)
        if task is None:
            raise TaskNotFound(task_id)
        if task.expired(self._store.now()):
            raise TaskExpired(task_id)
        if task.hidden_at is not None:
            raise TaskNotFound(task_id)
        return task

    async def payload(self, task: Task) -> Payload:
        """Return the output, error and cause of a task; reading changes nothing."""
        return await self._store.payload(task.row_id)

    async def page(
        self,
        owner: str,
        after: Position | None,
        limit: int = PAGE,
        *,
        newest_first: bool = False,
    ) -> tuple[Sequence[Task], Position | None]:
        """Return a page of the owner's tasks and, exactly when there are more, where they go on.

        Oldest first, unless said otherwise.
        """
        tasks = await self._store.page(
            owner, after=after, limit=limit + 1, newest_first=newest_first
        )
        if len(tasks) <= limit:
            return tasks, None
        last = tasks[limit - 1]
        return tasks[:limit], Position(last.created_at, last.row_id)

    async def cancel(self, owner: str, task_id: str, *, at_once: bool) -> Task:
        """Have a task's execution stopped.

        ``at_once`` (A, B): after one look at the engine the task is cancelled, and stays so.
        Otherwise (C, plain, command line) the wish is recorded and the status follows the engine.
        Raises `AlreadyFinal` if it has ended, `CannotStop` for an inline run, and as `peek`.
        """
        task = await self.peek(owner, task_id)
        if at_once and not task.final and task.ref is not None and task.stop_requested_at is None:
            await self._worker.look(task, PATIENCE, anyway=True)
            task = await self.peek(owner, task_id)
        while True:
            if task.final:
                raise AlreadyFinal(task)
            if task.inline and task.start_called_at is not None:
                raise CannotStop(task_id)
            change = steps.cancelled if at_once else steps.stop_wanted
            after = change(task, self._store.now())
            written = task if after == task else await self._store.apply(task, after)
            if written is not None:
                self._waiters.publish(written)
                self._worker.kick()
                return written
            task = await self.peek(owner, task_id)

    async def delete(self, owner: str, task_id: str, *, cancel_running: bool = False) -> None:
        """Delete a final task: its arguments and results are gone at once, its name stays taken.

        Raises `StillRunning` unless ``cancel_running``, which cancels it first; and as `peek`.
        """
        while True:
            task = await self.peek(owner, task_id)
            if not task.final:
                if not cancel_running:
                    raise StillRunning(task)
                task = await self._cancelled(owner, task)
            after = steps.deleted(task, self._store.now())
            if await self._store.apply(task, after, payload=Payload()) is not None:
                self._worker.kick()
                return

    async def _cancelled(self, owner: str, task: Task) -> Task:
        try:
            return await self.cancel(owner, task.task_id, at_once=True)
        except AlreadyFinal as exc:
            return exc.task

    def watch(self, task: Task, *, steps: bool = False) -> Watch:
        """Watch a task until it ends; ``steps`` asks for the step it is in."""
        return self._waiters.watch(task.row_id, steps=steps)

    def poll_interval(self, task: Task) -> timedelta:
        """How often the task is worth asking for."""
        return self._worker.poll_interval(task)
