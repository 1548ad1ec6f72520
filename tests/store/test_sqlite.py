"""SQLite under the store: locks, threads, cancellation, a full disk."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from workflow_bridge.core.store import NameTaken, StoreUnavailable
from workflow_bridge.core.task import Payload
from workflow_bridge.store import DatabaseUnavailable, open_store, schema
from workflow_bridge.store.schema import opened
from workflow_bridge.store.sql import SqlTaskStore
from workflow_bridge.store.sqlite import SqliteDatabase, open_engine
from workflow_bridge.testing.store_contract import ARGUMENTS, LEASE, added, moved, new_task

pytestmark = pytest.mark.anyio
SHORT = 0.3
"""Seconds of patience."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bridge.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    database = opened(f"sqlite:///{path}")
    assert isinstance(database, SqliteDatabase)
    yield database
    await database.aclose()


@pytest.fixture
def store(database: SqliteDatabase) -> SqlTaskStore:
    return SqlTaskStore(database)


@pytest.fixture
async def impatient(path: Path) -> AsyncIterator[SqlTaskStore]:
    """A store that gives up on locks soon."""
    schema.upgrade(f"sqlite:///{path}")
    store = SqlTaskStore(SqliteDatabase(open_engine(path), None, patience=SHORT))
    yield store
    await store.aclose()


@pytest.fixture
def other(path: Path, database: SqliteDatabase) -> Iterator[sqlite3.Connection]:
    """Another program on the file; closing it gives back its lock."""
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 — it comes true in a thread
        await asyncio.sleep(0.001)


async def taken_up(database: SqliteDatabase) -> None:
    """Wait until the writer has begun all that was asked of it."""
    threads = database._threads
    assert threads is not None
    await until(threads._jobs.empty)


@pytest.mark.case("Q1")
async def test_the_event_loop_answers_while_another_program_holds_the_write_lock(
    store: SqlTaskStore, other: sqlite3.Connection
) -> None:
    task = await added(store)
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(added(store, "second"))
    slowest = 0.0
    for _ in range(300):
        begun = time.perf_counter()
        assert await store.get("local", "t") == task
        await asyncio.sleep(0)
        slowest = max(slowest, time.perf_counter() - begun)
    assert len(await store.page("local", after=None, limit=9)) == 1
    assert not write.done()
    assert slowest < 0.25
    other.execute("COMMIT")
    await write


