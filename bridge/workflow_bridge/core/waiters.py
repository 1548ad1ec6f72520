"""Requests that wait for a task to change, at the cost of neither thread nor connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

import anyio

from workflow_bridge.core.task import Task


class Waiters:
    """Who waits for which row in this process.

    Changes made here are handed over by `publish`; those made by other replicas, and any wake-up
    that was lost, are noticed by the worker's one query a second over `rows`.
    """

    def __init__(self, read: Callable[[str], Awaitable[Task | None]]) -> None:
        self._read = read
        self._by_row: defaultdict[str, set[Watch]] = defaultdict(set)

    def watch(self, row_id: str, *, steps: bool = False) -> Watch:
        """Return a watch on a row; ``steps`` asks for the step it is in to be read too."""
        return Watch(self, row_id, steps=steps)

    def publish(self, task: Task) -> None:
        """Hand a row's new version to all who wait for it."""
        for watch in self._by_row.get(task.row_id, ()):
            watch.offer(task)

    def gone(self, row_id: str) -> None:
        """Tell all who wait for a row that it was removed."""
        for watch in self._by_row.get(row_id, ()):
            watch.end()

    def rows(self) -> Mapping[str, Task | None]:
        """Return the rows waited for, each with the latest version handed over."""
        return {
            row_id: max((w.latest for w in watches if w.latest), key=_version, default=None)
            for row_id, watches in self._by_row.items()
        }

    def want_steps(self, row_id: str) -> bool:
        """Whether anybody listens for the steps of a row."""
        return any(watch.steps for watch in self._by_row.get(row_id, ()))

    def _enter(self, watch: Watch) -> None:
        self._by_row[watch.row_id].add(watch)

    def _leave(self, watch: Watch) -> None:
        watches = self._by_row[watch.row_id]
        watches.discard(watch)
        if not watches:
            del self._by_row[watch.row_id]

    async def read(self, row_id: str) -> Task | None:
        """Read a row as committed."""
        return await self._read(row_id)


def _version(task: Task) -> int:
    return task.version


class Watch:
    """An asynchronous iterator over a row's versions, newest only, up to the final one.

    Registered before the first read, so that no change falls between. Versions that followed each
    other quickly may be skipped; none is older than one shown before.
    """

    def __init__(self, waiters: Waiters, row_id: str, *, steps: bool) -> None:
        self.row_id = row_id
        self.steps = steps
        self.latest: Task | None = None
        self._waiters = waiters
        self._shown = 0
        self._over = False
        self._changed = anyio.Event()

    async def __aenter__(self) -> Self:
        self._waiters._enter(self)
        try:
            task = await self._waiters.read(self.row_id)
        except BaseException:
            self._waiters._leave(self)
            raise
        if task is None:
            self.end()
        else:
            self.offer(task)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._waiters._leave(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Task:
        while True:
            if self.latest is not None and self.latest.version > self._shown:
                self._shown = self.latest.version
                self._over = self._over or self.latest.final
                return self.latest
            if self._over:
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()

    def offer(self, task: Task) -> None:
        """Take a version that was read or written."""
        if self.latest is None or task.version > self.latest.version:
            self.latest = task
            self._changed.set()

    def end(self) -> None:
        """Learn that the row is gone."""
        self._over = True
        self._changed.set()
