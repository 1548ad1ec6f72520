"""Without sessions: each request by itself, as a replica meets it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.http.wire import ENVELOPE, HttpWire, site
from tests.protocol.bench import RELATED, Bench, bench, settle, until
from workflow_bridge.protocol.facade_tools import TOOLS as FACADE

pytestmark = pytest.mark.anyio


def stateless(b: Bench, **options: Any) -> Any:
    return site(b, stateless=True, isolation="none", **options)


async def status_is(b: Bench, task_id: str, status: str) -> None:
    with anyio.fail_after(10):
        while (await b.task(task_id)).status != status:
            await anyio.lowlevel.checkpoint()


async def cancelled(wire: HttpWire, request_id: Any, task_id: str | None = None) -> None:
    params: dict[str, Any] = {"requestId": request_id}
    if task_id is not None:
        params["_meta"] = {RELATED: {"taskId": task_id}}
    await wire.notify("notifications/cancelled", params)


@pytest.mark.req("A-1", "A-4", "A-5", "A-30")
@pytest.mark.case("S3")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_no_session_is_opened_and_tasks_are_made_all_the_same(version: str) -> None:
    async with bench() as b, stateless(b) as made, made.connected(handshake=False) as wire:
        hello = (await wire.shake_hands(version))["result"]
        assert hello["protocolVersion"] == version
        assert "tasks" in hello["capabilities"]
        assert "mcp-session-id" not in wire.headers
        call = await wire.create("t")
        async with made.connected(version) as another:
            assert (await another.get("t"))["taskId"] == "t"
        await b.finish("t")
        answer = await wire.answer(call)
        assert answer["result"]["structuredContent"] == {"done": True}
        (note,) = wire.notifications("notifications/tasks/created")
        assert wire.received.index(note) < wire.received.index(answer)


async def test_nothing_has_to_have_been_said_before() -> None:
    """The handshake may have been with another replica."""
    async with bench() as b, stateless(b) as made, made.connected(handshake=False) as wire:
        wire.headers["mcp-protocol-version"] = "2025-11-25"
        await wire.create("t")
        assert (await wire.get("t"))["taskId"] == "t"


async def test_there_is_no_session_to_listen_to_or_to_end() -> None:
    async with bench() as b, stateless(b) as made, made.connected() as wire:
        for method in ("GET", "DELETE"):
            answer = await wire.client.request(method, wire.url, headers=wire.headers)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert (await wire.ask("ping"))["result"] == {}


@pytest.mark.req("A-23")
async def test_a_session_that_a_client_brings_is_none() -> None:
    async with (
        bench() as b,
        stateless(b, max_session_streams=1) as made,
        made.connected() as wire,
        made.connected() as another,
    ):
        for each in (wire, another):
            each.headers["mcp-session-id"] = "0" * 32
            await each.call(task=f"t{id(each)}", request_id=7)
        await until(lambda: len(b.engine.executions) == 2)
        await cancelled(wire, 7)
        await settle()
        assert not b.engine.called("stop")
        assert (await b.service.page("local", None))[0]


@pytest.mark.req("A-21", "A-39", "A-17")
async def test_a_cancellation_counts_for_the_task_that_it_names() -> None:
    """Numbers of requests are alike in all clients: here both are 7, and one is elsewhere."""
    async with (
        bench() as b,
        stateless(b) as made,
        made.connected() as wire,
        made.connected() as another,
    ):
        await wire.call(task="mine", request_id=7)
        await another.call(task="theirs", request_id=7)
        await b.ref("mine")
        await b.ref("theirs")
        await cancelled(wire, 7)
        await settle()
        assert not b.engine.called("stop")
        # As if to another replica: that one knows nothing of the call.
        await cancelled(another, 99, "mine")
        await status_is(b, "mine", "cancelled")
        assert (await b.task("theirs")).status == "working"
        result = (await wire.answer(7))["result"]
        assert result["isError"] is True
        for nobodys in ("unknown", "", "x" * 2000):
            await cancelled(wire, 7, nobodys)
        assert (await wire.ask("ping"))["result"] == {}


@pytest.mark.req("A-22", "P-3")
@pytest.mark.parametrize("task", [None, "t"])
async def test_a_dropped_call_runs_on(task: str | None) -> None:
    async with bench() as b, stateless(b) as made, made.connected() as wire:
        call = await wire.call(task=task)
        (row,) = await b.made()
        await b.ref(row.task_id)
        await wire.drop(call)
        await until(lambda: made.open == 0)
        await settle()
        assert (await b.task(row.task_id)).stop_requested_at is None
        async with made.connected() as later:
            await b.finish(row.task_id)
            called = await later.call("task_result", {"task_id": row.task_id})
            result = (await later.answer(called))["result"]
            assert result["structuredContent"] == {"done": True}


@pytest.mark.req("P-2")
async def test_one_client_that_has_tasks_hides_no_tools_from_the_others() -> None:
    async with bench() as b, stateless(b) as made, made.connected() as wire:
        await wire.create("t")
        async with made.connected() as another:
            tools = (await another.ask("tools/list"))["result"]["tools"]
            assert {tool["name"] for tool in tools} >= FACADE.keys()


async def test_calls_of_one_number_at_a_time_keep_apart() -> None:
    """Each is answered with its own, whichever protocol it speaks."""
    async with (
        bench() as b,
        stateless(b) as made,
        made.connected() as one,
        made.connected(handshake=False) as modern,
    ):
        await one.call("run", {"n": 1}, task="t", request_id=1)
        await modern.call("run", {"n": 2}, meta=ENVELOPE, request_id=1)
        for row in await b.made(2):
            await b.finish(row.task_id)
        assert (await one.answer(1))["result"]["_meta"] == {RELATED: {"taskId": "t"}}
        assert (await modern.answer(1))["result"]["structuredContent"] == {"done": True}
