"""PostgreSQL under the store: connections, threads, transactions, retries.

Nothing here outlives a transaction on the server (no prepared statement, no setting, no lock of a
session, no LISTEN), so a pooler may hand our connection another session with each transaction, as
PgBouncer does in transaction mode. All time-outs of the server are set within transactions.

A call runs in a thread, with a connection that it holds for that long and no longer. There are as
many threads as connections, so that calls queue for a thread and never for a connection; half of
the threads read, so that reads do not wait behind writes that wait for a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

import psycopg
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    bindparam,
    event,
    literal_column,
)
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from workflow_bridge.store import PoolOptions
from workflow_bridge.store.clocks import ServerClock, in_milliseconds
from workflow_bridge.store.database import Work
from workflow_bridge.store.postgres_driver import (
    CLOCK,
    Undecided,
    begin,
    committed,
    driver_of,
    lock_number,
    roll_back,
    seconds,
)
from workflow_bridge.store.postgres_errors import Kind, Trouble, named, unavailable

T = TypeVar("T")

# Of the statement, not of the moment: the same for all rows, so that indexes can be walked by it,
# which clock_timestamp() does not allow. It is the time at which the statement came in: older than
# the moment only if a table is locked, as by a migration, and by `lock_timeout` at most.
_NOW: Final = "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint"
_IDLE_SINCE: Final = "idle_since"
_PAUSES: Final = (0.02, 0.1, 0.3, 1.0)
"""Seconds between attempts; the last goes on."""


class PostgresDatabase:
    """One database on a server.

    What fails because the connection broke, the server restarted or transactions got in each
    other's way is done again for as long as `PoolOptions.patience` allows; then it is
    `DatabaseUnavailable`. No write is done twice: should the answer to a COMMIT be lost, the server
    is asked what became of the transaction (`pg_xact_status`) before anything else. A failover to a
    standby that lags forgets transactions, answered ones too; only synchronous replication prevents
    that.

    A task that awaits and is cancelled withdraws work that has not begun; work that has begun is
    finished, and what it wrote stays.
    """

    now: ColumnElement[int]

    def __init__(
        self,
        engine: Engine,
        name: str,
        options: PoolOptions,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._options = options
        self._fake_clock = clock
        self._clock = ServerClock()
        own = literal_column(f"({_NOW})", BigInteger)
        self.now = own if clock is None else bindparam("now", type_=BigInteger)
        self._begin_read = begin("READ ONLY", options, "''")
        self._begin_write = begin("READ WRITE", options, "pg_current_xact_id()::text")
        writers = options.size // 2
        self._writers = ThreadPoolExecutor(writers, "wb-store-write")
        self._readers = ThreadPoolExecutor(options.size - writers, "wb-store-read")
        self._closed = False
        self._closing = threading.Event()
        self._calls: set[_Call[Any]] = set()
        self._lost_at = float("-inf")
        event.listen(engine, "checkin", self._put_back)
        event.listen(engine, "checkout", self._take_out)
        with named(name), engine.connect() as connection:
            self._ask_the_time(connection)

    def milliseconds(self) -> int:
        """Return the server's clock, as `ServerClock` tells it."""
        if self._fake_clock is not None:
            return in_milliseconds(self._fake_clock())
        return self._clock.milliseconds()

    def queue_up(self, connection: Connection, owner: str) -> None:
        """Take a lock of the transaction's on the owner, so that a count of rows stays true."""
        number = lock_number(f"owner {owner}")
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s::bigint)", (number,))

    async def look(self, work: Work[T]) -> T:
        """Read by primary key: one statement, one round trip."""
        return await self._run(self._readers, self._look, work)

    async def scan(self, work: Work[T]) -> T:
        """Read in a transaction, which the server ends if a statement takes too long."""
        return await self._run(self._readers, self._read, work)

    async def write(self, work: Work[T]) -> T:
        """Write in one transaction; what ``work`` raises undoes all that it did."""
        return await self._run(self._writers, self._write, work)

    async def aclose(self) -> None:
        """Finish what has begun or queues, without insisting, then close all connections."""
        self._closed = True
        self._closing.set()
        ended = asyncio.gather(
            *(asyncio.to_thread(pool.shutdown) for pool in (self._writers, self._readers))
        )
        try:
            async with asyncio.timeout(seconds(self._options.statement_timeout)):
                await asyncio.shield(ended)
        except TimeoutError:
            for call in list(self._calls):
                call.cut()
            await ended
        self._engine.dispose()

    async def _run(self, threads: ThreadPoolExecutor, attempt: _Attempt[T], work: Work[T]) -> T:
        if self._closed:
            raise RuntimeError("the store is closed")
        options = self._options
        call = _Call(attempt, work, time.monotonic() + seconds(options.patience))
        future = threads.submit(self._insist, call)
        try:
            async with asyncio.timeout(seconds(options.patience + options.statement_timeout)) as t:
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if not t.expired():
                raise
            # Not even a refusal by now: whatever holds it up, the thread is wanted.
            call.cut()
            in_doubt = threads is self._writers
            raise unavailable(self._name, "it does not answer", in_doubt=in_doubt) from None

    def _insist(self, call: _Call[T]) -> T:
        """Attempt it until it is done or refused, or time is up."""
        self._calls.add(call)
        try:
            reason = "all its connections are busy"
            for pause in _pauses():
                if time.monotonic() > call.deadline:
                    break
                try:
                    with self._engine.connect() as connection, call.holding(connection):
                        return call.attempt(call, connection)
                except Undecided:
                    reason = "it has not yet said what became of a transaction"
                except (psycopg.Error, DBAPIError, UnicodeError) as exc:
                    trouble = Trouble(exc)
                    reason = trouble.reason
                    if trouble.kind is Kind.OURS:
                        raise
                    if trouble.kind not in (Kind.LOST, Kind.CONFLICT):
                        raise trouble.error(self._name, in_doubt=call.doubt is not None) from None
                if self._closing.wait(pause) or call.given_up:
                    break
            raise unavailable(self._name, reason, in_doubt=call.doubt is not None)
        finally:
            self._calls.discard(call)

    def _look(self, call: _Call[T], connection: Connection) -> T:
        with self._watching(connection):
            if self._clock.stale:
                self._ask_the_time(connection)
            return call.work(connection)

    def _read(self, call: _Call[T], connection: Connection) -> T:
        with self._watching(connection):
            self._begin(connection, self._begin_read)
            try:
                return call.work(connection)
            finally:
                roll_back(connection)

    def _write(self, call: _Call[T], connection: Connection) -> T:
        with self._watching(connection):
            if call.doubt is not None:
                xid, result = call.doubt
                if committed(connection, xid):
                    return result
                call.doubt = None
            xid = self._begin(connection, self._begin_write)
            try:
                result = call.work(connection)
            except BaseException:
                roll_back(connection)
                raise
            call.doubt = (xid, result)
            done = driver_of(connection).execute(b"COMMIT").statusmessage
            call.doubt = None
            if done != "COMMIT":
                raise RuntimeError("a statement failed, and what ran it went on regardless")
            return result

    @contextlib.contextmanager
    def _watching(self, connection: Connection) -> Iterator[None]:
        """Have a connection that broke replaced, and those that were idle then."""
        try:
            yield
        except (psycopg.Error, DBAPIError) as exc:
            if Trouble(exc).kind is Kind.LOST:
                self._lost_at = time.monotonic()
                connection.invalidate()
            raise

    def _put_back(self, _driver: object, record: ConnectionPoolEntry) -> None:
        record.info[_IDLE_SINCE] = time.monotonic()

    def _take_out(self, _driver: object, record: ConnectionPoolEntry, _proxy: object) -> None:
        """Have a connection replaced that may have died in the pool."""
        since = record.info.get(_IDLE_SINCE)
        oldest = max(self._lost_at, time.monotonic() - seconds(self._options.idle))
        if since is not None and since <= oldest:
            raise DisconnectionError

    def _begin(self, connection: Connection, words: bytes) -> str:
        """Begin a transaction; returns its id, and learns the time."""
        asked = time.monotonic()
        cursor = driver_of(connection).execute(words)
        while cursor.nextset():
            pass
        answer = cursor.fetchone()
        assert answer is not None
        xid, server_ms = answer
        self._clock.learn(server_ms, asked)
        return str(xid)

    def _ask_the_time(self, connection: Connection) -> None:
        asked = time.monotonic()
        (server_ms,) = connection.exec_driver_sql(f"SELECT {CLOCK}").one()
        self._clock.learn(server_ms, asked)


_Attempt = Callable[["_Call[T]", Connection], T]


class _Call(Generic[T]):
    """One call of the store, over all its attempts."""

    def __init__(self, attempt: _Attempt[T], work: Work[T], deadline: float) -> None:
        self.attempt = attempt
        self.work = work
        self.deadline = deadline
        self.doubt: tuple[str, T] | None = None
        """The id and result of a transaction whose commit was sent and not answered."""
        self.given_up = False
        self._driver: psycopg.Connection[Any] | None = None
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def holding(self, connection: Connection) -> Iterator[None]:
        """Remember the connection for as long as it is ours."""
        self._driver = driver_of(connection)
        try:
            yield
        finally:
            with self._turn:
                self._driver = None

    def cut(self) -> None:
        """Cut the connection under the thread that waits for it, from another thread."""
        self.given_up = True
        with self._turn, contextlib.suppress(OSError, psycopg.Error):
            if self._driver is not None:
                with socket.socket(fileno=os.dup(self._driver.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    yield from itertools.repeat(_PAUSES[-1])
