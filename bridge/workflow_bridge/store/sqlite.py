"""SQLite under the store: connections, threads, transactions and error texts.

One file is shared by several processes and has one writer at a time. So, in each process: one
connection reads by primary key in place, on the caller's thread; a few read in worker threads; one
writes, in a thread of its own that commits together whatever has queued up meanwhile.
"""

from __future__ import annotations

import asyncio
import os
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
from sqlalchemy.pool import ConnectionPoolEntry

from workflow_bridge.store import DatabaseUnavailable, DatabaseUnusable
from workflow_bridge.store.clocks import in_milliseconds
from workflow_bridge.store.database import Work

T = TypeVar("T")

BUSY_TIMEOUT: Final = 10.0
"""Seconds that SQLite itself waits for a lock while a database is opened."""
OPENING_PATIENCE: Final = 60.0
"""Seconds that opening waits for other processes, which may be migrating, in all."""
PATIENCE: Final = 15.0
"""Seconds from a call of an open store until it gives up on a lock of another process."""
_SCANNERS: Final = 2
_TOGETHER: Final = 64
"""Writes committed together at most."""
_INODE: Final = "workflow_bridge_inode"
"""Under which key of `Connection.info` is what a connection has opened."""
_ERRORS: Final = (sqlite3.Error, DBAPIError)

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

    def __init__(
        self, engine: Engine, clock: Callable[[], float] | None, *, patience: float = PATIENCE
    ) -> None:
        self.now = bindparam("now", type_=BigInteger)
        self._clock = clock or time.time
        self._engine = engine
        self._patience = patience
        self._turn = threading.RLock()
        self._reader = connected(engine)
        self._file = _File(engine.url.database, self._reader.info.get(_INODE))
        self._threads: _Threads | None = None
        if self._file.name is not None:
            # In place nothing may wait: a read that meets a lock goes to a thread instead.
            self._reader.exec_driver_sql("PRAGMA busy_timeout = 0")
            event.listen(engine, "do_connect", self._before_connecting)
            self._threads = _Threads(engine, self._file)

    def _before_connecting(
        self, _dialect: object, _record: object, _args: object, parameters: dict[str, Any]
    ) -> None:
        """Have `persistently` alone wait in threads, and nobody open, or make, another file."""
        parameters["timeout"] = 0.0
        self._file.check()

    def milliseconds(self) -> int:
        """Return the wall clock."""
        return in_milliseconds(self._clock())

    def queue_up(self, connection: Connection, owner: str) -> None:
        """Do nothing: there is one writer at a time."""

    async def look(self, work: Work[T]) -> T:
        """Read by primary key, in place."""
        until = time.monotonic() + self._patience
        try:
            with self._turn:
                return work(self._reader)
        except _ERRORS as exc:
            if self._threads is None or not _busy(exc):
                self._file.blame(exc)
        return await asyncio.wrap_future(self._threads.scan(work, until))

    async def scan(self, work: Work[T]) -> T:
        """Read whatever takes longer, in a thread."""
        if self._threads is None:
            return await self.look(work)
        until = time.monotonic() + self._patience
        return await asyncio.wrap_future(self._threads.scan(work, until))

    async def write(self, work: Work[T]) -> T:
        """Write in one transaction; what ``work`` raises undoes all that it did."""
        if self._threads is None:
            with self._turn:
                try:
                    return _transact(self._reader, work)
                except _ERRORS as exc:
                    self._file.blame(exc)
        until = time.monotonic() + self._patience
        return await asyncio.wrap_future(self._threads.write(work, until))

    async def aclose(self) -> None:
        """Finish what has begun, then close all connections."""
        if self._threads is not None:
            self._threads.end()
            await asyncio.to_thread(self._threads.join)
        with self._turn:
            self._reader.close()
            self._engine.dispose()


@dataclass(frozen=True, slots=True)
class _File:
    """What an open store has opened: a file, or a database in memory (neither name nor inode)."""

    name: str | None
    inode: tuple[int, int] | None

    def check(self) -> None:
        """Raise `DatabaseUnavailable` if the path is no longer the file's that is open.

        What is written into a file without a name is lost as soon as this process ends.
        """
        if self.name is None:
            return
        try:
            found = _inode(self.name)
        except OSError as exc:
            raise DatabaseUnavailable(
                f"the database {self.name} is unavailable: it cannot be looked up"
                f" ({exc.strerror}); check its folder and the mount"
            ) from exc
        if found is None or found != self.inode:
            raise DatabaseUnavailable(
                f"the database file {self.name} was removed or replaced while in use;"
                " restart the bridge"
            )

    def fault(self, exc: Exception) -> Exception:
        """Return what an error means while the store is open; itself, if it is not the file's."""
        reason = _reason(exc)
        if reason is None:
            return exc
        fault = DatabaseUnavailable(
            f"the database {self.name or 'in memory'} is unavailable: {reason}"
        )
        try:
            self.check()
        except DatabaseUnavailable as gone:  # explains more than what SQLite makes of it
            fault = gone
        fault.__cause__ = exc
        return fault

    def blame(self, exc: Exception) -> NoReturn:
        """Raise what `fault` returns."""
        raise self.fault(exc)


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work[Any]
    until: float
    """When, by the monotonic clock, to give up on a lock."""
    future: Future[Any] = field(default_factory=Future)


