"""PostgreSQL that goes away: restarts, broken connections, lost answers, silence."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.store.postgres_server import PostgresServer
from tests.store.wire import PORT, Loss, Wire
from workflow_bridge.core.task import Task
from workflow_bridge.store import DatabaseUnavailable, PoolOptions, open_store
from workflow_bridge.store.postgres_errors import Kind, Trouble
from workflow_bridge.store.sql import SqlTaskStore
from workflow_bridge.testing.store_contract import ARGUMENTS, LEASE, MS, SECOND, added, new_task

pytestmark = pytest.mark.anyio


@pytest.fixture
def wire(server: PostgresServer) -> Iterator[Wire]:
    with Wire(server.folder) as wire:
        yield wire


@pytest.fixture
async def store(wire: Wire, database_url: str) -> AsyncIterator[SqlTaskStore]:
    pool = PoolOptions(size=4, patience=5 * SECOND)
    store = open_store(f"{database_url}&port={PORT}", pool=pool)
    yield store
    await store.aclose()


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_a_restart_of_the_server_is_waited_out_and_loses_nothing(
    server: PostgresServer, database_url: str, how: str
) -> None:
    store = open_store(database_url)
    counter = await added(store, "counter")
    restarted = asyncio.Event()
    done = 0

    async def create(name: str) -> int:
        number = 0
        while not restarted.is_set() or number < 5:
            await store.insert(new_task(store, f"{name}{number}"), ARGUMENTS, cap=100_000)
            assert await store.get("local", f"{name}{number}") is not None
            number += 1
        return number

    async def count() -> None:
        nonlocal counter, done
        while not restarted.is_set() or done < 5:
            after = await store.apply(counter, replace(counter, attempts=counter.attempts + 1))
            # Nobody else counts: had an attempt been repeated blindly, it would meet itself.
            assert after is not None
            counter, done = after, done + 1

    async def restart() -> None:
        await asyncio.sleep(0.2)
        await asyncio.to_thread(server.restart, how)
        restarted.set()

    created, other, _, _ = await asyncio.gather(create("a"), create("b"), count(), restart())
    assert len(await store.page(None, after=None, limit=99_999)) == created + other + 1
    assert counter.attempts == done
    ((events,),) = server.execute(
        "SELECT count(*) FROM task_events WHERE kind = 'created'", database_url
    )
    assert events == created + other + 1
    await store.aclose()


async def test_sessions_ended_while_idle_are_replaced_unnoticed(
    store: SqlTaskStore, server: PostgresServer
) -> None:
    task = await added(store)
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"
    for attempt in range(1, 4):
        await asyncio.gather(*(store.row(task.row_id) for _ in range(20)))
        server.execute(end.format("workflow-bridge"))
        begun = time.perf_counter()
        assert await store.get("local", "t") == task
        server.execute(end.format("workflow-bridge"))
        after = await store.apply(task, replace(task, attempts=attempt))
        assert after is not None
        assert time.perf_counter() - begun < 1
        task = after


Change = Callable[[SqlTaskStore, Task], Awaitable[object]]
CHANGES: dict[str, Change] = {
    "insert": lambda store, task: store.insert(new_task(store, "new"), ARGUMENTS, cap=2),
    "apply": lambda store, task: store.apply(task, replace(task, attempts=1, step="Charge")),
    "remove": lambda store, task: store.remove(task),
    "claim": lambda store, task: store.claim(["orders"], limit=1, lease=LEASE),
    "claim_row": lambda store, task: store.claim_row(task.row_id, unseen=False, lease=LEASE),
}


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_whose_commit_was_cut_off_is_made_exactly_once(
    store: SqlTaskStore,
    wire: Wire,
    server: PostgresServer,
    database_url: str,
    name: str,
    loss: Loss,
) -> None:
    task = await added(store)
    wire.loss = loss
    result = await CHANGES[name](store, task)
    assert wire.loss is None
    row = await store.row(task.row_id)
    match name:
        case "insert":
            assert row == task
            new = await store.get("local", "new")
            assert new is not None
            assert [event.kind for _, event in await store.events(new.row_id)] == ["created"]
        case "apply":
            assert row == result == replace(task, attempts=1, step="Charge", version=2)
        case "remove":
            assert result is True
            assert row is None
        case "claim":
            assert row is not None
            assert result == [row]
            assert row.version == 2
        case _:
            assert row is not None
            assert result == row
            assert row.version == 2
    asked = [text for _, text in wire.said if "pg_xact_status" in text]
    assert len(asked) == 1


async def test_a_commit_that_the_server_is_still_at_is_waited_for(
    store: SqlTaskStore, wire: Wire, server: PostgresServer
) -> None:
    task = await added(store)

    def wait_for(standby: str) -> None:
        server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
        server.execute("SELECT pg_reload_conf()")

    wait_for("nobody")
    try:
        await asyncio.sleep(0.2)
        wire.loss = Loss.PATIENCE
        change = asyncio.create_task(store.apply(task, replace(task, attempts=1)))
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        while server.execute(query) == [(0,)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert not change.done()
    finally:
        wait_for("")
    assert await change == replace(task, attempts=1, version=2)
    assert len([text for _, text in wire.said if "pg_xact_status" in text]) > 1


async def test_a_commit_of_which_nothing_can_be_learned_is_told_as_such(
    wire: Wire, database_url: str
) -> None:
    pool = PoolOptions(size=2, patience=300 * MS)
    store = open_store(f"{database_url}&port={PORT}", pool=pool)
    task = await added(store)
    wire.loss = Loss.ANSWER
    change = asyncio.create_task(store.apply(task, replace(task, attempts=1)))
    while wire.loss is not None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    wire.unplug()
    with pytest.raises(DatabaseUnavailable, match="may have been written"):
        await change
    wire.plug_in()
    row = await store.row(task.row_id)
    assert row in (task, replace(task, attempts=1, version=2))
    await store.aclose()


async def test_a_server_that_stays_away_is_told_in_time_and_found_again(
    wire: Wire, server: PostgresServer, database_url: str
) -> None:
    pool = PoolOptions(size=2, patience=300 * MS)
    store = open_store(f"{database_url}&port={PORT}", pool=pool)
    task = await added(store)
    wire.unplug()
    begun = time.perf_counter()
    results = await asyncio.gather(
        *(store.get("local", "t") for _ in range(30)),
        *(store.apply(task, replace(task, attempts=n + 1)) for n in range(30)),
        return_exceptions=True,
    )
    # All together, not one patience after the other.
    assert time.perf_counter() - begun < 3
    assert {type(result) for result in results} == {DatabaseUnavailable}
    assert str(server.folder) in str(results[0])
    assert f":{PORT}" in str(results[0])
    wire.plug_in()
    assert await store.get("local", "t") == task
    assert await store.apply(task, replace(task, attempts=1)) is not None
    await store.aclose()


async def test_silence_is_told_in_time_and_costs_no_thread(wire: Wire, database_url: str) -> None:
    pool = PoolOptions(size=2, patience=200 * MS, statement_timeout=200 * MS)
    store = open_store(f"{database_url}&port={PORT}", pool=pool)
    task = await added(store)
    await store.row(task.row_id)
    wire.freeze()
    begun = time.perf_counter()
    results = await asyncio.gather(
        *(store.get("local", "t") for _ in range(9)),
        *(store.apply(task, replace(task, attempts=n + 1)) for n in range(9)),
        return_exceptions=True,
    )
    assert {type(result) for result in results} == {DatabaseUnavailable}
    assert time.perf_counter() - begun < 2
    wire.thaw()
    assert await store.get("local", "t") is not None
    fresh = await added(store, "2")
    assert await store.row(fresh.row_id) == fresh
    await store.aclose()


async def test_a_store_is_closed_in_time_although_the_server_is_silent(
    wire: Wire, database_url: str
) -> None:
    pool = PoolOptions(size=2, patience=60 * SECOND, statement_timeout=200 * MS)
    store = open_store(f"{database_url}&port={PORT}", pool=pool)
    await added(store)
    wire.freeze()
    call = asyncio.create_task(added(store, "2"))
    await asyncio.sleep(0.05)
    begun = time.perf_counter()
    await store.aclose()
    assert time.perf_counter() - begun < 2
    with pytest.raises(DatabaseUnavailable):
        await call


def test_every_error_of_the_server_has_a_meaning() -> None:
    kinds: dict[str, Any] = {
        kind.sqlstate: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, psycopg.Error) and kind.sqlstate
    }
    assert len(kinds) > 200
    # Warnings, and what only programs in the server run into.
    inside = {"00", "01", "02", "03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21"}
    inside |= {
        "24",
        "26",
        "27",
        "2B",
        "2D",
        "2F",
        "34",
        "38",
        "39",
        "3B",
        "44",
        "72",
        "F0",
        "HV",
        "P0",
    }
    for state, kind in kinds.items():
        judged = Trouble(kind()).kind
        if state[:2] in inside or state == "25P02":
            continue
        assert judged is not Kind.OURS, state
    passing = {"40001", "40P01", "55P03"}
    assert {Trouble(kinds[state]()).kind for state in passing} == {Kind.CONFLICT}
    lost = {"08006", "08P01", "57P01", "57P02", "57P03", "57P05", "25006", "53300"}
    assert {Trouble(kinds[state]()).kind for state in lost} == {Kind.LOST}


async def test_what_is_no_fault_of_the_database_is_left_as_it_is(store: SqlTaskStore) -> None:
    def work(_: object) -> None:
        raise KeyError("ours")

    for run in (store._db.look, store._db.scan, store._db.write):
        with pytest.raises(KeyError):
            await run(work)
    with contextlib.suppress(KeyError):
        await store._db.write(work)
    await added(store)
