"""What the store needs of a kind of database: the seam between one code path and two databases."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine

T = TypeVar("T")
Work = Callable[[Connection], T]
"""What is run with a connection; may be run again, and so does nothing else."""


class Database(Protocol):
    """An open database. Every method raises `StoreError` where the database is at fault."""

    now: ColumnElement[int]
    """The clock in SQL, in milliseconds; may be the parameter ``now``, which then comes along."""

    def milliseconds(self) -> int:
        """Return the clock, without I/O."""
        ...

    def queue_up(self, connection: Connection, owner: str) -> None:
        """Have transactions that add to one owner's tasks run one after another.

        Called first thing in such a transaction, and holds until it ends.
        """
        ...

    async def look(self, work: Work[T]) -> T:
        """Run a read by primary key."""
        ...

    async def scan(self, work: Work[T]) -> T:
        """Run a read that may take long."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run a transaction; what ``work`` raises undoes all of it."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Place(Protocol):
    """A database before it is open: what looking at its schema and changing it needs.

    Every method raises `DatabaseUnusable`, which says why and what to do.
    """

    @property
    def name(self) -> str:
        """What operators call it; never a password."""
        ...

    @property
    def lasting(self) -> bool:
        """False for a database in memory, which begins empty."""
        ...

    @property
    def migrates_itself(self) -> bool:
        """True if whoever opens it may change its schema without being told to."""
        ...

    def exists(self) -> bool:
        """Whether there can be something to look at; makes nothing."""
        ...

    def engine(self) -> Engine:
        """Make the engine, and the file where there is one; connects to nothing."""
        ...

    def connected(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Connect; whatever goes wrong meanwhile is named."""
        ...

    def tables(self, connection: Connection) -> Collection[str]:
        """Return the names of the tables that are there."""
        ...

    def foreign(self, tables: Collection[str]) -> bool:
        """Whether tables without a schema version of ours keep us from making ours."""
        ...

    def prepare(self, connection: Connection) -> None:
        """Make the database fit for the store, before its schema is brought up to date."""
        ...

    def judge(self, connection: Connection) -> None:
        """Refuse a database whose schema is right and that still cannot be worked with."""
        ...

    def alone(self, connection: Connection, work: Callable[[Connection], None]) -> None:
        """Run a transaction that changes the schema, while others that want to wait."""
        ...
