"""SQLite under the store: connections, threads, transactions and error texts.

One file is shared by several processes and has one writer at a time. So, in each process: one
connection reads by primary key in place, on the caller's thread; a few read in worker threads; one
writes, in a thread of its own that commits together whatever has queued up meanwhile.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    StaticPool,
    bindparam,
    create_engine,
    event,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from workflow_bridge.store import DatabaseUnusable
from workflow_bridge.store.clocks import in_milliseconds
from workflow_bridge.store.database import Work

T = TypeVar("T")

BUSY_TIMEOUT: Final = 10.0
"""Seconds that SQLite itself waits for a lock before we look at the deadline."""
PATIENCE: Final = 60.0
"""Seconds that a call waits for other processes in all."""
_SCANNERS: Final = 2
_TOGETHER: Final = 64
"""Writes committed together at most."""

_LOCKED: Final = "another program keeps it locked; end that program, or wait for it"
_CLOSED: Final = "it cannot be opened; make the file and its folder writable for this user"
READ_ONLY: Final = "it is read-only; make the file and its folder writable for this user"
_REASONS: Final = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_IOERR: "the disk reports an error; check the disk and the mount",
    sqlite3.SQLITE_CORRUPT: "its content is damaged; restore it from a backup or use another file",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_PERM: _CLOSED,
    sqlite3.SQLITE_AUTH: _CLOSED,
    sqlite3.SQLITE_NOTADB: "it is no SQLite database; name another file",
}


class SqliteDatabase:
    """One SQLite file, or one database in memory that lives as long as this object.

    A task that awaits `write` or `scan` and is cancelled withdraws work that has not begun; work
    that has begun is finished, and what it wrote stays.
    """

    now: ColumnElement[int]

    def __init__(self, engine: Engine, clock: Callable[[], float] | None) -> None:
        self.now = bindparam("now", type_=BigInteger)
        self._clock = clock or time.time
        self._engine = engine
        self._name = engine.url.database
        self._turn = threading.RLock()
        self._reader = connected(engine)
        self._threads: _Threads | None = None
        if self._name is not None:
            # In place nothing may wait: a read that meets a lock goes to a thread instead.
            self._reader.exec_driver_sql("PRAGMA busy_timeout = 0")
            self._threads = _Threads(engine)

    def milliseconds(self) -> int:
        """Return the wall clock."""
        return in_milliseconds(self._clock())

    def queue_up(self, connection: Connection, owner: str) -> None:
        """Do nothing: there is one writer at a time."""

    async def look(self, work: Work[T]) -> T:
        """Read by primary key, in place."""
        try:
            with self._turn:
                return work(self._reader)
        except DBAPIError as exc:
            if self._threads is None or not _busy(exc):
                raise_unusable(self._name, exc)
        return await self.scan(work)

    async def scan(self, work: Work[T]) -> T:
        """Read whatever takes longer, in a thread."""
        if self._threads is None:
            return await self.look(work)
        return await asyncio.wrap_future(self._threads.scan(work))

    async def write(self, work: Work[T]) -> T:
        """Write in one transaction; what ``work`` raises undoes all that it did."""
        if self._threads is None:
            with self._turn:
                return transact(self._reader, work)
        return await asyncio.wrap_future(self._threads.write(work))

    async def aclose(self) -> None:
        """Finish what has begun, then close all connections."""
        if self._threads is not None:
            self._threads.end()
            await asyncio.to_thread(self._threads.join)
        with self._turn:
            self._reader.close()
            self._engine.dispose()


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work[Any]
    future: Future[Any] = field(default_factory=Future)


class _Threads:
    """The threads of one file: a few that read and one that writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._scanners = ThreadPoolExecutor(_SCANNERS, "wb-store-read")
        self._connection = connected(engine)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ended = False
        # A daemon, so that a process which forgets to close the store can still end: SQLite takes
        # back what a killed writer has begun.
        self._writer = threading.Thread(target=self._write_all, name="wb-store-write", daemon=True)
        self._writer.start()

    def scan(self, work: Work[T]) -> Future[T]:
        return self._scanners.submit(self._scan, work)

    def _scan(self, work: Work[T]) -> T:
        def read() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        return patiently(read, self._engine.url.database)

    def write(self, work: Work[T]) -> Future[T]:
        if self._ended:
            raise RuntimeError("the store is closed")
        job = _Job(work)
        self._jobs.put(job)
        return job.future

    def end(self) -> None:
        """Take no more work."""
        if not self._ended:
            self._ended = True
            self._jobs.put(None)

    def join(self) -> None:
        """Wait for the work taken."""
        self._scanners.shutdown()
        self._writer.join()

    def _write_all(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job, *self._queued()]
            if wanted := [job for job in jobs if job.future.set_running_or_notify_cancel()]:
                self._commit(wanted)
        self._connection.close()

    def _queued(self) -> Iterator[_Job]:
        for _ in range(_TOGETHER - 1):
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is None:  # the end: leave it for the outer loop
                self._jobs.put(None)
                return
            yield job

    def _commit(self, jobs: list[_Job]) -> None:
        """Commit together; if one is refused, each alone, so that it fails for itself only."""
        try:
            results = transact(self._connection, lambda c: [job.work(c) for job in jobs])
        except BaseException as exc:  # noqa: BLE001 — it is the caller's
            if len(jobs) > 1 and not isinstance(exc, DatabaseUnusable):
                for job in jobs:
                    self._commit([job])
                return
            for job in jobs:
                job.future.set_exception(exc)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)


