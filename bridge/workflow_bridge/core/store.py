"""The TaskStore port: where rows, payloads and events live.

All comparisons of time are made by the store, with the database's clock. Every write is by row id
with compare-and-set on the version, and writes its events in the same transaction. No method holds
a connection after it returned.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from workflow_bridge.core.task import Event, Payload, Task

MAX_LEASE: Final = timedelta(minutes=10)
"""No lease is longer; one that ends further ahead is the work of a clock that jumped."""
MAX_SLEEP: Final = timedelta(hours=1)
"""No task that is not both final and settled sleeps longer; likewise."""


class StoreError(Exception):
    """Base of what a store refuses."""


class StoreUnavailable(StoreError):
    """The database does not answer now. Its text names hosts, and is for operators alone."""


class NameTaken(StoreError):
    """The owner has already used this task id."""


class ClientKeyTaken(StoreError):
    """The owner has already used this client key with this tool."""


class TooManyTasks(StoreError):
    """The owner has as many tasks running as allowed."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in an owner's list, which is ordered by creation."""

    created_at: datetime
    row_id: str


class TaskStore(Protocol):
    """A store of tasks, shared by any number of processes."""

    def now(self) -> datetime:
        """The database's clock; no I/O."""
        ...

    async def insert(self, task: Task, arguments: bytes, *, cap: int | None = None) -> None:
        """Commit a new row, its arguments and its ``created`` event.

        Raises `NameTaken` if the owner's row of that task id is still there in any form,
        `ClientKeyTaken` likewise, and `TooManyTasks` if the owner already has ``cap`` rows that
        are not both final and settled.
        """
        ...

    async def get(self, owner: str, task_id: str) -> Task | None:
        """Return the owner's row, hidden or expired ones included; foreign is absent."""
        ...

    async def row(self, row_id: str) -> Task | None:
        """Return a row by its primary key."""
        ...

    async def page(
        self,
        owner: str | None,
        *,
        after: Position | None,
        limit: int,
        newest_first: bool = False,
    ) -> Sequence[Task]:
        """Return the visible tasks of an owner (None: of all) that come after a position.

        Oldest first; with ``newest_first`` the other way round, and ``after`` is what is older.
        """
        ...

    async def payload(self, row_id: str) -> Payload:
        """Return the payload; an empty one where there is none."""
        ...

    async def apply(
        self,
        before: Task,
        after: Task,
        *,
        payload: Payload | None = None,
        events: Sequence[Event] = (),
    ) -> Task | None:
        """Replace ``before`` by ``after`` if the row's version is still that of ``before``.

        Writes the events of `events_between`, then ``events``. ``payload`` replaces the stored one
        (`Payload()` drops it); None leaves it. A settled start drops the stored arguments by
        itself. Returns the row with its new version, or None if it had changed meanwhile.
        Refuses, with `ValueError`, a move that `LEGAL_MOVES` does not allow.
        """
        ...

    async def remove(self, task: Task) -> bool:
        """Remove the row and payload for good, by compare-and-set; events stay."""
        ...

    async def claim(
        self, backends: Collection[str], *, limit: int, lease: timedelta
    ) -> Sequence[Task]:
        """Lease up to ``limit`` due rows of these backends, longest due first.

        Due: ``due_at`` has come and no lease runs. A lease further ahead than `MAX_LEASE`, or the
        due time further ahead than `MAX_SLEEP` of a task not both final and settled, counts as
        come.
        """
        ...

    async def claim_row(self, row_id: str, *, unseen: bool, lease: timedelta) -> Task | None:
        """Lease one row early, if no lease runs on it.

        ``unseen``: only if the engine last answered longer ago than the row's poll interval, and
        no failed call is being backed off from (``attempts`` is 0, or ``due_at`` has come).
        """
        ...

    async def next_due(self, backends: Collection[str]) -> datetime | None:
        """Return when the next row of these backends without a running lease is due."""
        ...

    async def versions(self, row_ids: Collection[str]) -> Mapping[str, int]:
        """Return the versions of those rows that exist, in one query."""
        ...

    async def census(self) -> Mapping[str, int]:
        """Count rows by status, and under ``unsettled`` those final but not settled."""
        ...

    async def unfinished(self) -> Mapping[str, int]:
        """Count the rows that are not both final and settled, by their backend's name."""
        ...

    async def ever_held(self, row_ids: Collection[str]) -> Collection[str]:
        """Return those of which there is a row, or there are the events of one that was removed."""
        ...

    async def events(self, row_id: str) -> Sequence[tuple[datetime, Event]]:
        """Return a row's events in order; they outlive the row."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
