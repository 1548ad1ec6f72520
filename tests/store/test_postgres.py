"""PostgreSQL under the store: locks, threads, the pool, the clock, what a pooler forbids."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.store.postgres_server import PostgresServer
from tests.store.wire import PORT, Wire
from workflow_bridge.core.store import TooManyTasks
from workflow_bridge.core.task import Payload
from workflow_bridge.store import DatabaseUnavailable, DatabaseUnusable, PoolOptions, open_store
from workflow_bridge.store.clocks import ServerClock
from workflow_bridge.store.postgres import PostgresDatabase
from workflow_bridge.store.postgres_driver import lock_number
from workflow_bridge.store.schema import opened
from workflow_bridge.store.sql import SqlTaskStore
from workflow_bridge.testing.store_contract import (
    ARGUMENTS,
    LEASE,
    MS,
    SECOND,
    added,
    ids,
    moved,
    new_task,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[PostgresDatabase]:
    database = opened(database_url, pool=PoolOptions(size=4, lock_timeout=50 * MS))
    assert isinstance(database, PostgresDatabase)
    yield database
    await database.aclose()


@pytest.fixture
def store(database: PostgresDatabase) -> SqlTaskStore:
    return SqlTaskStore(database)


def sessions(server: PostgresServer, url: str) -> list[tuple[Any, ...]]:
    """Return the store's sessions at the server, and what they are at."""
    name = url.split("/")[3].split("?")[0]
    return server.execute(
        "SELECT application_name, state FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND application_name = 'workflow-bridge'"
    )


# --- the pool -------------------------------------------------------------------------------------


@pytest.mark.case("Q4")
async def test_many_more_calls_than_connections_queue_and_none_fails(
    store: SqlTaskStore, server: PostgresServer, database_url: str
) -> None:
    task = await added(store)
    await asyncio.gather(
        *(store.get("local", "t") for _ in range(300)),
        *(store.payload(task.row_id) for _ in range(100)),
        *(store.claim(["orders"], limit=1, lease=LEASE) for _ in range(50)),
        *(added(store, f"t{n}") for n in range(100)),
    )
    assert len(await store.page("local", after=None, limit=999)) == 101
    assert 1 < len(sessions(server, database_url)) <= 4


@pytest.mark.case("Q4")
async def test_no_connection_is_held_once_a_method_has_returned(
    store: SqlTaskStore, database: PostgresDatabase, server: PostgresServer, database_url: str
) -> None:
    task = await added(store)
    await store.get("local", "t")
    await store.claim_row(task.row_id, unseen=True, lease=LEASE)
    assert await store.apply(task, replace(task, attempts=1)) is None
    with pytest.raises(TooManyTasks):
        await store.insert(new_task(store, "2"), ARGUMENTS, cap=1)
    assert database._engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert {state for _, state in sessions(server, database_url)} == {"idle"}


async def test_a_connection_long_idle_is_replaced(
    server: PostgresServer, database_url: str
) -> None:
    store = open_store(database_url, pool=PoolOptions(size=2, idle=MS))
    pids = set()
    for _ in range(3):
        pids |= set(await store._db.look(lambda c: c.exec_driver_sql("SELECT pg_backend_pid()")))
        await asyncio.sleep(0.01)
    assert len(pids) == 3
    await store.aclose()


def test_a_pool_has_two_connections_at_least_and_limits_that_end() -> None:
    with pytest.raises(ValueError, match="two connections"):
        PoolOptions(size=1)
    with pytest.raises(ValueError, match="lock_timeout"):
        PoolOptions(lock_timeout=timedelta(0))


# --- what a pooler in transaction mode forbids ----------------------------------------------------


async def test_nothing_outlives_a_transaction_at_the_server(
    server: PostgresServer, database_url: str
) -> None:
    with Wire(server.folder) as wire:
        store = open_store(f"{database_url}&port={PORT}", pool=PoolOptions(size=2))
        task = await added(store)
        await store.insert(new_task(store, "2"), ARGUMENTS, cap=9)
        task = await moved(store, task, attempts=1)
        assert len(await store.claim(["orders"], limit=9, lease=LEASE)) == 2
        await store.next_due(["orders"])
        await store.versions([task.row_id])
        await store.census()

        def left_over(connection: Connection) -> list[str]:
            return [
                *connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").scalars(),
                *connection.exec_driver_sql(
                    "SELECT name FROM pg_settings WHERE source = 'session'"
                ).scalars(),
                *connection.exec_driver_sql(
                    "SELECT locktype FROM pg_locks"
                    " WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
                ).scalars(),
            ]

        for _ in range(2):
            assert await store._db.look(left_over) == []
        await store.aclose()
    texts = [text for kind, text in wire.said if kind == "Q"]
    prepared = [text for kind, text in wire.said if kind == "P"]
    assert any("pg_advisory_xact_lock" in text for text in prepared)
    assert any(text.startswith("BEGIN") for text in texts)
    # A statement of a name would lie in front of its text.
    assert all(text.startswith("\0") for text in prepared)
    for text in (*texts, *prepared):
        assert "LISTEN" not in text
        assert "pg_advisory_lock" not in text
        assert text.count("SET ") == text.count("SET LOCAL ") or text.startswith("\0UPDATE")


