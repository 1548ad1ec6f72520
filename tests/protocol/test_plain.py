"""Clients that know no tasks, and progress for whoever asked for it."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tests.protocol.bench import RELATED, Bench, Wire, bench, settle, until
from workflow_bridge.adapter import Failed, Rejected

pytestmark = pytest.mark.anyio


async def only_task(b: Bench) -> str:
    """Wait for the one task there is; returns its id."""
    (row,) = await b.made()
    return row.task_id


def told_of(wire: Wire, step: str) -> bool:
    return any(step in note["message"] for note in progress(wire))


def progress(wire: Wire) -> list[dict[str, Any]]:
    return [note["params"] for note in wire.notifications("notifications/progress")]


@pytest.mark.req("P-1")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_a_plain_call_is_answered_with_the_result(version: str) -> None:
    async with bench() as b, b.connected(version) as wire:
        call = await wire.call(arguments={"a": 1})
        await b.finish(await only_task(b))
        result = (await wire.answer(call))["result"]
        assert result == {
            "content": [{"type": "text", "text": '{"done": true}'}],
            "structuredContent": {"done": True},
            "isError": False,
        }
        assert not wire.notifications("notifications/tasks/created")


@pytest.mark.req("P-1")
@pytest.mark.parametrize("arguments", [None, {}])
async def test_arguments_may_be_left_out(arguments: Any) -> None:
    async with bench() as b, b.connected() as wire:
        params = {"name": "run"} | ({} if arguments is None else {"arguments": arguments})
        await wire.begin("tools/call", params)
        await b.ref(await only_task(b))
        (execution,) = b.engine.executions.values()
        assert execution.payload == b"{}"


async def test_params_task_is_no_task_while_its_dialect_is_not_spoken() -> None:
    async with bench() as b, b.connected("2025-11-25") as wire:
        call = await wire.begin("tools/call", {"name": "run", "task": {"ttl": 60_000}})
        await b.finish(await only_task(b))
        assert (await wire.answer(call))["result"]["structuredContent"] == {"done": True}


@pytest.mark.req("P-1")
async def test_a_plain_call_that_fails_is_a_tool_error() -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.call()
        await b.finish(await only_task(b), Failed("Boom", "it broke", None))
        result = (await wire.answer(call))["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"] == "Boom: it broke"


@pytest.mark.case("F11")
async def test_a_plain_call_whose_start_is_rejected_is_a_protocol_error() -> None:
    async with bench() as b, b.connected() as wire:
        b.engine.fail("start", Rejected("not allowed to states:StartExecution", error="Denied"))
        error = (await wire.answer(await wire.call()))["error"]
        assert error["code"] == -32603
        assert "Denied: not allowed to states:StartExecution" in error["message"]


@pytest.mark.req("P-2")
@pytest.mark.case("T1", "T3")
@pytest.mark.parametrize("facade", [True, False])
@pytest.mark.parametrize(("tool", "is_error"), [("run", False), ("typed", True)])
async def test_a_long_wait_ends_with_where_the_work_can_be_found(
    tool: str, is_error: bool, facade: bool
) -> None:
    async with bench(plain_max_wait=timedelta(0), facade=facade) as b, b.connected() as wire:
        result = (await wire.answer(await wire.call(tool)))["result"]
        task_id = await only_task(b)
        text = result["content"][0]["text"]
        assert task_id in text
        assert (f"workflow-bridge tasks show {task_id}" in text) is not facade
        assert ("call task_result" in text) is facade
        assert result["isError"] is is_error
        assert not b.engine.called("stop")
        await b.finish(task_id)
        assert (await wire.get(task_id))["status"] == "completed"


@pytest.mark.case("K4")
async def test_ids_of_ours_cannot_be_guessed() -> None:
    async with bench(plain_max_wait=timedelta(0)) as b, b.connected() as wire:
        for _ in range(3):
            await wire.answer(await wire.call())
        ids = {row.task_id for row in (await b.service.page("local", None))[0]}
        assert len(ids) == 3
        assert all(len(task_id) >= 22 for task_id in ids)


async def test_a_tool_that_must_be_a_task_says_so_to_a_plain_client() -> None:
    async with bench() as b, b.connected() as wire:
        error = (await wire.answer(await wire.call("must")))["error"]
        assert error["code"] == -32601
        assert "modelcontextprotocol.io/task" in error["message"]
        assert not b.engine.calls
        await wire.create("t", "must")


@pytest.mark.case("T11")
@pytest.mark.parametrize("task", [None, "t"])
async def test_without_a_token_there_is_no_progress(task: str | None) -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.call(task=task)
        await b.finish(await only_task(b))
        await wire.answer(call)
        assert not progress(wire)


@pytest.mark.req("A-31", "A-17", "P-1")
@pytest.mark.parametrize("task", [None, "t"])
@pytest.mark.parametrize("token", [0, "", 7, "token"])
async def test_progress_names_the_step_rises_and_ends_with_the_answer(
    task: str | None, token: Any
) -> None:
    async with bench() as b, b.connected() as wire:
        call = await wire.call(task=task, meta={"progressToken": token})
        task_id = await only_task(b)
        ref = await b.ref(task_id)
        for step in ("Reserve", "Charge"):
            b.engine.enter(ref, step)
            b.clock.advance(timedelta(seconds=10))
            await b.service.get("local", task_id)
            await until(partial(told_of, wire, step))
        await b.finish(task_id)
        await wire.answer(call)
        told = progress(wire)
        values = [note["progress"] for note in told]
        assert values == sorted(set(values))
        assert {"working: Reserve", "working: Charge"} <= {note["message"] for note in told}
        assert all(note["progressToken"] == token for note in told)
        related = {RELATED: {"taskId": "t"}} if task else None
        assert all(note.get("_meta") == related for note in told)
        await settle()
        assert progress(wire) == told
        assert wire.received[-1]["id"] == call


async def test_steps_are_read_only_while_somebody_listens() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        b.clock.advance(timedelta(seconds=10))
        await wire.get("t")
        await settle()
        assert not b.engine.called("narrate")


@pytest.mark.req("A-2")
async def test_the_modern_protocol_knows_neither_a_nor_its_methods() -> None:
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    async with bench() as b, b.connected(handshake=False) as wire:
        for method in ("get", "result", "list", "cancel", "delete", "update"):
            answer = await wire.ask(f"tasks/{method}", {"taskId": "t", "_meta": envelope})
            assert answer["error"]["code"] == -32601
        discovered = (await wire.ask("server/discover", {"_meta": envelope}))["result"]
        assert "tasks" not in discovered["capabilities"]
        call = await wire.call(task="t", meta=envelope)
        task_id = await only_task(b)
        assert task_id != "t"
        await b.finish(task_id)
        result = (await wire.answer(call))["result"]
        assert result["resultType"] == "complete"
        assert result["structuredContent"] == {"done": True}
        assert not wire.notifications("notifications/tasks/created")
