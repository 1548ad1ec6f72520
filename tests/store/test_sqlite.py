"""SQLite under the store: locks, threads, cancellation, a full disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection

from workflow_bridge.core.store import NameTaken
from workflow_bridge.core.task import Payload
from workflow_bridge.store import DatabaseUnusable, open_store
from workflow_bridge.store.schema import opened
from workflow_bridge.store.sql import SqlTaskStore
from workflow_bridge.store.sqlite import SqliteDatabase
from workflow_bridge.testing.store_contract import ARGUMENTS, LEASE, added, moved, new_task

pytestmark = pytest.mark.anyio


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
    store: SqlTaskStore, database: SqliteDatabase
) -> None:
    assert database._threads is not None
    writer = database._threads._connection
    (pages,) = writer.exec_driver_sql("PRAGMA page_count").one()
    writer.exec_driver_sql(f"PRAGMA max_page_count = {pages + 5}")
    task = new_task(store)
    with pytest.raises(DatabaseUnusable, match="disk is full"):
        await store.insert(task, b"x" * 250_000)
    assert await store.row(task.row_id) is None
    writer.exec_driver_sql("PRAGMA max_page_count = 1000000")
    await store.insert(task, b"x" * 250_000)
    assert await store.payload(task.row_id) == Payload(arguments=b"x" * 250_000)


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
