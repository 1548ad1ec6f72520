"""A connection that is lost cancels nothing; a cancellation cancels."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.http.test_isolation import end, owner_of, row
from tests.http.wire import ENVELOPE, HttpWire, site
from tests.protocol.bench import Bench, bench, settle, until
from workflow_bridge.adapter import Succeeded

pytestmark = pytest.mark.anyio


async def started(b: Bench, count: int = 1) -> None:
    await until(lambda: len(b.engine.executions) == count)


async def status_is(wire: HttpWire, task_id: str, status: str) -> None:
    with anyio.fail_after(10):
        while (await wire.get(task_id))["status"] != status:
            await anyio.lowlevel.checkpoint()


def held_insert(b: Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[anyio.Event, anyio.Event]:
    """Have the next row wait to be committed; returns when it waits, and what lets it go."""
    commit, begun, go_on = b.store.insert, anyio.Event(), anyio.Event()

    async def slow(*args: Any, **kwargs: Any) -> None:
        begun.set()
        await go_on.wait()
        await commit(*args, **kwargs)

    monkeypatch.setattr(b.store, "insert", slow)
    return begun, go_on


@pytest.mark.req("A-22", "A-5")
@pytest.mark.case("T1", "S6")
async def test_a_dropped_call_runs_on_and_is_asked_for_over_another_connection() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        call = await wire.create("t")
        await started(b)
        await wire.drop(call)
        await until(lambda: made.open == 0)
        async with made.connected(handshake=False) as later:
            later.headers = dict(wire.headers)
            assert (await later.get("t"))["status"] == "working"
            await end(b, later, "t")
            assert "result" in await later.task("result", "t")
        assert not b.engine.called("stop")
        assert wire.answered(call) is None


@pytest.mark.req("A-21", "A-22", "A-39")
@pytest.mark.case("K6")
async def test_a_call_that_was_dropped_can_still_be_cancelled() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        call = await wire.create("t")
        await started(b)
        await wire.drop(call)
        await until(lambda: made.open == 0)
        await wire.notify("notifications/cancelled", {"requestId": str(call)})
        await status_is(wire, "t", "cancelled")
        await until(lambda: all(e.stop_reasons for e in b.engine.executions.values()))


@pytest.mark.req("A-22")
async def test_a_session_that_is_deleted_takes_no_task_with_it() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        await wire.create("t")
        await wire.call()
        await started(b, 2)
        assert (await wire.client.delete(wire.url, headers=wire.headers)).status_code == 200
        await until(lambda: made.open == 0)
        await settle()
        rows, _ = await b.service.page(owner_of(wire), None)
        assert len(rows) == 2
        assert not any(task.final or task.stop_requested_at for task in rows)
        assert not b.engine.called("stop")


@pytest.mark.req("A-22", "P-3")
async def test_a_modern_answer_that_is_closed_leaves_the_task_running() -> None:
    async with bench() as b, site(b) as made, made.connected(handshake=False) as wire:
        call = await wire.call(meta=ENVELOPE, request_id=1)
        await started(b)
        await wire.drop(call)
        await until(lambda: made.open == 0)
        await settle()
        (task,) = (await b.service.page("local", None))[0]
        assert (task.final, task.stop_requested_at) == (False, None)
        await b.finish(task.task_id)


async def test_the_modern_protocol_has_no_cancellation_by_number() -> None:
    async with bench() as b, site(b) as made, made.connected(handshake=False) as wire:
        call = await wire.call(meta=ENVELOPE)
        await started(b)
        await wire.notify("notifications/cancelled", {"requestId": call, "_meta": ENVELOPE})
        await until(lambda: wire.statuses == [202])
        await settle()
        assert not b.engine.called("stop")


@pytest.mark.req("A-22", "A-37")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_dropped_while_its_task_is_made_leaves_it_whole(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench() as b, site(b) as made, made.connected(handshake=not modern) as wire:
        begun, go_on = held_insert(b, monkeypatch)
        call = await wire.call(task="t", meta=ENVELOPE if modern else None)
        await begun.wait()
        await wire.drop(call)
        await (settle() if modern else until(lambda: made.open == 0))
        go_on.set()
        await started(b)
        await until(lambda: made.open == 0)
        owner = "local" if modern else owner_of(wire)
        (task,) = (await b.service.page(owner, None))[0]
        assert task.stop_requested_at is None
        if not modern:
            assert (await wire.get("t"))["status"] == "working"
            assert not wire.created("t")


@pytest.mark.req("A-21", "A-39")
async def test_a_call_dropped_and_cancelled_while_its_task_is_made_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        begun, go_on = held_insert(b, monkeypatch)
        call = await wire.call(task="t")
        await begun.wait()
        await wire.drop(call)
        await wire.notify("notifications/cancelled", {"requestId": call})
        await settle()
        go_on.set()
        with anyio.fail_after(10):
            while (task := await row(b, wire, "t")) is None or task.status != "cancelled":
                await anyio.lowlevel.checkpoint()
        await until(lambda: all(e.stop_reasons for e in b.engine.executions.values()))


async def test_the_sessions_own_stream_comes_and_goes() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        for _ in range(3):
            await wire.open_stream()
            assert made.open == 1
            await wire.drop("GET")
            await until(lambda: made.open == 0)
        assert wire.statuses[-3:] == [200, 200, 200]
        await wire.create("t")


async def test_an_answer_goes_to_the_request_that_asked_for_it() -> None:
    """One in each of many requests of a session at once."""
    done = {"run": lambda arguments: Succeeded(arguments, None)}
    async with bench(behaviours=done) as b, site(b) as made, made.connected() as wire:
        calls = {n: await wire.call(arguments={"n": n}, task=f"t{n}") for n in range(40)}
        for n, call in calls.items():
            result = (await wire.answer(call))["result"]
            assert result["structuredContent"] == {"n": n}
