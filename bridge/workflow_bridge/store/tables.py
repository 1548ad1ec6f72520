"""The tables: tasks, their payloads, their events.

Times are integer milliseconds since 1970 in UTC, durations integer milliseconds, whatever the
database; a column's key is the name of the `Task` field it holds, and the columns stand in the
order of the fields.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.types import TypeDecorator

from workflow_bridge.core import task as core

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(moment: datetime) -> int:
    """Return an aware time as the database holds it, cut to the millisecond."""
    return (moment - _EPOCH) // _MILLISECOND


def moment(ms: int) -> datetime:
    """Return a time of the database as an aware one in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def cut(task: core.Task) -> core.Task:
    """Return the task as the database gives it back: its times cut to the millisecond."""
    finer: dict[str, Any] = {
        name: moment(milliseconds(value))
        for name in _INSTANTS
        if (value := getattr(task, name)) is not None and value.microsecond % 1000
    }
    return replace(task, **finer) if finer else task


class Instant(TypeDecorator[datetime]):
    """A time."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else milliseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else moment(value)


class Duration(TypeDecorator[timedelta]):
    """A length of time."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: timedelta | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else value // _MILLISECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> timedelta | None:  # noqa: ARG002
        return None if value is None else timedelta(milliseconds=value)


class Word(TypeDecorator[StrEnum]):
    """A word of a closed set."""

    impl = String(16)
    cache_ok = True

    def __init__(self, words: type[StrEnum]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.value

    def process_result_value(self, value: Any, dialect: Dialect) -> StrEnum | None:  # noqa: ARG002
        return None if value is None else self.words(value)


def _listed(words: type[StrEnum] | frozenset[core.Status]) -> str:
    return ", ".join(sorted(f"'{word.value}'" for word in words))


# The conditions of the partial indexes. A query uses such an index only if it repeats the
# condition word for word, hence literal texts that both share.
DUE_AT_ALL: Final = text("due_at IS NOT NULL")
NOT_FINAL: Final = text(f"status NOT IN ({_listed(frozenset(s for s in core.Status if s.final))})")
UNSETTLED: Final = text(
    "(start_settled_at IS NULL OR (stop_requested_at IS NOT NULL AND stop_confirmed_at IS NULL))"
)
OPEN: Final = text(f"({NOT_FINAL} OR {UNSETTLED})")
"""Counts against the cap: not both final and settled."""
_KEYED: Final = text("client_key IS NOT NULL")

metadata: Final = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

tasks: Final = Table(
    "tasks",
    metadata,
    Column("row_id", String(32), primary_key=True),
    Column("owner", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("dialect", Word(core.Dialect), nullable=False),
    Column("tool", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("workflow", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("arguments_digest", String(64), nullable=False),
    Column("inline", Boolean, nullable=False),
    Column("client_key", Text),
    Column("ref", Text),
    Column("status", Word(core.Status), nullable=False),
    Column("status_message", Text),
    Column("step", Text),
    Column("outcome", Word(core.OutcomeKind)),
    Column("keep_alive_ms", Duration, key="keep_alive"),
    Column("ttl_ms", Duration, key="ttl"),
    Column("poll_ms", Duration, key="poll_interval", nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("final_at", Instant),
    Column("ended_at", Instant),
    Column("expires_at", Instant),
    Column("start_called_at", Instant),
    Column("start_settled_at", Instant),
    Column("stop_requested_at", Instant),
    Column("stop_confirmed_at", Instant),
    Column("due_at", Instant),
    Column("lease_until", Instant),
    Column("attempts", Integer, nullable=False),
    Column("last_error", Text),
    Column("last_observed_at", Instant),
    Column("missing_since", Instant),
    Column("hidden_at", Instant),
    Column("version", BigInteger, nullable=False),
    # The name is held until the row is removed: a tombstone still answers "expired".
    UniqueConstraint("owner", "task_id"),
    # Only the words that the protocol closes. Outcomes may grow without rebuilding the table.
    CheckConstraint(f"status IN ({_listed(core.Status)})", name="status"),
    CheckConstraint(f"dialect IN ({_listed(core.Dialect)})", name="dialect"),
    CheckConstraint("attempts >= 0", name="attempts"),
    CheckConstraint("version >= 1", name="version"),
    Index("ix_tasks_list", "owner", "created_at", "row_id"),
    Index("ix_tasks_due", "backend", "due_at", sqlite_where=DUE_AT_ALL),
    # Few rows: finds those whose due time a clock that jumped has put out of reach.
    Index("ix_tasks_awake", "backend", "due_at", sqlite_where=OPEN),
    Index("ix_tasks_open", "owner", sqlite_where=OPEN),
    Index(
        "uq_tasks_client_key",
        "owner",
        "tool",
        "client_key",
        unique=True,
        sqlite_where=_KEYED,
    ),
)


@event.listens_for(metadata, "before_create")
def _same_conditions(_: MetaData, connection: Connection, **__: object) -> None:
    """Have PostgreSQL's partial indexes hold what SQLite's do.

    Not by `postgresql_where` above: that imports PostgreSQL's dialect, 25 ms that SQLite has no use
    for.
    """
    if connection.dialect.name == "postgresql":
        for index in tasks.indexes:
            where = index.dialect_options["sqlite"]["where"]
            index.dialect_options["postgresql"]["where"] = where


_INSTANTS: Final = tuple(column.key for column in tasks.columns if isinstance(column.type, Instant))

task_payloads: Final = Table(
    "task_payloads",
    metadata,
    Column("row_id", ForeignKey("tasks.row_id", ondelete="CASCADE"), primary_key=True),
    Column("arguments", LargeBinary),
    Column("output", Text),
    Column("error", Text),
    Column("cause", Text),
)

# No foreign key, and who it was beside each event: the audit outlives the row.
task_events: Final = Table(
    "task_events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("row_id", String(32), nullable=False),
    Column("at", Instant, nullable=False),
    Column("owner", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("dialect", Word(core.Dialect), nullable=False),
    Column("kind", String(64), nullable=False),
    Column("status", Word(core.Status), nullable=False),
    Column("detail", Text),
    Index("ix_task_events_row_id", "row_id", "id"),
)