async def test_a_read_by_primary_key_is_one_round_trip_and_a_change_three(
    server: PostgresServer, database_url: str
) -> None:
    with Wire(server.folder) as wire:
        store = open_store(f"{database_url}&port={PORT}", pool=PoolOptions(size=2))
        task = await added(store)
        await store.get("local", "t")

        def trips() -> int:
            trips = [kind for kind, _ in wire.said if kind in "QS"]
            wire.said.clear()
            return len(trips)

        trips()
        await store.get("local", "t")
        assert trips() == 1
        await moved(store, task, attempts=1)
        assert trips() == 3  # begin, update, commit
        await store.aclose()


# --- locks ----------------------------------------------------------------------------------------


async def test_the_event_loop_and_reads_go_on_while_a_write_waits_for_a_lock(
    store: SqlTaskStore, server: PostgresServer, database_url: str
) -> None:
    task = await added(store)
    with server.session(database_url) as other, other.transaction():
        other.execute("SELECT FROM tasks FOR UPDATE")
        write = asyncio.create_task(store.apply(task, replace(task, attempts=1)))
        slowest = 0.0
        for _ in range(100):
            begun = time.perf_counter()
            assert await store.get("local", "t") == task
            slowest = max(slowest, time.perf_counter() - begun)
        assert not write.done()
        # A claim does not wait for what somebody else is at.
        assert await store.claim(["orders"], limit=1, lease=LEASE) == []
        await asyncio.sleep(0.1)  # longer than lock_timeout, so that it has to come again
    assert await write is not None
    assert slowest < 0.25


async def test_a_claim_takes_what_is_not_locked(
    store: SqlTaskStore, server: PostgresServer, database_url: str
) -> None:
    first = await added(store, "first", due_at=store.now() - SECOND)
    await added(store, "second")
    with server.session(database_url) as other, other.transaction():
        other.execute("SELECT FROM tasks WHERE row_id = %s FOR UPDATE", (first.row_id,))
        assert ids(await store.claim(["orders"], limit=1, lease=LEASE)) == ["second"]
        assert await store.claim_row(first.row_id, unseen=False, lease=LEASE) is None
    assert ids(await store.claim(["orders"], limit=1, lease=LEASE)) == ["first"]


async def test_a_lock_that_outlasts_all_patience_is_told_and_changes_nothing(
    server: PostgresServer, database_url: str
) -> None:
    pool = PoolOptions(size=2, lock_timeout=20 * MS, patience=200 * MS)
    store = open_store(database_url, pool=pool)
    task = await added(store)
    with server.session(database_url) as other, other.transaction():
        other.execute("SELECT FROM tasks FOR UPDATE")
        with pytest.raises(DatabaseUnavailable, match="somebody else keeps a table or row locked"):
            await store.apply(task, replace(task, attempts=1))
    assert await store.row(task.row_id) == task
    await store.aclose()


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(database_url: str) -> None:
    database = opened(database_url, pool=PoolOptions(size=2, statement_timeout=50 * MS))
    for run in (database.scan, database.write):
        with pytest.raises(DatabaseUnavailable, match="took too long"):
            await run(lambda c: c.exec_driver_sql("SELECT pg_sleep(9)"))
    await database.aclose()


async def test_transactions_in_each_others_way_are_run_again(
    database: PostgresDatabase, store: SqlTaskStore
) -> None:
    tasks = [await added(store, f"t{n}") for n in range(2)]
    query = "UPDATE tasks SET attempts = attempts + 1 WHERE row_id = %s"
    attempts = 0

    def both(order: int) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            nonlocal attempts
            attempts += 1
            for task in tasks[::order]:
                connection.exec_driver_sql(query, (task.row_id,))
                if attempts <= 2:
                    time.sleep(0.03)

        return work

    await asyncio.gather(database.write(both(1)), database.write(both(-1)))
    assert attempts > 2
    for task in tasks:
        row = await store.row(task.row_id)
        assert row is not None
        assert row.attempts == 2


# --- the cap --------------------------------------------------------------------------------------


async def test_the_cap_is_exact_when_replicas_insert_at_once(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        replicas = [open_store(database_url) for _ in range(3)]
        for replica in replicas:
            stack.push_async_callback(replica.aclose)
        results = await asyncio.gather(
            *(
                replicas[n % 3].insert(new_task(replicas[0], f"t{n}"), ARGUMENTS, cap=10)
                for n in range(60)
            ),
            return_exceptions=True,
        )
        assert results.count(None) == 10
        assert [type(result) for result in results].count(TooManyTasks) == 50
        assert len(await replicas[0].page("local", after=None, limit=99)) == 10


async def test_owners_do_not_wait_for_each_other(
    store: SqlTaskStore, server: PostgresServer, database_url: str
) -> None:
    with server.session(database_url) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number("owner local"),))
        await store.insert(new_task(store, owner="session:1"), ARGUMENTS, cap=1)
        waiting = asyncio.create_task(store.insert(new_task(store), ARGUMENTS, cap=1))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    await waiting