@pytest.mark.case("Q1")
async def test_a_lock_longer_than_sqlites_own_patience_is_waited_out(
    store: SqlTaskStore, database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    await added(store)
    await database.scan(lambda c: c.exec_driver_sql("SELECT 1"))
    assert database._threads is not None
    database._threads._connection.exec_driver_sql("PRAGMA busy_timeout = 0")
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(added(store, "second"))
    await taken_up(database)
    await asyncio.sleep(0.05)
    assert not write.done()
    other.execute("COMMIT")
    await write


@pytest.mark.case("Q1")
async def test_a_read_in_place_that_meets_a_lock_goes_on_in_a_thread(
    store: SqlTaskStore, database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    threads = []

    def work(connection: Connection) -> int:
        threads.append(threading.current_thread())
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.exec_driver_sql("ROLLBACK")
        return 7

    other.execute("BEGIN IMMEDIATE")
    look = asyncio.create_task(database.look(work))
    await until(lambda: len(threads) == 2)
    other.execute("COMMIT")
    assert await look == 7
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


async def test_a_cancelled_write_is_withdrawn_or_finished_and_the_store_goes_on(
    store: SqlTaskStore, database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    begun = asyncio.create_task(added(store, "begun"))
    await asyncio.sleep(0)
    await taken_up(database)
    queued = asyncio.create_task(added(store, "queued"))
    await asyncio.sleep(0)
    begun.cancel()
    queued.cancel()
    for write in (begun, queued):
        with pytest.raises(asyncio.CancelledError):
            await write
    other.execute("COMMIT")
    await added(store, "after")
    assert await store.get("local", "begun") is not None
    assert await store.get("local", "queued") is None


async def test_writes_committed_together_fail_each_for_itself(
    store: SqlTaskStore, database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    task = await added(store)
    other.execute("BEGIN IMMEDIATE")
    asyncio.create_task(added(store, "holds up the queue"))  # noqa: RUF006
    await asyncio.sleep(0)
    await taken_up(database)
    group = asyncio.gather(
        added(store, "one"),
        added(store, "t"),
        store.apply(task, replace(task, attempts=1)),
        store.apply(task, replace(task, attempts=2)),
        added(store, "two"),
        return_exceptions=True,
    )
    await asyncio.sleep(0)
    other.execute("COMMIT")
    one, same, first, second, two = await group
    assert await store.get("local", "one") == one
    assert isinstance(same, NameTaken)
    assert await store.get("local", "t") == first
    assert second is None
    assert await store.get("local", "two") == two
    kinds = [event.kind for _, event in await store.events(two.row_id)]
    assert kinds == ["created"]


@pytest.mark.case("Q4")
async def test_no_connection_is_held_once_a_method_has_returned(
    store: SqlTaskStore, database: SqliteDatabase
) -> None:
    task = await added(store)
    pool = database._engine.pool
    before = pool.checkedout()  # type: ignore[attr-defined]
    await asyncio.gather(*(store.payload(task.row_id) for _ in range(200)))
    await asyncio.gather(*(store.claim(["orders"], limit=1, lease=LEASE) for _ in range(50)))
    assert pool.checkedout() == before == 2  # type: ignore[attr-defined]


async def test_nothing_read_or_written_leaves_a_transaction_open(
    store: SqlTaskStore, database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    task = await added(store)
    await store.get("local", "t")
    await store.claim_row(task.row_id, unseen=True, lease=LEASE)
    # A truncating checkpoint succeeds only if no reader holds a snapshot and nobody writes.
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


async def test_a_full_disk_is_named_and_undone_and_the_store_goes_on(
    store: SqlTaskStore, database: SqliteDatabase, path: Path
) -> None:
    assert database._threads is not None
    writer = database._threads._connection
    (pages,) = writer.exec_driver_sql("PRAGMA page_count").one()
    writer.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")
    task = new_task(store)
    with pytest.raises(DatabaseUnavailable, match="disk is full; free some space") as caught:
        await store.insert(task, b"x" * 250_000)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, StoreUnavailable)
    assert isinstance(caught.value.__cause__, sqlite3.Error | DBAPIError)
    assert await store.row(task.row_id) is None
    writer.exec_driver_sql("PRAGMA max_page_count = 1000000")
    await store.insert(task, b"x" * 250_000)
    assert await store.payload(task.row_id) == Payload(arguments=b"x" * 250_000)


@pytest.mark.parametrize("how", ["look", "scan", "write"])
@pytest.mark.parametrize("where", ["file", "memory"])
async def test_an_error_of_the_disk_is_one_of_availability(
    path: Path, how: str, where: str
) -> None:
    database = opened(f"sqlite:///{path}" if where == "file" else "sqlite://")
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    def work(connection: Connection) -> None:
        raise error

    name = str(path) if where == "file" else "in memory"
    with pytest.raises(DatabaseUnavailable, match=f"{name} is unavailable: the disk reports"):
        await getattr(database, how)(work)
    await database.aclose()


async def test_a_write_gives_up_on_a_lock_once_its_patience_is_over(
    impatient: SqlTaskStore, path: Path, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="keeps it locked") as caught:
        await added(impatient)
    assert str(path) in str(caught.value)
    other.execute("COMMIT")
    await added(impatient)


async def test_a_scan_gives_up_on_a_lock_once_its_patience_is_over(
    path: Path, other: sqlite3.Connection
) -> None:
    def work(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    database = SqliteDatabase(open_engine(path), None, patience=SHORT)
    other.execute("BEGIN IMMEDIATE")
    for read in (database.look, database.scan):
        begun = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="keeps it locked"):
            await read(work)
        assert time.monotonic() - begun < SHORT + 1
    await database.aclose()


async def test_writes_queued_behind_a_locked_one_add_no_patience_of_their_own(
    impatient: SqlTaskStore, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    writes = [asyncio.create_task(added(impatient, f"t{n}")) for n in range(150)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert {type(result) for result in results} == {DatabaseUnavailable}
    # Three batches; were each patient anew, it would take thrice as long.
    assert SHORT <= time.monotonic() - begun < 3 * SHORT
    other.execute("COMMIT")


async def test_of_writes_committed_together_only_those_whose_patience_is_over_give_up(
    database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    def work(connection: Connection) -> int:
        return 7

    threads = database._threads
    assert threads is not None
    other.execute("BEGIN IMMEDIATE")
    first = asyncio.wrap_future(threads.write(work, time.monotonic() + SHORT))
    await taken_up(database)
    second = asyncio.wrap_future(threads.write(work, time.monotonic() + SHORT))
    third = asyncio.wrap_future(threads.write(work, time.monotonic() + 60))
    for write in (first, second):
        with pytest.raises(DatabaseUnavailable, match="keeps it locked"):
            await write
    assert not third.done()
    other.execute("COMMIT")
    assert await third == 7


@pytest.mark.parametrize("how", ["removed", "moved", "replaced", "folder moved"])
async def test_nothing_is_written_into_a_file_that_lost_its_name(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "bridge.db"
    store = open_store(f"sqlite:///{path}")
    task = await added(store)
    kept = tmp_path / "kept.db"
    kept.hardlink_to(path)
    if how == "replaced":
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    elif how == "folder moved":
        folder.rename(tmp_path / "elsewhere")
    else:
        path.unlink() if how == "removed" else path.rename(tmp_path / "moved.db")

    results = await asyncio.gather(
        added(store, "second"),
        store.apply(task, replace(task, attempts=1)),
        store.remove(task),
        return_exceptions=True,
    )
    words = f"the database file {path} was removed or replaced while in use; restart the bridge"
    assert [(type(result), str(result)) for result in results] == [(DatabaseUnavailable, words)] * 3
    assert await store.get("local", "t") == task
    assert await store.get("local", "second") is None
    # A connection that is new would make the file, or read another one.
    with pytest.raises(DatabaseUnavailable, match="removed or replaced"):
        await store.page("local", after=None, limit=9)
    assert path.exists() == (how == "replaced")

    folder.mkdir(exist_ok=True)
    kept.replace(path) if how == "replaced" else path.hardlink_to(kept)
    await added(store, "second")
    await store.aclose()


async def test_a_file_replaced_while_a_write_waits_is_not_written(
    path: Path, store: SqlTaskStore, database: SqliteDatabase, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(added(store))
    await asyncio.sleep(0)
    await taken_up(database)
    path.unlink()  # noqa: ASYNC240
    other.execute("COMMIT")
    with pytest.raises(DatabaseUnavailable, match="removed or replaced"):
        await write


async def test_a_dropped_payload_does_not_linger_in_the_file(
    store: SqlTaskStore, path: Path, other: sqlite3.Connection
) -> None:
    task = await added(store)
    secret = "correct horse battery staple"
    changed = await store.apply(task, replace(task, attempts=1), payload=Payload(output=secret))
    assert changed is not None

    def in_file() -> bool:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return secret.encode() in path.read_bytes()

    assert in_file()
    await store.apply(changed, replace(changed, attempts=2), payload=Payload())
    assert not in_file()


@pytest.mark.parametrize("how", ["look", "scan", "write"])
async def test_an_error_that_is_not_the_files_stays_what_it_is(
    database: SqliteDatabase, how: str
) -> None:
    error = sqlite3.OperationalError("no such table")
    error.sqlite_errorcode = sqlite3.SQLITE_ERROR

    def work(connection: Connection) -> None:
        raise error

    with pytest.raises(sqlite3.OperationalError) as caught:
        await getattr(database, how)(work)
    assert caught.value is error
    assert error.__cause__ is None


async def test_errors_show_no_values(store: SqlTaskStore) -> None:
    task = new_task(store, "secret-id", attempts=-1)
    with pytest.raises(Exception, match="CHECK") as caught:
        await store.insert(task, b"secret-arguments")
    assert "secret" not in str(caught.value)


async def test_a_closed_store_refuses_work(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    task = await added(store)
    await store.aclose()
    await store.aclose()
    with pytest.raises(Exception, match="closed"):
        await store.row(task.row_id)
    with pytest.raises(Exception, match="closed"):
        await added(store, "2")


async def test_closing_waits_for_what_was_asked_before(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    writes = [asyncio.create_task(added(store, f"t{n}")) for n in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*writes)
    store = open_store(f"sqlite:///{path}")
    assert len(await store.page("local", after=None, limit=99)) == 20
    await store.aclose()


def test_claims_from_several_threads_and_loops_are_disjoint(path: Path) -> None:
    async def fill() -> SqlTaskStore:
        store = open_store(f"sqlite:///{path}")
        await asyncio.gather(*(added(store, f"t{n}") for n in range(120)))
        return store

    shared = asyncio.run(fill())
    claimed: list[str] = []

    async def claim(store: SqlTaskStore) -> None:
        while rows := await store.claim(["orders"], limit=4, lease=LEASE):
            claimed.extend(row.row_id for row in rows)
            assert await store.row(rows[0].row_id) is not None
            await moved(store, rows[0], attempts=1)

    def alone() -> None:
        async def run() -> None:
            store = open_store(f"sqlite:///{path}")
            await claim(store)
            await store.aclose()

        asyncio.run(run())

    threads = [threading.Thread(target=alone) for _ in range(2)]
    threads += [threading.Thread(target=lambda: asyncio.run(claim(shared))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    asyncio.run(claim(shared))
    assert len(claimed) == len(set(claimed)) == 120
    asyncio.run(shared.aclose())


async def test_a_jump_of_the_wall_clock_leaves_no_row_out_of_reach(path: Path) -> None:
    now = 1_750_000_000.0
    store = open_store(f"sqlite:///{path}", clock=lambda: now)
    await added(store, due_at=store.now() + timedelta(minutes=59))
    now -= 86400.0
    assert len(await store.claim(["orders"], limit=1, lease=LEASE)) == 1
    now -= 86400.0
    assert len(await store.claim(["orders"], limit=1, lease=LEASE)) == 1
    await store.insert(new_task(store, "2"), ARGUMENTS)
    await store.aclose()
