"""The tools with which clients without tasks look after theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest

from tests.protocol.bench import Bench, Wire, as_owner, bench, settle, until
from workflow_bridge.adapter import (
    Aborted,
    Failed,
    Queued,
    Rejected,
    Running,
    Succeeded,
    TimedOut,
    Unavailable,
)
from workflow_bridge.protocol.facade_tools import TOOLS as FACADE
from workflow_bridge.protocol.limits import Rates
from workflow_bridge.protocol.pages import PAGE
from workflow_bridge.protocol.tools import ToolSpec

pytestmark = pytest.mark.anyio

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/tasks": {}}
    },
}
NOW = timedelta(0)


async def use(wire: Wire, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its result."""
    answer = await wire.answer(await wire.call(tool, arguments))
    assert "result" in answer, answer
    result: dict[str, Any] = answer["result"]
    return result


def said(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


async def handed_over(b: Bench, wire: Wire, tool: str = "run") -> str:
    """Have a call end before its work; returns the id that a later tool is told."""
    known = {row.task_id for row in (await b.service.page(b.owner, None))[0]}
    await use(wire, tool)
    (task_id,) = {row.task_id for row in (await b.service.page(b.owner, None))[0]} - known
    return task_id


# --- who sees them -------------------------------------------------------------------------------


async def names(wire: Wire, params: dict[str, Any] | None = None) -> set[str]:
    tools = (await wire.ask("tools/list", params or {}))["result"]["tools"]
    return {tool["name"] for tool in tools} & FACADE.keys()


@pytest.mark.req("P-2")
async def test_they_are_listed_to_clients_that_are_not_known_to_have_tasks() -> None:
    async with bench() as b, b.connected() as wire, b.connected() as another:
        assert await names(wire) == FACADE.keys()
        await wire.create("t")
        assert not await names(wire)
        assert await names(another) == FACADE.keys()


@pytest.mark.req("P-2")
async def test_an_extension_that_the_bridge_does_not_speak_hides_none() -> None:
    async with bench() as b, b.connected(handshake=False) as wire:
        assert await names(wire, {"_meta": MODERN}) == FACADE.keys()


@pytest.mark.req("P-2")
async def test_each_says_what_it_does_and_what_it_takes() -> None:
    async with bench() as b, b.connected() as wire:
        for tool in (await wire.ask("tools/list"))["result"]["tools"]:
            if tool["name"] in FACADE:
                assert len(tool["description"]) > 80
                assert tool["inputSchema"]["additionalProperties"] is False
                reads = tool["name"] != "task_cancel"
                assert tool["annotations"]["readOnlyHint"] is reads


@pytest.mark.req("P-2")
async def test_they_can_be_switched_off() -> None:
    async with bench(facade=False) as b, b.connected() as wire:
        assert not await names(wire)
        for tool in FACADE:
            answer = await wire.answer(await wire.call(tool, {"task_id": "t"}))
            assert answer["error"]["code"] == -32602
            assert "Unknown tool" in answer["error"]["message"]


@pytest.mark.req("A-2")
async def test_they_are_never_tasks() -> None:
    async with bench() as b, b.connected() as wire:
        answer = await wire.answer(await wire.call("task_list", task="t"))
        assert said(answer["result"]) == "There are no tasks."
        assert await b.row("t") is None
        assert not wire.notifications("notifications/tasks/created")


# --- how a task stands ---------------------------------------------------------------------------


@pytest.mark.req("P-2")
@pytest.mark.case("T3", "T1")
async def test_work_that_was_handed_over_is_followed_to_its_result() -> None:
    async with bench(plain_max_wait=NOW) as b, b.connected() as wire:
        task_id = await handed_over(b, wire)
        await b.ref(task_id)
        status = await use(wire, "task_status", task_id=task_id)
        assert status["structuredContent"]["status"] == "running"
        assert status["structuredContent"]["ask_again_after_seconds"] == 5
        not_yet = await use(wire, "task_result", task_id=task_id)
        assert not_yet["isError"] is False
        assert "not there yet" in said(not_yet)
        assert not_yet["structuredContent"]["ended"] is False
        await b.finish(task_id, Succeeded({"n": 1}, b.store.now()))
        status = await use(wire, "task_status", task_id=task_id)
        assert status["structuredContent"]["status"] == "done"
        assert {"ended_at", "kept_until"} <= status["structuredContent"].keys()
        for _ in range(2):
            assert await use(wire, "task_result", task_id=task_id) == {
                "content": [{"type": "text", "text": '{"n": 1}'}],
                "structuredContent": {"n": 1},
                "isError": False,
            }


@pytest.mark.req("P-2", "X-2")
@pytest.mark.case("T8", "R3")
@pytest.mark.parametrize(
    ("tool", "execution", "status", "reason"),
    [
        ("run", Queued(), "queued", None),
        ("run", Running(), "running", None),
        ("run", Succeeded(1, None), "done", None),
        ("run", Failed("Boom", "it broke", None), "failed", "Boom: it broke"),
        ("quiet", Failed("Boom", "it broke", None), "failed", "Boom"),
        ("lenient", Failed("Boom", "it broke", None), "failed", "Boom: it broke"),
        ("run", TimedOut(None, None, None), "failed", "the execution ended as TIMED_OUT"),
        ("run", Aborted(None, None, None), "cancelled", "the execution was ABORTED"),
    ],
)
async def test_a_status_is_one_plain_word_and_a_failure_has_its_reason(
    tool: str, execution: Any, status: str, reason: str | None
) -> None:
    ended = not isinstance(execution, Queued | Running)
    begins: Any = {tool: lambda _: Running() if ended else execution}
    async with bench(behaviours=begins) as b, b.connected() as wire:
        await wire.create("t", tool)
        await b.ref("t")
        if ended:
            await b.finish("t", execution)
        told = await use(wire, "task_status", task_id="t")
        assert told["isError"] is False
        assert told["structuredContent"]["status"] == status
        assert told["structuredContent"].get("message") == reason
        assert status in said(told)
        assert reason is None or reason in said(told)
        assert ("it broke" in str(told)) is ("it broke" in str(reason))
        listed = await use(wire, "task_list")
        assert listed["structuredContent"]["tasks"][0]["status"] == status
        assert "it broke" not in str(listed)


@pytest.mark.case("F1")
async def test_an_outage_is_told_and_changes_no_status() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.ref("t")
        b.engine.fail("observe", Unavailable("Rate exceeded"), times=9)
        b.clock.advance(timedelta(seconds=10))
        told = await use(wire, "task_status", task_id="t")
        assert told["structuredContent"]["status"] == "running"
        assert "Rate exceeded" in said(told)


async def test_what_became_of_it_may_be_lost() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        b.engine.vanish(await b.ref("t"))
        await b.noticed("t")
        told = await use(wire, "task_status", task_id="t")
        assert told["structuredContent"]["status"] == "lost"
        assert "history expired" in said(told)
        result = await use(wire, "task_result", task_id="t")
        assert result["isError"] is True
        assert "history expired" in said(result)


async def test_a_start_that_was_rejected_says_why() -> None:
    async with bench() as b, b.connected() as wire:
        b.engine.fail("start", Rejected("not allowed", error="Denied"))
        await wire.answer(await wire.create("t"))
        for tool in ("task_status", "task_result"):
            told = await use(wire, tool, task_id="t")
            assert told["isError"] is (tool == "task_result")
            assert "Denied: not allowed" in said(told)


# --- its result ----------------------------------------------------------------------------------


@pytest.mark.req("P-1", "P-2")
async def test_a_result_is_waited_for_with_progress() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        ref = await b.ref("t")
        call = await wire.call("task_result", {"task_id": "t"}, meta={"progressToken": 7})
        b.engine.enter(ref, "Charge")

        def charging() -> bool:
            notes = wire.notifications("notifications/progress")
            return any("Charge" in note["params"]["message"] for note in notes)

        with anyio.fail_after(10):
            while not charging():
                b.clock.advance(timedelta(seconds=10))
                await b.service.get("local", "t")
                await settle()
        assert wire.answered(call) is None
        await b.finish("t", Failed("Boom", "it broke", None))
        result = (await wire.answer(call))["result"]
        assert result["isError"] is True
        assert said(result) == "Boom: it broke"


@pytest.mark.req("P-3")
async def test_cancelling_a_wait_for_a_result_cancels_no_task() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.ref("t")
        call = await wire.call("task_result", {"task_id": "t"})
        await settle()
        await wire.notify("notifications/cancelled", {"requestId": call})
        await settle()
        assert (await wire.ask("ping"))["result"] == {}
        assert (await b.task("t")).stop_requested_at is None
        assert not b.engine.called("stop")


@pytest.mark.req("P-2")
@pytest.mark.case("R10")
@pytest.mark.parametrize("text", ["0123456789" * 500, "é🦊" * 900, 'a "quoted" line\n' * 400])
async def test_a_long_text_comes_in_pages_and_nothing_of_it_is_lost(text: str) -> None:
    output: Any = {"content": [{"type": "text", "text": text}, *PICTURE]}
    async with bench() as b, b.connected() as wire:
        call = await wire.call("short")
        (row,) = await b.made()
        await b.finish(row.task_id, Succeeded(output, None))
        first = (await wire.answer(call))["result"]
        assert "structuredContent" not in first
        assert first["content"][1:] == PICTURE
        assert await use(wire, "task_result", task_id=row.task_id) == first
        gathered, page = "", first
        while (place := page["_meta"][PAGE])["nextOffset"] is not None:
            assert len(said(page).encode()) <= 1000
            shown, note = said(page).rsplit("\n… (", 1)
            assert f"offset {place['nextOffset']}" in note
            assert place["totalCharacters"] == len(text)
            gathered += shown
            page = await use(wire, "task_result", task_id=row.task_id, offset=place["nextOffset"])
        assert gathered + said(page) == text


PICTURE = [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]


@pytest.mark.case("R10")
async def test_what_a_tool_promised_stays_whole_when_its_text_is_cut() -> None:
    schema: Any = {"type": "object"}
    tool = ToolSpec(
        name="short", description="", input_schema=schema, output_schema=schema, max_text=1000
    )
    async with bench() as b, b.connected() as wire:
        b.tools["short"] = tool
        call = await wire.call("short")
        (row,) = await b.made()
        await b.finish(row.task_id, Succeeded({"x": "y" * 5000}, None))
        result = (await wire.answer(call))["result"]
        assert result["structuredContent"] == {"x": "y" * 5000}
        assert len(said(result).encode()) <= 1000


@pytest.mark.case("R10")
async def test_a_page_is_as_long_as_asked_for_and_may_be_beyond_the_end() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.finish("t", Succeeded({"n": 1}, None))
        page = await use(wire, "task_result", task_id="t", offset=2, limit=3)
        assert said(page).startswith('n":\n… (characters 2 to 5 of 8;')
        beyond = await use(wire, "task_result", task_id="t", offset=10**30)
        assert beyond["isError"] is False
        assert "there is nothing" in said(beyond)
        assert beyond["_meta"][PAGE]["nextOffset"] is None


# --- stopping, listing ---------------------------------------------------------------------------


@pytest.mark.req("P-3", "P-2")
@pytest.mark.case("K6", "F10")
async def test_a_task_is_cancelled_and_follows_its_engine() -> None:
    async with bench(plain_max_wait=NOW) as b, b.connected() as wire:
        b.engine.stop_works = False
        task_id = await handed_over(b, wire)
        ref = await b.ref(task_id)
        told = await use(wire, "task_cancel", task_id=task_id)
        assert told["isError"] is False
        assert told["structuredContent"]["status"] == "stopping"
        await until(lambda: b.engine.executions[ref].stop_reasons)
        await b.finish(task_id, Succeeded(7, None))
        again = await use(wire, "task_cancel", task_id=task_id)
        assert again["isError"] is False
        assert "it had ended" in said(again)
        assert again["structuredContent"]["status"] == "done"
        assert said(await use(wire, "task_result", task_id=task_id)) == '{"result": 7}'


async def test_an_inline_run_is_not_cancelled_and_says_so() -> None:
    gate = anyio.Event()

    async def pause(method: str) -> None:
        if method == "run":
            await gate.wait()

    done = {"inline": lambda _: Succeeded(1, None)}
    async with bench(pause=pause, behaviours=done) as b, b.connected() as wire:
        await wire.create("t", "inline")
        await until(lambda: b.inline.called("run"))
        told = await use(wire, "task_cancel", task_id="t")
        assert told["isError"] is True
        assert "cannot be stopped" in said(told)
        gate.set()


@pytest.mark.req("P-3", "P-2")
@pytest.mark.case("T6", "T1")
async def test_a_call_cut_off_is_found_in_the_list_and_not_begun_again() -> None:
    async with bench() as b:
        async with b.connected() as wire:
            await wire.call()
            await until(lambda: b.engine.executions)
        async with b.connected() as later:
            listed = await use(later, "task_list")
            (task,) = listed["structuredContent"]["tasks"]
            assert task["task_id"] in said(listed)
            assert task["tool"] == "run"
            await b.finish(task["task_id"])
            result = await use(later, "task_result", task_id=task["task_id"])
            assert result["structuredContent"] == {"done": True}
        assert len(b.engine.called("start")) == 1
        assert not b.engine.called("stop")


@pytest.mark.req("P-2")
async def test_the_list_comes_in_pages_newest_first() -> None:
    async with bench() as b, b.connected() as wire:
        for n in range(5):
            await wire.create(f"t{n}")
            b.clock.advance(timedelta(milliseconds=1))
        seen: list[str] = []
        page = await use(wire, "task_list", limit=2)
        while True:
            seen += [task["task_id"] for task in page["structuredContent"]["tasks"]]
            cursor = page["structuredContent"].get("next_cursor")
            if cursor is None:
                break
            assert cursor in said(page)
            page = await use(wire, "task_list", limit=2, cursor=cursor)
        assert seen == [f"t{n}" for n in (4, 3, 2, 1, 0)]
        wrong = await use(wire, "task_list", cursor="made up")
        assert wrong["isError"] is True
        assert "next_cursor" in said(wrong)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.req("P-2", "A-23")
@pytest.mark.case("K9", "S4")
@pytest.mark.parametrize("tool", ["task_status", "task_result", "task_cancel"])
async def test_an_unknown_foreign_or_impossible_id_is_a_tool_error_that_helps(tool: str) -> None:
    async with bench() as b, as_owner(b, "mallory").connected() as wire, b.connected() as theirs:
        await theirs.create("foreign")
        texts = set()
        for task_id in ("foreign", "unknown", "", "a\0b", "x" * 2000):
            told = await use(wire, tool, task_id=task_id)
            assert told["isError"] is True
            texts.add(said(told).replace(f"'{task_id}'", "").replace("'" + "x" * 99 + "…'", ""))
        (text,) = texts
        assert "task_list" in text
        assert said(await use(wire, "task_list")) == "There are no tasks."
        assert (await b.task("foreign")).stop_requested_at is None


async def test_an_expired_task_says_so() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.finish("t")
        b.clock.advance(timedelta(days=1, seconds=1))
        told = await use(wire, "task_result", task_id="t")
        assert told["isError"] is True
        assert "no longer be fetched" in said(told)


@pytest.mark.req("P-2")
@pytest.mark.parametrize("tool", ["task_status", "task_result", "task_cancel"])
async def test_each_asks_whether_the_tool_behind_the_task_is_permitted(tool: str) -> None:
    async with (
        bench(permitted=lambda ctx, name: name != "run") as b,
        b.connected() as wire,
    ):
        await wire.create("t")
        await wire.create("q", "quiet")
        assert "no task 't'" in said(await use(wire, tool, task_id="t"))
        listed = await use(wire, "task_list")
        assert [task["task_id"] for task in listed["structuredContent"]["tasks"]] == ["q"]
        assert (await b.task("t")).stop_requested_at is None


@pytest.mark.req("P-2")
async def test_a_task_of_a_tool_that_is_no_longer_there_is_still_its_owners() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.finish("t", Succeeded({"n": 1}, None))
        del b.tools["run"]
        assert said(await use(wire, "task_result", task_id="t")) == '{"n": 1}'
        assert "run" in said(await use(wire, "task_list"))


@pytest.mark.req("A-24", "P-2")
@pytest.mark.parametrize(
    ("rates", "tool"),
    [
        (Rates(result=1), "task_result"),
        (Rates(list=1), "task_list"),
        (Rates(poll=0.25), "task_status"),
    ],
)
async def test_rates_are_those_of_the_requests_that_they_stand_for(rates: Rates, tool: str) -> None:
    async with bench(rates=rates) as b, b.connected() as wire:
        arguments = {} if tool == "task_list" else {"task_id": "unknown"}
        answers = [await wire.answer(await wire.call(tool, arguments)) for _ in range(6)]
        refused = [answer["error"] for answer in answers if "error" in answer]
        assert refused
        assert all(error["code"] == 429001 for error in refused)
        assert all(error["data"]["retryAfterMs"] > 0 for error in refused)


@pytest.mark.req("P-1")
@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("order", {}, "lacks 'order_id'"),
        ("run", {"x": "é" * 140_000}, "262144"),
        ("task_status", {}, "lacks 'task_id'"),
        ("task_status", {"task_id": 7}, "must be of type string"),
        ("task_result", {"task_id": "t", "offset": -1}, "$.offset"),
        ("task_list", {"limit": 10**6}, "$.limit"),
    ],
)
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_arguments_that_do_not_fit_are_the_models_to_correct_where_hosts_expect_it(
    tool: str, arguments: Any, told: str, version: str
) -> None:
    async with bench() as b, b.connected(version) as wire:
        answer = await wire.answer(await wire.call(tool, arguments))
        if version < "2025-11-25":
            assert answer["error"]["code"] == -32602
            assert told in answer["error"]["message"]
        else:
            assert answer["result"]["isError"] is True
            assert told in said(answer["result"])
        assert not b.engine.calls


@pytest.mark.case("K1")
async def test_a_tool_is_open_to_clients_without_tasks_unless_it_says_otherwise() -> None:
    assert ToolSpec(name="t", description="", input_schema={}).task == "optional"
    async with bench() as b, b.connected("2025-11-25") as wire:
        call = await wire.call()
        (row,) = await b.made()
        await b.finish(row.task_id)
        assert (await wire.answer(call))["result"]["isError"] is False