class _Threads:
    """The threads of one file: a few that read and one that writes."""

    def __init__(self, engine: Engine, file: _File) -> None:
        self._engine = engine
        self._file = file
        self._scanners = ThreadPoolExecutor(_SCANNERS, "wb-store-read")
        self._connection = connected(engine)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._ended = False
        # A daemon, so that a process which forgets to close the store can still end: SQLite takes
        # back what a killed writer has begun.
        self._writer = threading.Thread(target=self._write_all, name="wb-store-write", daemon=True)
        self._writer.start()

    def scan(self, work: Work[T], until: float) -> Future[T]:
        return self._scanners.submit(self._scan, work, until)

    def _scan(self, work: Work[T], until: float) -> T:
        def read() -> T:
            with self._engine.connect() as connection:
                return work(connection)

        try:
            return persistently(read, until)
        except _ERRORS as exc:
            self._file.blame(exc)

    def write(self, work: Work[T], until: float) -> Future[T]:
        if self._ended:
            raise RuntimeError("the store is closed")
        job = _Job(work, until)
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
        until = min(job.until for job in jobs)

        def work(connection: Connection) -> list[Any]:
            self._file.check()
            return [job.work(connection) for job in jobs]

        try:
            results = persistently(lambda: _transact(self._connection, work), until)
        except BaseException as exc:  # noqa: BLE001 — it is the caller's
            self._refuse(jobs, until, exc)
        else:
            for job, result in zip(jobs, results, strict=True):
                job.future.set_result(result)

    def _refuse(self, jobs: list[_Job], until: float, exc: BaseException) -> None:
        """Tell those whom it concerns, and go on with the others."""
        late, others = jobs, list[list[_Job]]()
        fault: BaseException = exc
        if isinstance(exc, _ERRORS):
            fault = self._file.fault(exc)
        if _busy(exc):
            # Who asked later has patience left.
            late = [job for job in jobs if job.until <= until]
            others = [rest] if (rest := [job for job in jobs if job.until > until]) else []
        elif len(jobs) > 1 and not isinstance(fault, DatabaseUnavailable):
            late, others = [], [[job] for job in jobs]
        for job in late:
            job.future.set_exception(fault)
        for rest in others:
            self._commit(rest)


def transact(connection: Connection, work: Work[T]) -> T:
    """Run a write transaction while a database is opened, as `patiently` does."""
    return patiently(lambda: _transact(connection, work), connection.engine.url.database)


def _transact(connection: Connection, work: Work[T]) -> T:
    driver = driver_of(connection)
    driver.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        driver.execute("COMMIT")
    except BaseException:
        if driver.in_transaction:  # SQLite undoes it by itself on some errors
            driver.execute("ROLLBACK")
        raise
    return result


def patiently(attempt: Callable[[], T], name: str | None) -> T:
    """Do what opening takes; errors of the database become `DatabaseUnusable`."""
    try:
        return persistently(attempt, time.monotonic() + OPENING_PATIENCE)
    except _ERRORS as exc:
        reason = _reason(exc)
        if reason is None:
            raise
        raise DatabaseUnusable(
            f"the database {name or 'in memory'} cannot be used: {reason}"
        ) from exc


def persistently(attempt: Callable[[], T], until: float) -> T:
    """Try once at least, then again while the database is busy and it is not ``until`` yet."""
    pause = 0.001
    while True:
        try:
            return attempt()
        except _ERRORS as exc:
            if not _busy(exc) or time.monotonic() >= until:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 0.1)


def open_engine(path: Path | None) -> Engine:
    """Make the engine of a file that exists, or of a new database in memory (None).

    Every connection is in the driver's autocommit mode: reads hold no transaction, and `_transact`
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


def _prepare(driver: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
    (_, _, name) = driver.execute("PRAGMA database_list").fetchone()
    if name:
        record.info[_INODE] = _inode(name)
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


def _reason(exc: BaseException) -> str | None:
    """Return what is wrong with the database, None if something else is."""
    return _REASONS.get(_code(exc) or 0)


def _inode(path: str) -> tuple[int, int] | None:
    """Return which file the path names; None if none."""
    try:
        found = os.stat(path)  # noqa: PTH116 — before every write
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
