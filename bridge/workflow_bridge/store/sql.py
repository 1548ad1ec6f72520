"""The task store in SQL: one code path for every database."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, BindParameter, Connection, literal, tuple_
from sqlalchemy.exc import IntegrityError

from workflow_bridge.core.store import (
    MAX_LEASE,
    ClientKeyTaken,
    NameTaken,
    Position,
    TooManyTasks,
)
from workflow_bridge.core.task import LEGAL_MOVES, Event, Payload, Task, events_between
from workflow_bridge.store.database import Database
from workflow_bridge.store.statements import PARTS, Statements
from workflow_bridge.store.tables import cut, milliseconds, moment, tasks

_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Task))
_IDENTITY: Final = ("row_id", "owner", "task_id", "key")
_CHUNK: Final = 500
"""Values in one IN list: old builds of SQLite take 999."""


class SqlTaskStore:
    """A `TaskStore` in SQL.

    A task cancelled while it awaits a write does not know whether it was committed; nothing is
    left half done, and the store goes on working.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = Statements(database.now)
        self._clock_is_a_parameter = isinstance(database.now, BindParameter)

    def now(self) -> datetime:
        return moment(self._db.milliseconds())

    async def insert(self, task: Task, arguments: bytes, *, cap: int | None = None) -> None:
        task = cut(task)
        events = events_between(None, task)

        def work(connection: Connection) -> None:
            if cap is not None:
                self._db.queue_up(connection, task.owner)
            try:
                connection.execute(
                    self._sql.insert, {name: getattr(task, name) for name in _FIELDS}
                )
            except IntegrityError as exc:
                # From None: PostgreSQL's own words repeat the values.
                raise _taken(exc) from None
            if cap is not None:
                others = {"at_owner": task.owner, "at_row_id": task.row_id, "at_most": cap}
                if connection.execute(self._sql.others_open, others).scalar_one() >= cap:
                    raise TooManyTasks(f"{cap} tasks of this owner are not settled yet")
            self._put(connection, task, Payload(arguments=arguments))
            self._record(connection, task, events)

        await self._db.write(work)

    async def get(self, owner: str, task_id: str) -> Task | None:
        values = {"at_owner": owner, "at_task_id": task_id}
        return await self._db.look(lambda c: _one(c.execute(self._sql.by_name, values).first()))

    async def row(self, row_id: str) -> Task | None:
        return await self._db.look(lambda c: self._row(c, row_id))

    async def page(
        self,
        owner: str | None,
        *,
        after: Position | None,
        limit: int,
        newest_first: bool = False,
    ) -> Sequence[Task]:
        statement = (self._sql.newest if newest_first else self._sql.visible).limit(limit)
        if owner is not None:
            statement = statement.where(tasks.c.owner == owner)
        if after is not None:
            created_at = literal(milliseconds(after.created_at), BigInteger)
            place = tuple_(tasks.c.created_at, tasks.c.row_id)
            known = tuple_(created_at, after.row_id)
            statement = statement.where(place < known if newest_first else place > known)
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
        see = self._sql.see_unseen if unseen else self._sql.see_free
        take = self._sql.take_unseen if unseen else self._sql.take_free
        values = {"at_row_id": row_id}

        # Most of those who ask are answered without a write transaction.
        def free(connection: Connection) -> bool:
            return connection.execute(see, values | self._now()).first() is not None

        if not await self._db.look(free):
            return None
        taken = await self._db.write(lambda c: self._take(c, take, values, lease))
        return taken[0] if taken else None

    async def next_due(self, backends: Collection[str]) -> datetime | None:
        def work(connection: Connection) -> datetime | None:
            if any(self._each(connection, backends, self._sql.jumped, at_most=1)):
                return self.now()
            found = self._each(connection, backends, self._sql.next_due, at_most=1)
            return min((due_at for due_at, _ in found), default=None)

        return await self._db.scan(work)

    async def versions(self, row_ids: Collection[str]) -> Mapping[str, int]:
        return await self._db.scan(
            lambda c: {row[0]: row[1] for row in _chunked(c, self._sql.versions, row_ids)}
        )

    async def census(self) -> Mapping[str, int]:
        rows = await self._db.scan(lambda c: c.execute(self._sql.census).all())
        counts = {status.value: count for status, count, _ in rows}
        return counts | {"unsettled": sum(unsettled for s, _, unsettled in rows if s.final)}

    async def unfinished(self) -> Mapping[str, int]:
        rows = await self._db.scan(lambda c: c.execute(self._sql.unfinished).all())
        return {backend: count for backend, count in rows}  # noqa: C416 - rows are no pairs to mypy

    async def ever_held(self, row_ids: Collection[str]) -> Collection[str]:
        statements = (self._sql.versions, self._sql.with_events)
        return await self._db.scan(
            lambda c: {
                row[0] for statement in statements for row in _chunked(c, statement, row_ids)
            }
        )

    async def events(self, row_id: str) -> Sequence[tuple[datetime, Event]]:
        values = {"at_row_id": row_id}
        return await self._db.scan(
            lambda c: [(at, Event(*rest)) for at, *rest in c.execute(self._sql.events, values)]
        )

    async def ready(self) -> None:
        """Raise what keeps the store from working; a schema that a newer build extended does not.

        For readiness probes: replicas of the version before go on serving during an upgrade.
        """
        await self._db.scan(lambda c: c.execute(self._sql.anything).first())

    async def aclose(self) -> None:
        await self._db.aclose()

    def _now(self) -> dict[str, Any]:
        return {"now": self._db.milliseconds()} if self._clock_is_a_parameter else {}

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
        connection.execute(self._sql.drop_payload, {"at_row_id": task.row_id})
        self._put(connection, task, payload)

    def _put(self, connection: Connection, task: Task, payload: Payload) -> None:
        """Insert the payload of a row that has none."""
        if task.start_settled_at is not None:
            payload = replace(payload, arguments=None)
        if payload != Payload():
            parts = {name: getattr(payload, name) for name in PARTS}
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
        # One by one: a batch costs a driver that talks over a network more round trips than one or
        # two statements, which is how many there are.
        for event in events:
            what = {"kind": event.kind, "status": event.status, "detail": event.detail}
            connection.execute(self._sql.insert_event, whose | what)


def _chunked(
    connection: Connection, statement: Any, row_ids: Collection[str]
) -> Iterator[Sequence[Any]]:
    """Run a statement for all these rows, as many at a time as there may be parameters."""
    wanted = list(row_ids)
    for start in range(0, len(wanted), _CHUNK):
        yield from connection.execute(statement, {"at_row_ids": wanted[start : start + _CHUNK]})


def _task(row: Sequence[Any]) -> Task:
    return Task(**dict(zip(_FIELDS, row, strict=True)))


def _one(row: Sequence[Any] | None) -> Task | None:
    return None if row is None else _task(row)


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