def transact(connection: Connection, work: Work[T]) -> T:
    """Run a write transaction, waiting for other writers as long as `PATIENCE` allows."""
    driver = driver_of(connection)

    def once() -> T:
        driver.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            driver.execute("COMMIT")
        except BaseException:
            if driver.in_transaction:  # SQLite undoes it by itself on some errors
                driver.execute("ROLLBACK")
            raise
        return result

    return patiently(once, connection.engine.url.database)


def patiently(attempt: Callable[[], T], name: str | None) -> T:
    """Try again while the database is busy; other database errors become `DatabaseUnusable`."""
    deadline = time.monotonic() + PATIENCE
    pause = 0.001
    while True:
        try:
            return attempt()
        except (sqlite3.Error, DBAPIError) as exc:
            if not _busy(exc) or time.monotonic() > deadline:
                raise_unusable(name, exc)
        # SQLite has waited for a lock itself where waiting can help; where it reports a lock at
        # once (a snapshot that became old, a change of journal mode) it is over in a moment.
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def open_engine(path: Path | None) -> Engine:
    """Make the engine of a file that exists, or of a new database in memory (None).

    Every connection is in the driver's autocommit mode: reads hold no transaction, and `transact`
    begins and ends write transactions by itself.
    """
    url = URL.create("sqlite", database=None if path is None else str(path))
    engine = create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        connect_args={"timeout": BUSY_TIMEOUT, "check_same_thread": False},
        **({"poolclass": StaticPool} if path is None else {"pool_size": _SCANNERS + 2}),
    )

    event.listen(engine, "connect", _prepare)
    return engine


def connected(engine: Engine) -> Connection:
    """Connect; raises `DatabaseUnusable`."""
    return patiently(engine.connect, engine.url.database)


def _prepare(driver: sqlite3.Connection, _record: object) -> None:
    driver.execute("PRAGMA foreign_keys = ON")
    driver.execute("PRAGMA synchronous = FULL")
    # Overwrites deleted payloads with zeros: what a user deleted shall not linger in the file. The
    # price is that deleting writes as many pages as inserting did, once per task and off the
    # polling path. The journal still holds them until it is reused.
    driver.execute("PRAGMA secure_delete = ON")


def driver_of(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _code(exc: BaseException) -> int | None:
    """Return the primary result code of SQLite."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    code: int | None = getattr(cause, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _busy(exc: BaseException) -> bool:
    return _code(exc) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def raise_unusable(name: str | None, exc: Exception) -> NoReturn:
    """Raise what an error of SQLite means; itself, where the database is not at fault."""
    reason = _REASONS.get(_code(exc) or 0)
    if reason is None:
        raise exc
    raise DatabaseUnusable(f"the database {name or 'in memory'} cannot be used: {reason}") from exc
