"""Every statement of the store, for every database."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from workflow_bridge.core.store import MAX_LEASE, MAX_SLEEP
from workflow_bridge.store.tables import (
    NOT_FINAL,
    OPEN,
    UNSETTLED,
    task_events,
    task_payloads,
    tasks,
)

PARTS: Final = ("arguments", "output", "error", "cause")
"""The parts of a payload, in its order."""


class Statements:
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
        jumped = and_(OPEN, row.due_at > far)
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
        self.anything = select(tasks).limit(1)
        self.versions = select(row.row_id, row.version).where(at_row_ids)
        self.visible = (
            select(tasks)
            .where(row.hidden_at.is_(None), or_(row.expires_at.is_(None), row.expires_at > now))
            .order_by(row.created_at, row.row_id)
        )
        self.newest = self.visible.order_by(None).order_by(row.created_at.desc(), row.row_id.desc())
        self.others_open = select(func.count()).select_from(
            select(row.row_id)
            .where(row.owner == bindparam("at_owner"), OPEN, row.row_id != bindparam("at_row_id"))
            .limit(at_most)
            .subquery()
        )
        self.census = select(row.status, func.count(), func.count().filter(UNSETTLED)).group_by(
            row.status
        )

        self.unfinished = select(row.backend, func.count()).where(OPEN).group_by(row.backend)

        # What is due is found without a lock, and judged again once it is locked.
        some = select(row.due_at, row.row_id).where(at_backend, free).limit(at_most)
        self.due = some.where(row.due_at <= now).order_by(row.due_at)
        self.next_due = some.where(row.due_at.is_not(None)).order_by(row.due_at)
        # Ordered so that PostgreSQL walks the index although it believes that there are many such
        # rows: it counts settled ones, which sleep for long.
        self.jumped = some.where(jumped).order_by(row.due_at)
        lock = select(tasks, now.label("now")).with_for_update(skip_locked=True)
        self.take_due = (
            lock.where(at_row_ids, free, or_(row.due_at <= now, jumped))
            .order_by(row.due_at)
            .limit(at_most)
        )
        # The same without a lock, which writes in PostgreSQL: most who ask for a row do not get it.
        self.see_free = select(row.row_id).where(at_row_id, free)
        self.see_unseen = self.see_free.where(unseen)
        self.take_free = lock.where(at_row_id, free)
        self.take_unseen = lock.where(at_row_id, free, unseen)

        self.insert = insert(tasks)
        self.change = update(tasks).where(at_row_id, at_version)
        # The last line of "final is final": it holds whatever the caller believes.
        self.move = self.change.where(NOT_FINAL)
        self.remove = delete(tasks).where(at_row_id, at_version)

        part = task_payloads.c
        of_row = part.row_id == bindparam("at_row_id")
        self.payload = select(*(part[name] for name in PARTS)).where(of_row)
        self.insert_payload = insert(task_payloads)
        self.drop_payload = delete(task_payloads).where(of_row)
        self.drop_arguments = update(task_payloads).where(of_row).values(arguments=None)

        event = task_events.c
        self.with_events = (
            select(event.row_id)
            .where(event.row_id.in_(bindparam("at_row_ids", expanding=True)))
            .distinct()
        )
        self.insert_event = insert(task_events).values(at=now)
        self.events = (
            select(event.at, event.kind, event.status, event.detail)
            .where(event.row_id == bindparam("at_row_id"))
            .order_by(event.id)
        )


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
