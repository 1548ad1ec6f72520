"""A task store in memory on a clock that tests move, for tests of what stands above a store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from workflow_bridge.core.store import (
    MAX_LEASE,
    MAX_SLEEP,
    ClientKeyTaken,
    NameTaken,
    Position,
    TooManyTasks,
)
from workflow_bridge.core.task import LEGAL_MOVES, Event, Payload, Task, events_between

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ManualClock:
    """A clock that stands still until it is moved; ``seconds`` since 1970, as `time.time`."""

    seconds: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.seconds

    def advance(self, by: timedelta) -> None:
        """Move it, backwards too."""
        self.seconds += by.total_seconds()


class MemoryTaskStore:
    """A `TaskStore` of one process that forgets all when it ends."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._rows: dict[str, Task] = {}
        self._payloads: dict[str, Payload] = {}
        self._events: dict[str, list[tuple[datetime, Event]]] = {}

    def now(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=round(self._clock() * 1_000_000) // 1000)

    async def insert(self, task: Task, arguments: bytes, *, cap: int | None = None) -> None:
        task = _cut(task)
        own = [row for row in self._rows.values() if row.owner == task.owner]
        if any(row.task_id == task.task_id for row in own):
            raise NameTaken
        if task.client_key is not None and any(
            (row.tool, row.client_key) == (task.tool, task.client_key) for row in own
        ):
            raise ClientKeyTaken
        if cap is not None and sum(not (row.final and row.settled) for row in own) >= cap:
            raise TooManyTasks
        self._rows[task.row_id] = task
        self._keep(task, Payload(arguments=arguments))
        self._record(task, events_between(None, task))

    async def get(self, owner: str, task_id: str) -> Task | None:
        name = (owner, task_id)
        return next((row for row in self._rows.values() if (row.owner, row.task_id) == name), None)

    async def row(self, row_id: str) -> Task | None:
        return self._rows.get(row_id)

    async def page(
        self,
        owner: str | None,
        *,
        after: Position | None,
        limit: int,
        newest_first: bool = False,
    ) -> Sequence[Task]:
        now = self.now()

        def follows(place: tuple[datetime, str]) -> bool:
            if after is None:
                return True
            known = (after.created_at, after.row_id)
            return place < known if newest_first else place > known

        found = (
            row
            for row in self._rows.values()
            if row.visible(now) and owner in (None, row.owner) and follows(_place(row))
        )
        return sorted(found, key=_place, reverse=newest_first)[:limit]

    async def payload(self, row_id: str) -> Payload:
        return self._payloads.get(row_id, Payload())

    async def apply(
        self,
        before: Task,
        after: Task,
        *,
        payload: Payload | None = None,
        events: Sequence[Event] = (),
    ) -> Task | None:
        if (before.row_id, before.owner, before.task_id, before.key) != (
            after.row_id,
            after.owner,
            after.task_id,
            after.key,
        ):
            raise ValueError("not the same task")
        moved = after.status is not before.status
        if moved and after.status not in LEGAL_MOVES[before.status]:
            raise ValueError(f"a task does not move from {before.status} to {after.status}")
        stored = self._rows.get(before.row_id)
        if stored is None or stored.version != before.version or (moved and stored.final):
            return None
        after = self._rows[after.row_id] = replace(_cut(after), version=before.version + 1)
        self._keep(after, await self.payload(after.row_id) if payload is None else payload)
        self._record(after, [*events_between(before, after), *events])
        return after

    async def remove(self, task: Task) -> bool:
        stored = self._rows.get(task.row_id)
        if stored is None or stored.version != task.version:
            return False
        del self._rows[task.row_id]
        self._payloads.pop(task.row_id, None)
        return True

    async def claim(
        self, backends: Collection[str], *, limit: int, lease: timedelta
    ) -> Sequence[Task]:
        _check(lease)
        now = self.now()
        due = [
            row
            for row in self._rows.values()
            if row.backend in backends and _free(row, now) and _due(row, now)
        ]
        due.sort(key=lambda row: row.due_at or now)
        return [self._lease(row, lease) for row in due[:limit]]

    async def claim_row(self, row_id: str, *, unseen: bool, lease: timedelta) -> Task | None:
        _check(lease)
        now = self.now()
        row = self._rows.get(row_id)
        if row is None or not _free(row, now):
            return None
        if unseen and (_seen(row, now) or (row.attempts and not _due(row, now))):
            return None
        return self._lease(row, lease)

    async def next_due(self, backends: Collection[str]) -> datetime | None:
        now = self.now()
        mine = [r for r in self._rows.values() if r.backend in backends and _free(r, now)]
        if any(_jumped(row, now) for row in mine):
            return now
        return min((row.due_at for row in mine if row.due_at is not None), default=None)

    async def versions(self, row_ids: Collection[str]) -> Mapping[str, int]:
        return {i: self._rows[i].version for i in row_ids if i in self._rows}

    async def census(self) -> Mapping[str, int]:
        rows = self._rows.values()
        counts = Counter(row.status.value for row in rows)
        return {**counts, "unsettled": sum(row.final and not row.settled for row in rows)}

    async def unfinished(self) -> Mapping[str, int]:
        rows = self._rows.values()
        return Counter(row.backend for row in rows if not (row.final and row.settled))

    async def ever_held(self, row_ids: Collection[str]) -> Collection[str]:
        return {row_id for row_id in row_ids if row_id in self._rows or row_id in self._events}

    async def events(self, row_id: str) -> Sequence[tuple[datetime, Event]]:
        return tuple(self._events.get(row_id, ()))

    async def aclose(self) -> None:
        pass

    def _lease(self, row: Task, lease: timedelta) -> Task:
        leased = replace(row, lease_until=self.now() + lease, version=row.version + 1)
        self._rows[row.row_id] = leased
        return leased

    def _keep(self, task: Task, payload: Payload) -> None:
        if task.start_settled_at is not None:
            payload = replace(payload, arguments=None)
        self._payloads[task.row_id] = payload

    def _record(self, task: Task, events: Sequence[Event]) -> None:
        now = self.now()
        self._events.setdefault(task.row_id, []).extend((now, event) for event in events)


def _place(row: Task) -> tuple[datetime, str]:
    return row.created_at, row.row_id


def _free(row: Task, now: datetime) -> bool:
    return row.lease_until is None or row.lease_until <= now or row.lease_until > now + MAX_LEASE


def _jumped(row: Task, now: datetime) -> bool:
    open_ = not (row.final and row.settled)
    return open_ and row.due_at is not None and row.due_at > now + MAX_SLEEP


def _due(row: Task, now: datetime) -> bool:
    return row.due_at is not None and (row.due_at <= now or _jumped(row, now))


def _seen(row: Task, now: datetime) -> bool:
    seen = row.last_observed_at
    return seen is not None and abs(now - seen) < row.poll_interval


def _check(lease: timedelta) -> None:
    if lease > MAX_LEASE:
        raise ValueError(f"a lease is no longer than {MAX_LEASE}")


def _cut(task: Task) -> Task:
    """Cut the task's times to the millisecond, as databases hold them."""
    finer: dict[str, Any] = {}
    for name in (f.name for f in fields(task)):
        value = getattr(task, name)
        if isinstance(value, datetime) and value.microsecond % 1000:
            finer[name] = value.replace(microsecond=value.microsecond // 1000 * 1000)
    return replace(task, **finer) if finer else task
