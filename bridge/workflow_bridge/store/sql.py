"""The task store in SQL: one code path for every database."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from workflow_bridge.core.store import (
    MAX_LEASE,
    MAX_SLEEP,
    ClientKeyTaken,
    NameTaken,
    Position,
    TooManyTasks,
)
from workflow_bridge.core.task import LEGAL_MOVES, Event, Payload, Task, events_between
from workflow_bridge.store.tables import (
    NOT_FINAL,
    OPEN,
    UNSETTLED,
    cut,
    milliseconds,
    moment,
    task_events,
    task_payloads,
    tasks,
)

T = TypeVar("T")

_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Task))
_IDENTITY: Final = ("row_id", "owner", "task_id", "key")
_PARTS: Final = ("arguments", "output", "error", "cause")
_CHUNK: Final = 500
"""Values in one IN list: old builds of SQLite take 999."""


class Database(Protocol):
    """What the store needs of a kind of database. Work may be run again after a conflict."""

    now: ColumnElement[int]
    """The clock in SQL, in milliseconds; may be the parameter ``now``, which always comes along."""

    def milliseconds(self) -> int:
        """Return the clock, without I/O."""
        ...

    async def look(self, work: Callable[[Connection], T]) -> T:
        """Run a read by primary key."""
        ...

    async def scan(self, work: Callable[[Connection], T]) -> T:
        """Run a read that may take long."""
        ...

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run a transaction; what ``work`` raises undoes all of it."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class SqlTaskStore:
    """A `TaskStore` in SQL.

    A task cancelled while it awaits a write does not know whether it was committed; nothing is
    left half done, and the store goes on working.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = _Statements(database.now)

    def now(self) -> datetime:
        return moment(self._db.milliseconds())

    async def insert(self, task: Task, arguments: bytes, *, cap: int | None = None) -> None:
        task = cut(task)
        events = events_between(None, task)

        def work(connection: Connection) -> None:
            try:
                connection.execute(
                    self._sql.insert, {name: getattr(task, name) for name in _FIELDS}
                )
            except IntegrityError as exc:
                raise _taken(exc) from exc
            if cap is not None:
                others = {"at_owner": task.owner, "at_row_id": task.row_id, "at_most": cap}
                if connection.execute(self._sql.others_open, others).scalar_one() >= cap:
                    raise TooManyTasks(f"{cap} tasks of this owner are not settled yet")
            self._keep(connection, task, Payload(arguments=arguments))
            self._record(connection, task, events)

        await self._db.write(work)

    async def get(self, owner: str, task_id: str) -> Task | None:
        values = {"at_owner": owner, "at_task_id": task_id}
        return await self._db.look(lambda c: _one(c.execute(self._sql.by_name, values).first()))

    async def row(self, row_id: str) -> Task | None:
        return await self._db.look(lambda c: self._row(c, row_id))

    async def page(
        self, owner: str | None, *, after: Position | None, limit: int
    ) -> Sequence[Task]:
        statement = self._sql.visible.limit(limit)
        if owner is not None:
            statement = statement.where(tasks.c.owner == owner)
        if after is not None:
            created_at = literal(milliseconds(after.created_at), BigInteger)
            place = tuple_(tasks.c.created_at, tasks.c.row_id)
            statement = statement.where(place > tuple_(created_at, after.row_id))
        return await self._db.scan(
            lambda c: [_task(row) for row in c.execute(statement, self._now())]
        )

    async def payload(self, row_id: str) -> Payload:
        row = await self._db.scan(
            lambda c: c.execute(self._sql.payload, {"at_row_id": row_id}).first()
        )
        return Payload() if row is None else Payload(*row)

    async def apply(
        self,
        before: Task,
        after: Task,
        *,
        payload: Payload | None = None,
        events: Sequence[Event] = (),
    ) -> Task | None:
        if any(getattr(before, name) != getattr(after, name) for name in _IDENTITY):
            raise ValueError("not the same task")
        moved = after.status is not before.status
        if moved and after.status not in LEGAL_MOVES[before.status]:
            raise ValueError(f"a task does not move from {before.status} to {after.status}")
        after = replace(cut(after), version=before.version + 1)
        changes: dict[str, Any] = {
            name: value
            for name in _FIELDS
            if (value := getattr(after, name)) != getattr(before, name)
        }
        changes |= {"at_row_id": before.row_id, "at_version": before.version}
        statement = self._sql.move if moved else self._sql.change
        changed = [*events_between(before, after), *events]

        def work(connection: Connection) -> Task | None:
            if connection.execute(statement, changes).rowcount != 1:
                return None
            if payload is not None:
                self._keep(connection, after, payload)
            elif after.start_settled_at is not None and before.start_settled_at is None:
                connection.execute(self._sql.drop_arguments, {"at_row_id": after.row_id})
            self._record(connection, after, changed)
            return after

        return await self._db.write(work)

    async def remove(self, task: Task) -> bool:
        values = {"at_row_id": task.row_id, "at_version": task.version}
        return await self._db.write(lambda c: c.execute(self._sql.remove, values).rowcount == 1)

    async def claim(
        self, backends: Collection[str], *, limit: int, lease: timedelta
    ) -> Sequence[Task]:
        _check(lease)

        # Twice as many, since another process may be taking the same ones.
        def find(connection: Connection) -> Sequence[str]:
            statements = (self._sql.due, self._sql.jumped)
            found = self._each(connection, backends, *statements, at_most=2 * limit)
            return [row_id for _, row_id in sorted(found)[: 2 * limit]]

        row_ids = await self._db.scan(find)
        if not row_ids:
            return ()
        values = {"at_row_ids": row_ids, "at_most": limit}
        return await self._db.write(lambda c: self._take(c, self._sql.take_due, values, lease))

    async def claim_row(self, row_id: str, *, unseen: bool, lease: timedelta) -> Task | None:
        _check(lease)
        statement = self._sql.take_unseen if unseen else self._sql.take_free
        values = {"at_row_id": row_id}

        # Most of those who ask are answered without a write transaction.
        def free(connection: Connection) -> bool:
            return connection.execute(statement, values | self._now()).first() is not None

        if not await self._db.look(free):
            return None
        taken = await self._db.write(lambda c: self._take(c, statement, values, lease))
        return taken[0] if taken else None

    async def next_due(self, backends: Collection[str]) -> datetime | None:
        def work(connection: Connection) -> datetime | None:
            if any(self._each(connection, backends, self._sql.jumped, at_most=1)):
                return self.now()
            found = self._each(connection, backends, self._sql.next_due, at_most=1)
            return min((due_at for due_at, _ in found), default=None)

        return await self._db.scan(work)

    async def versions(self, row_ids: Collection[str]) -> Mapping[str, int]:
        wanted = list(row_ids)

        def work(connection: Connection) -> dict[str, int]:
            found: dict[str, int] = {}
            for start in range(0, len(wanted), _CHUNK):
                chunk = {"at_row_ids": wanted[start : start + _CHUNK]}
                found.update(
                    (row_id, version)
                    for row_id, version in connection.execute(self._sql.versions, chunk)
                )
            return found

        return await self._db.scan(work)

    async def census(self) -> Mapping[str, int]:
        rows = await self._db.scan(lambda c: c.execute(self._sql.census).all())
        counts = {status.value: count for status, count, _ in rows}
        return counts | {"unsettled": sum(unsettled for s, _, unsettled in rows if s.final)}

    async def events(self, row_id: str) -> Sequence[tuple[datetime, Event]]:
        values = {"at_row_id": row_id}
        return await self._db.scan(
            lambda c: [(at, Event(*rest)) for at, *rest in c.execute(self._sql.events, values)]
        )

    async def aclose(self) -> None:
        await self._db.aclose()

    def _now(self) -> dict[str, Any]:
        return {"now": self._db.milliseconds()}

    def _row(self, connection: Connection, row_id: str) -> Task | None:
        return _one(connection.execute(self._sql.by_row_id, {"at_row_id": row_id}).first())

    def _each(
        self, connection: Connection, backends: Collection[str], *statements: Any, at_most: int
    ) -> Iterator[tuple[datetime, str]]:
        """Ask backend by backend: that is a walk along an index, whatever is due elsewhere."""
        for backend in backends:
            values = {"at_backend": backend, "at_most": at_most} | self._now()
            for statement in statements:
                yield from (tuple(row) for row in connection.execute(statement, values))

    def _take(
        self, connection: Connection, statement: Any, values: Mapping[str, Any], lease: timedelta
    ) -> Sequence[Task]:
        """Lease the rows that ``statement`` selects and locks; each has the time at its end."""
        taken = []
        for *row, now in connection.execute(statement, {**values, **self._now()}):
            task = _task(row)
            taken.append(replace(task, lease_until=moment(now) + lease, version=task.version + 1))
        if taken:
            connection.execute(
                self._sql.change,
                [
                    {
                        "at_row_id": task.row_id,
                        "at_version": task.version - 1,
                        "version": task.version,
                        "lease_until": task.lease_until,
                    }
                    for task in taken
                ],
            )
        return taken

    def _keep(self, connection: Connection, task: Task, payload: Payload) -> None:
        """Replace the payload of a row."""
        if task.start_settled_at is not None:
            payload = replace(payload, arguments=None)
        connection.execute(self._sql.drop_payload, {"at_row_id": task.row_id})
        if payload != Payload():
            parts = {name: getattr(payload, name) for name in _PARTS}
            connection.execute(self._sql.insert_payload, {"row_id": task.row_id, **parts})

    def _record(self, connection: Connection, task: Task, events: Sequence[Event]) -> None:
        if not events:
            return
        whose = {
            "row_id": task.row_id,
            "owner": task.owner,
            "task_id": task.task_id,
            "tool": task.tool,
            "dialect": task.dialect,
        } | self._now()
        connection.execute(
            self._sql.insert_event,
            [
                whose | {"kind": event.kind, "status": event.status, "detail": event.detail}
                for event in events
            ],
        )


