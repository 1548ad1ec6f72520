"""Creating tasks in dialect A, over the whole server."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest

from tests.protocol.bench import RELATED, TASK, TOOLS, bench, settle, until
from tests.protocol.test_metadata import ODD_IDS, WRONG_IDS, WRONG_KEEP_ALIVES, WRONG_METADATA
from workflow_bridge.adapter import Aborted, Failed, Queued, Rejected, Running, TimedOut
from workflow_bridge.core.task import new_row_id

pytestmark = pytest.mark.anyio


@pytest.mark.req("A-1", "A-4", "A-5", "A-17")
@pytest.mark.case("D1")
async def test_a_call_with_metadata_becomes_a_task_bound_to_one_execution() -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.create("client-abc-123", arguments={"a": {"b": [1, None]}})
        await b.finish("client-abc-123")
        answer = await wire.answer(call)
        assert answer["result"]["structuredContent"] == {"done": True}
        assert answer["result"]["_meta"] == {RELATED: {"taskId": "client-abc-123"}}
        (start,) = b.engine.called("start")
        row = await b.task("client-abc-123")
        assert start.key == row.key
        (note,) = wire.notifications("notifications/tasks/created")
        assert note["params"] == {"_meta": {RELATED: {"taskId": "client-abc-123"}}}
        assert wire.received.index(note) < wire.received.index(answer)


@pytest.mark.req("A-26")
async def test_the_id_leads_to_the_execution_for_as_long_as_the_task_is_kept() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("client-abc-123")
        ref = await b.ref("client-abc-123")
        await b.finish("client-abc-123")
        b.clock.advance(timedelta(hours=23))
        assert (await b.task("client-abc-123")).ref == ref
        assert (await wire.get("client-abc-123"))["status"] == "completed"


@pytest.mark.req("A-4", "A-6")
async def test_the_task_is_announced_as_submitted_before_the_engine_is_called() -> None:
    seen: list[tuple[Any, bool]] = []

    async def look(method: str) -> None:
        if method == "start":
            seen.append((await b.task("t"), "notifications/tasks/created" in wire.sent))

    async with bench(pause=look) as b, b.connected() as wire:
        await wire.create("t")
        await b.ref("t")
        ((row, announced),) = seen
        assert row.status == "submitted"
        assert announced


@pytest.mark.req("A-6", "A-7")
@pytest.mark.case("T8")
async def test_a_task_is_submitted_until_its_execution_runs_and_never_again() -> None:
    async with bench(behaviours={"run": lambda _: Queued()}) as b, b.connected() as wire:
        await wire.create("t")
        ref = await b.ref("t")
        statuses = []
        for execution in (Queued(), Running(), Queued()):
            b.engine.become(ref, execution)
            b.clock.advance(timedelta(seconds=10))
            changed = b.store.now()
            while (seen := (await b.task("t")).last_observed_at) is None or seen < changed:
                await wire.get("t")
            statuses.append((await wire.get("t"))["status"])
        assert statuses == ["submitted", "working", "working"]


@pytest.mark.req("A-36")
@pytest.mark.parametrize(
    "metadata",
    [
        *WRONG_METADATA,
        {},
        *({"taskId": wrong} for wrong in WRONG_IDS),
        *({"taskId": "t", "keepAlive": wrong} for wrong in WRONG_KEEP_ALIVES),
    ],
)
async def test_wrong_metadata_is_refused_before_anything_is_written(metadata: Any) -> None:
    async with bench() as b, b.connected() as wire:
        meta = {TASK: metadata}
        answer = await wire.answer(await wire.call(meta=meta))
        assert answer["error"]["code"] == -32602
        await nothing_happened(b, wire)


@pytest.mark.req("A-36", "A-13")
@pytest.mark.case("F3")
@pytest.mark.parametrize("database", [None, "sqlite://"])
@pytest.mark.parametrize("task_id", ODD_IDS)
async def test_an_odd_but_legal_id_works_from_end_to_end(
    task_id: str, database: str | None
) -> None:
    async with bench(database=database) as b, b.connected() as wire:
        call = await wire.create(task_id)
        assert (await wire.get(task_id))["taskId"] == task_id
        await b.finish(task_id)
        assert (await wire.answer(call))["result"]["_meta"][RELATED]["taskId"] == task_id
        assert "result" in await wire.task("result", task_id)
        listed = (await wire.ask("tasks/list"))["result"]["tasks"]
        assert [task["taskId"] for task in listed] == [task_id]
        gone = await wire.task("delete", task_id)
        assert gone["result"] == {"_meta": {RELATED: {"taskId": task_id}}}
        assert (await wire.task("get", task_id))["error"]["code"] == -32602


@pytest.mark.req("A-13", "A-20", "A-36")
@pytest.mark.parametrize(
    ("asked", "granted_ms"),
    [
        ({}, 86_400_000),
        ({"keepAlive": None}, 86_400_000),
        ({"keepAlive": 0}, 60_000),
        ({"keepAlive": 1.5}, 60_000),
        ({"keepAlive": 90_000.9}, 90_000),
        ({"keepAlive": 1e300}, 30 * 86_400_000),
        ({"keepAlive": float("inf")}, 30 * 86_400_000),
    ],
)
async def test_keep_alive_is_granted_within_bounds_and_told(asked: Any, granted_ms: int) -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.call(task={"taskId": "t"} | asked)
        await until(lambda: wire.created("t") or wire.answered(call))
        assert (await wire.get("t"))["keepAlive"] == granted_ms


@pytest.mark.req("A-13", "A-20")
async def test_what_is_kept_for_ever_says_null() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        forever = replace(await b.task("t"), row_id=new_row_id(), task_id="f", keep_alive=None)
        await b.store.insert(forever, b"{}")
        shown = await wire.get("f")
        assert "keepAlive" in shown
        assert shown["keepAlive"] is None


@pytest.mark.req("A-3")
@pytest.mark.case("T6", "D10")
async def test_an_id_used_before_is_refused_and_starts_nothing() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t", arguments={"n": 1})
        await b.ref("t")
        for arguments in ({"n": 1}, {"n": 2}):
            again = await wire.answer(await wire.call(arguments=arguments, task="t"))
            assert again["error"] == {"code": -32602, "message": "Task ID already exists: t"}
        assert len(b.engine.called("start")) == 1
        assert len(wire.notifications("notifications/tasks/created")) == 1


@pytest.mark.req("A-3")
async def test_an_id_stays_taken_after_deletion_for_a_while() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.finish("t")
        await wire.task("delete", "t")
        assert "error" in await wire.answer(await wire.call(task="t"))
        assert len(b.engine.called("start")) == 1


@pytest.mark.req("A-2")
async def test_a_tool_that_is_never_a_task_ignores_the_metadata() -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.call("never", task={"taskId": 7})
        (row,) = await b.made()
        ref = await b.ref(row.task_id)
        await b.finish(row.task_id)
        assert b.engine.executions[ref].key == row.key
        result = (await wire.answer(call))["result"]
        assert "_meta" not in result
        assert not wire.notifications("notifications/tasks/created")


@pytest.mark.req("A-2", "A-38")
async def test_whether_a_tool_may_be_a_task_may_change_while_the_server_runs() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t1")
        b.tools["run"] = TOOLS["never"]
        await wire.call("run", task="t2")
        await until(lambda: len(b.engine.executions) == 2)
        assert not wire.created("t2")
        assert await b.row("t2") is None


@pytest.mark.req("A-2")
async def test_requests_that_are_never_tasks_ignore_the_metadata() -> None:
    async with bench() as b, b.connected() as wire:
        meta = {"_meta": {TASK: {"taskId": "t"}}}
        assert (await wire.ask("tools/list", meta))["result"]["tools"]
        assert (await wire.ask("ping", meta))["result"] == {}
        await nothing_happened(b, wire)


@pytest.mark.case("R13", "F6")
async def test_arguments_reach_the_workflow_exactly_as_sent() -> None:
    sent = {"order_id": "1", "z": None, "é🦊": {"deep": [[{"x": 1.5}], "", 0, False]}, "n": 10**20}
    async with bench() as b, b.connected() as wire:
        await wire.create("t", "order", sent)
        ref = await b.ref("t")
        assert json.loads(b.engine.executions[ref].payload) == sent


@pytest.mark.case("F6")
@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("order", {}, "$: lacks 'order_id'"),
        ("order", {"order_id": 7}, "$.order_id: must be of type string"),
        ("order", [], None),
        ("order", "text", None),
        ("run", {"x": "é" * 140_000}, "262144"),
        ("run", {"x": float("nan")}, "NaN"),
        ("nobody", {}, "Unknown tool: nobody"),
        ("", {}, "Unknown tool"),
    ],
)
async def test_a_call_that_cannot_be_made_starts_nothing(
    tool: str, arguments: Any, told: str | None
) -> None:
    async with bench() as b, b.connected() as wire:
        error = (await wire.answer(await wire.call(tool, arguments, task="t")))["error"]
        assert error["code"] == -32602
        assert told is None or told in error["message"]
        assert len(error["message"]) < 1000
        await nothing_happened(b, wire)


async def test_arguments_nested_too_deeply_are_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    async with bench() as b, b.connected() as wire:
        await wire.create("fits", arguments=deep)
        error = (await wire.answer(await wire.call(arguments={"a": deep}, task="t")))["error"]
        assert error["code"] == -32602
        assert await b.row("t") is None


async def test_both_dialects_on_one_request_are_refused() -> None:
    async with bench() as b, b.connected("2025-11-25") as wire:
        params = {"name": "run", "task": {}, "_meta": {TASK: {"taskId": "t"}}}
        assert (await wire.ask("tools/call", params))["error"]["code"] == -32602
        await nothing_happened(b, wire)


@pytest.mark.req("A-5", "A-10")
@pytest.mark.case("R3")
@pytest.mark.parametrize(
    ("tool", "outcome", "status", "text"),
    [
        ("run", Failed("Boom", "it broke", None), "failed", "Boom: it broke"),
        ("run", TimedOut("States.Timeout", None, None), "failed", "States.Timeout"),
        ("run", Aborted(None, None, None), "cancelled", "cancelled"),
        ("lenient", Failed("Boom", "it broke", None), "completed", "Boom: it broke"),
        ("quiet", Failed("Boom", "it broke", None), "failed", "Boom"),
    ],
)
async def test_the_original_request_is_answered_with_a_failure_as_a_tool_error(
    tool: str, outcome: Any, status: str, text: str
) -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.create("t", tool)
        await b.finish("t", outcome)
        result = (await wire.answer(call))["result"]
        assert result["isError"] is True
        assert text in result["content"][0]["text"]
        assert ("it broke" in str(result)) is ("it broke" in text)
        assert (await wire.get("t"))["status"] == status


@pytest.mark.req("A-5", "A-8")
@pytest.mark.case("F11", "D5")
async def test_a_start_that_is_rejected_fails_the_task_and_says_why() -> None:
    async with bench() as b, b.connected() as wire:
        b.engine.fail("start", Rejected("not allowed to states:StartExecution", error="Denied"))
        result = (await wire.answer(await wire.create("t")))["result"]
        assert result["content"][0]["text"] == "Denied: not allowed to states:StartExecution"
        shown = await wire.get("t")
        assert shown["status"] == "failed"
        assert shown["error"] == "Denied: not allowed to states:StartExecution"
        assert len(b.engine.called("start")) == 1


@pytest.mark.req("A-5", "A-8")
@pytest.mark.case("F13")
async def test_an_end_that_can_no_longer_be_learned_is_unknown() -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.create("t")
        b.engine.vanish(await b.ref("t"))
        await b.noticed("t")
        error = (await wire.answer(call))["error"]
        assert error["code"] == -32603
        assert "history expired" in error["message"]
        assert (await wire.get("t"))["status"] == "unknown"


@pytest.mark.req("A-37")
async def test_a_task_nobody_can_be_told_of_is_made_all_the_same() -> None:
    async with bench() as b:
        async with b.connected() as wire:
            await wire.call(task="t")
            await wire.send_stream.aclose()
            with anyio.fail_after(5):
                while await b.row("t") is None:
                    await anyio.lowlevel.checkpoint()
        async with b.connected() as wire:
            await b.ref("t")
            assert (await wire.get("t"))["status"] == "working"


@pytest.mark.req("A-30")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_tasks_are_declared_and_work_at_every_handshake_version(version: str) -> None:
    async with bench() as b, b.connected(version, handshake=False) as wire:
        hello = (await wire.shake_hands(version))["result"]
        assert hello["protocolVersion"] == version
        declared: Any = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert hello["capabilities"]["tasks"] == declared
        call = await wire.create("t")
        await b.finish("t")
        assert (await wire.answer(call))["result"]["structuredContent"] == {"done": True}


async def nothing_happened(b: Any, wire: Any) -> None:
    await settle()
    assert not b.engine.calls
    assert (await b.service.page(b.owner, None))[0] == []
    assert not wire.notifications("notifications/tasks/created")
    assert (await wire.ask("ping"))["result"] == {}
