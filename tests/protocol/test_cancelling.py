"""Cancelled on purpose, or merely cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest

from tests.protocol.bench import RELATED, Bench, Wire, bench, settle, until
from workflow_bridge.adapter import Running, Succeeded

pytestmark = pytest.mark.anyio


async def cancelled(wire: Wire, request_id: Any) -> None:
    await wire.notify("notifications/cancelled", {"requestId": request_id, "reason": "changed"})


async def stopped(b: Bench, task_id: str) -> None:
    ref = await b.ref(task_id)
    await until(lambda: b.engine.executions[ref].stop_reasons)


async def status_is(b: Bench, task_id: str, status: str) -> None:
    with anyio.fail_after(10):
        while (await b.task(task_id)).status != status:
            await anyio.lowlevel.checkpoint()


async def quiet(wire: Wire, request_id: Any) -> None:
    """The request was not answered, and the server is alive."""
    await settle()
    assert (await wire.ask("ping"))["result"] == {}
    assert wire.answered(request_id) is None


@pytest.mark.req("A-21", "A-5", "A-39")
@pytest.mark.case("K6")
@pytest.mark.parametrize(("sent", "named"), [(7, 7), (7, "7"), ("7", 7), ("call-1", "call-1")])
async def test_a_cancelled_request_cancels_its_task_and_stops_the_execution(
    sent: Any, named: Any
) -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.call(task="t", request_id=sent)
        await b.ref("t")
        await cancelled(wire, named)
        await status_is(b, "t", "cancelled")
        await stopped(b, "t")
        await quiet(wire, call)
        assert (await wire.get("t"))["status"] == "cancelled"


@pytest.mark.req("A-21", "A-39")
async def test_a_cancellation_while_the_task_is_being_made_cancels_it_once_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b, b.connected() as wire:
        commit = b.store.insert
        begun, go_on = anyio.Event(), anyio.Event()

        async def slow(*args: Any, **kwargs: Any) -> None:
            begun.set()
            await go_on.wait()
            await commit(*args, **kwargs)

        monkeypatch.setattr(b.store, "insert", slow)
        call = await wire.call(task="t")
        await begun.wait()
        await cancelled(wire, call)
        await settle()
        assert await b.row("t") is None
        go_on.set()
        with anyio.fail_after(10):
            while await b.row("t") is None:
                await anyio.lowlevel.checkpoint()
        await status_is(b, "t", "cancelled")
        await quiet(wire, call)

        def all_stopped() -> bool:
            # A start that is under way is stopped a second after it came to light.
            b.clock.advance(timedelta(seconds=1))
            b.service._worker.kick()
            return all(e.stop_reasons for e in b.engine.executions.values())

        await until(all_stopped)


@pytest.mark.req("A-22")
async def test_a_connection_lost_while_the_task_is_being_made_leaves_it_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as b:
        commit = b.store.insert
        begun, go_on = anyio.Event(), anyio.Event()

        async def slow(*args: Any, **kwargs: Any) -> None:
            begun.set()
            await go_on.wait()
            await commit(*args, **kwargs)

        monkeypatch.setattr(b.store, "insert", slow)
        async with b.connected() as wire:
            await wire.call(task="t")
            await begun.wait()
            await wire.send_stream.aclose()
            await settle()
            go_on.set()
        await b.ref("t")
        assert (await b.task("t")).status == "working"


@pytest.mark.req("A-21", "A-22")
async def test_a_client_that_cancels_and_hangs_up_at_once_has_cancelled() -> None:
    async with bench() as b:
        async with b.connected() as wire:
            call = await wire.call(task="t")
            await b.ref("t")
            await cancelled(wire, call)
            await wire.send_stream.aclose()
        await status_is(b, "t", "cancelled")
        await stopped(b, "t")


@pytest.mark.req("A-22")
@pytest.mark.case("T1", "S6")
async def test_a_lost_connection_cancels_nothing_and_the_result_is_there_later() -> None:
    async with bench() as b:
        async with b.connected() as wire:
            await wire.call(task="t")
            await b.ref("t")
        await settle()
        assert (await b.task("t")).stop_requested_at is None
        await b.finish("t")
        async with b.connected() as later:
            assert "result" in await later.task("result", "t")
        assert not b.engine.called("stop")


@pytest.mark.req("A-21", "A-7")
@pytest.mark.case("K4", "D2")
async def test_a_cancellation_that_comes_too_late_changes_nothing() -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.create("t")
        await b.finish("t")
        await wire.answer(call)
        await cancelled(wire, call)
        await settle()
        assert (await wire.get("t"))["status"] == "completed"
        assert not b.engine.called("stop")


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": 999}, {"requestId": True}, {"x": 1}]
)
async def test_a_cancellation_of_nothing_is_ignored(params: Any) -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.create("t")
        await wire.notify("notifications/cancelled", params)
        await quiet(wire, call)
        assert (await wire.get("t"))["status"] == "working"


async def test_a_call_that_was_refused_and_is_cancelled_leaves_nothing() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        call = await wire.call(task="t")
        assert "error" in await wire.answer(call)
        await cancelled(wire, call)
        await settle()
        assert (await wire.get("t"))["status"] == "working"


@pytest.mark.req("A-21", "A-17")
async def test_tasks_cancel_answers_the_cancelled_task_and_ends_the_original_request() -> None:
    async with bench() as b, b.connected() as wire, b.connected() as other:
        call = await wire.create("t")
        await b.ref("t")
        shown = (await other.task("cancel", "t"))["result"]
        assert shown["status"] == "cancelled"
        assert shown["_meta"][RELATED] == {"taskId": "t"}
        assert {"taskId", "keepAlive", "pollFrequency"} <= shown.keys()
        await stopped(b, "t")
        result = (await wire.answer(call))["result"]
        assert result["isError"] is True
        assert "cancelled" in result["content"][0]["text"]
        message = "Cannot cancel task: Task status is 'cancelled'"
        assert (await other.task("cancel", "t"))["error"] == {"code": -32602, "message": message}


@pytest.mark.req("A-7", "A-21")
@pytest.mark.case("T2", "F10")
async def test_an_execution_found_to_have_succeeded_is_not_cancelled() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        ref = await b.ref("t")
        # Or the look would be the end of the start's own step.
        await until(lambda: not b.service._worker._active)
        b.engine.finish(ref, Succeeded({"n": 1}, None))
        message = "Cannot cancel task: Task status is 'completed'"
        assert (await wire.task("cancel", "t"))["error"] == {"code": -32602, "message": message}
        result = (await wire.task("result", "t"))["result"]
        assert result["structuredContent"] == {"n": 1}


@pytest.mark.case("T2")
async def test_a_cancelled_task_says_how_its_execution_really_ended() -> None:
    async with bench() as b, b.connected() as wire:
        b.engine.stop_works = False
        await wire.create("t")
        ref = await b.ref("t")
        await wire.task("cancel", "t")
        await stopped(b, "t")
        b.engine.finish(ref, Succeeded({"n": 1}, None))
        with anyio.fail_after(10):
            while (await b.task("t")).outcome is None:
                b.clock.seconds += 10
                b.service._worker.kick()
                await settle()
        shown = await wire.get("t")
        assert shown["status"] == "cancelled"
        told = shown["_meta"]["workflow-bridge/statusMessage"]
        assert told == "cancelled; the execution had succeeded before it could be stopped"


async def test_an_inline_run_cannot_be_stopped_and_says_so() -> None:
    async with held_inline() as (b, wire, call, release):
        error = (await wire.task("cancel", "t"))["error"]
        assert error["code"] == -32602
        assert "inline" in error["message"]
        await cancelled(wire, call)
        await settle()
        assert (await wire.get("t"))["status"] == "submitted"
        release()
        await status_is(b, "t", "completed")
        assert (await wire.task("result", "t"))["result"]["structuredContent"] == {"result": 1}


@asynccontextmanager
async def held_inline() -> AsyncIterator[tuple[Bench, Wire, Any, Callable[[], None]]]:
    """An inline run under way, until it is released."""
    gate = anyio.Event()

    async def pause(method: str) -> None:
        if method == "run":
            await gate.wait()

    done = {"inline": lambda _: Succeeded(1, None)}
    async with bench(pause=pause, behaviours=done) as b, b.connected() as wire:
        call = await wire.create("t", "inline")
        await until(lambda: b.inline.called("run"))
        yield b, wire, call, gate.set


@pytest.mark.req("P-3")
@pytest.mark.case("K6")
async def test_a_cancelled_plain_call_stops_its_execution() -> None:
    async with bench() as b, b.connected() as wire:
        b.engine.stop_works = False
        call = await wire.call()
        await until(lambda: b.engine.executions)
        (execution,) = b.engine.executions.values()
        await cancelled(wire, call)
        await until(lambda: execution.stop_reasons)
        await quiet(wire, call)
        (task,) = (await wire.ask("tasks/list"))["result"]["tasks"]
        assert task["status"] == "working", "a plain client's task follows the engine"


@pytest.mark.req("P-3")
async def test_a_plain_call_cut_off_runs_on_and_is_found_in_the_list() -> None:
    async with bench() as b:
        async with b.connected() as wire:
            await wire.call()
            await until(lambda: b.engine.executions)
        (execution,) = b.engine.executions.values()
        async with b.connected() as later:
            (task,) = (await later.ask("tasks/list"))["result"]["tasks"]
            await b.finish(task["taskId"])
            assert "result" in await later.task("result", task["taskId"])
        assert not execution.stop_reasons
        assert not isinstance(execution.execution, Running)