# --- the clock ------------------------------------------------------------------------------------


async def test_now_is_the_servers_clock_and_compared_with_by_the_server(
    store: SqlTaskStore, server: PostgresServer
) -> None:
    await added(store)
    before = store.now()
    ((told,),) = server.execute("SELECT clock_timestamp()")
    assert isinstance(told, datetime)
    assert before - 20 * MS < told < store.now() + 20 * MS
    begun = store.now()
    (claimed,) = await store.claim(["orders"], limit=1, lease=LEASE)
    assert claimed.lease_until is not None
    assert abs(claimed.lease_until - LEASE - begun) < SECOND
    ((at, _),) = await store.events(claimed.row_id)
    assert abs(at - begun) < SECOND


def test_an_offset_stays_until_an_answer_contradicts_it_and_then_moves_no_further_than_needed() -> (
    None
):
    clock = ServerClock()
    with pytest.raises(RuntimeError):
        clock.milliseconds()
    assert clock.stale
    clock.learn(1_000_000.0, time.monotonic())
    assert not clock.stale
    assert 0 <= clock.milliseconds() - 1_000_000 < 1000
    offset = clock._offset
    assert offset is not None
    now = time.monotonic()
    # Heard late: it says no more than that the time lies within ten seconds.
    clock.learn(now * 1000 + offset - 4_000, now - 10)
    assert clock._offset == offset
    # The server's clock was set forward, then back.
    for jumped in (9_000_000.0, 2_000_000.0):
        clock.learn(jumped, time.monotonic())
        assert 0 <= clock.milliseconds() - jumped < 1000


async def test_reads_alone_keep_the_clock_right(
    store: SqlTaskStore, database: PostgresDatabase
) -> None:
    truth = store.now()
    database._clock._offset -= 3_600_000  # type: ignore[operator]
    database._clock._heard -= 6
    await store.row("x")
    assert abs(store.now() - truth) < SECOND


# --- texts, cancellation, the end -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["NUL: \0 secret", "half a character: \ud800 secret"])
async def test_what_no_text_column_holds_is_refused_and_the_store_goes_on(
    store: SqlTaskStore, database: PostgresDatabase, text: str
) -> None:
    task = await added(store)
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: store.insert(new_task(store, text), ARGUMENTS),
        lambda: store.apply(task, replace(task, attempts=1), payload=Payload(output=text)),
        lambda: store.get("local", text),
    ]
    for attempt in attempts * 3:
        with pytest.raises(ValueError, match="no database holds that") as caught:
            await attempt()
        assert "secret" not in str(caught.value)
    assert await store.row(task.row_id) == task
    assert len(await store.page(None, after=None, limit=9)) == 1
    assert database._engine.pool.checkedout() == 0  # type: ignore[attr-defined]


async def test_errors_show_no_values(store: SqlTaskStore) -> None:
    with pytest.raises(Exception, match="ck_tasks_attempts") as caught:
        await store.insert(new_task(store, "secret-id", attempts=-1), b"secret-arguments")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "secret" not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


async def test_a_cancelled_write_is_withdrawn_or_finished_and_the_store_goes_on(
    server: PostgresServer, database_url: str
) -> None:
    store = open_store(database_url, pool=PoolOptions(size=2))
    with server.session(database_url) as other, other.transaction():
        other.execute("LOCK TABLE tasks IN SHARE MODE")
        begun = asyncio.create_task(added(store, "begun"))
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while server.execute(query) == [(0,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        queued = asyncio.create_task(added(store, "queued"))
        await asyncio.sleep(0)
        begun.cancel()
        queued.cancel()
        for write in (begun, queued):
            with pytest.raises(asyncio.CancelledError):
                await write
    await added(store, "after")
    assert await store.get("local", "begun") is not None
    assert await store.get("local", "queued") is None
    await store.aclose()


async def test_a_closed_store_refuses_work_and_leaves_no_session(
    server: PostgresServer, database_url: str
) -> None:
    store = open_store(database_url)
    writes = [asyncio.create_task(added(store, f"t{n}")) for n in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    await store.aclose()
    # What was asked before is finished.
    await asyncio.gather(*writes)
    for refused in (store.row("x"), added(store, "2")):
        with pytest.raises(RuntimeError, match="closed"):
            await refused
    while sessions(server, database_url):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    ((rows,),) = server.execute("SELECT count(*) FROM tasks", database_url)
    assert rows == 20


async def test_a_store_that_is_ready_says_so_and_one_without_tables_does_not(
    server: PostgresServer,
) -> None:
    url = server.database()
    store = open_store(url)
    await store.ready()
    # As a newer build may do, while replicas of this one still run.
    server.execute("ALTER TABLE tasks ADD COLUMN more text", url)
    server.execute("UPDATE alembic_version SET version_num = '9999'", url)
    await store.ready()
    server.execute("ALTER TABLE tasks RENAME COLUMN step TO gone", url)
    with pytest.raises(DatabaseUnusable, match="its tables are not the bridge's"):
        await store.ready()
    await store.aclose()