class _Statements:
    """Every statement, built once; its parameters are called ``at_…`` where they select rows."""

    def __init__(self, now: ColumnElement[int]) -> None:
        row = tasks.c
        at_row_id = row.row_id == bindparam("at_row_id")
        at_row_ids = row.row_id.in_(bindparam("at_row_ids", expanding=True))
        at_version = row.version == bindparam("at_version")
        at_backend = row.backend == bindparam("at_backend")
        at_most = bindparam("at_most", type_=BigInteger)
        far = now + _ms(MAX_SLEEP)
        free = or_(
            row.lease_until.is_(None),
            row.lease_until <= now,
            row.lease_until > now + _ms(MAX_LEASE),
        )
        jumped = and_(NOT_FINAL, row.due_at > far)
        # A last look that is ahead of the clock is no reason to wait for long either.
        unseen = and_(
            or_(
                row.last_observed_at.is_(None),
                row.last_observed_at <= now - row.poll_interval,
                row.last_observed_at >= now + row.poll_interval,
            ),
            or_(row.attempts == 0, row.due_at <= now, jumped),
        )

        self.by_name = select(tasks).where(
            row.owner == bindparam("at_owner"), row.task_id == bindparam("at_task_id")
        )
        self.by_row_id = select(tasks).where(at_row_id)
        self.versions = select(row.row_id, row.version).where(at_row_ids)
        self.visible = (
            select(tasks)
            .where(row.hidden_at.is_(None), or_(row.expires_at.is_(None), row.expires_at > now))
            .order_by(row.created_at, row.row_id)
        )
        self.others_open = select(func.count()).select_from(
            select(row.row_id)
            .where(row.owner == bindparam("at_owner"), OPEN, row.row_id != bindparam("at_row_id"))
            .limit(at_most)
            .subquery()
        )
        self.census = select(row.status, func.count(), func.count().filter(UNSETTLED)).group_by(
            row.status
        )

        # What is due is found without a lock, and judged again once it is locked.
        some = select(row.due_at, row.row_id).where(at_backend, free).limit(at_most)
        self.due = some.where(row.due_at <= now).order_by(row.due_at)
        self.next_due = some.where(row.due_at.is_not(None)).order_by(row.due_at)
        self.jumped = some.where(jumped)
        lock = select(tasks, now.label("now")).with_for_update(skip_locked=True)
        self.take_due = (
            lock.where(at_row_ids, free, or_(row.due_at <= now, jumped))
            .order_by(row.due_at)
            .limit(at_most)
        )
        self.take_free = lock.where(at_row_id, free)
        self.take_unseen = lock.where(at_row_id, free, unseen)

        self.insert = insert(tasks)
        self.change = update(tasks).where(at_row_id, at_version)
        # The last line of "final is final": it holds whatever the caller believes.
        self.move = self.change.where(NOT_FINAL)
        self.remove = delete(tasks).where(at_row_id, at_version)

        part = task_payloads.c
        of_row = part.row_id == bindparam("at_row_id")
        self.payload = select(*(part[name] for name in _PARTS)).where(of_row)
        self.insert_payload = insert(task_payloads)
        self.drop_payload = delete(task_payloads).where(of_row)
        self.drop_arguments = update(task_payloads).where(of_row).values(arguments=None)

        event = task_events.c
        self.insert_event = insert(task_events).values(at=now)
        self.events = (
            select(event.at, event.kind, event.status, event.detail)
            .where(event.row_id == bindparam("at_row_id"))
            .order_by(event.id)
        )


def _task(row: Sequence[Any]) -> Task:
    return Task(**dict(zip(_FIELDS, row, strict=True)))


def _one(row: Sequence[Any] | None) -> Task | None:
    return None if row is None else _task(row)


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _check(lease: timedelta) -> None:
    if lease > MAX_LEASE:
        raise ValueError(f"a lease is no longer than {MAX_LEASE}")


def _taken(exc: IntegrityError) -> Exception:
    """Say which name is taken; both databases name the columns or the index."""
    constraint = str(exc.orig).partition("\n")[0]
    if "client_key" in constraint:
        return ClientKeyTaken("the owner has already used this client key with this tool")
    if "task_id" in constraint:
        return NameTaken("the owner has already used this task id")
    return exc
