"""Getting, reading, listing and deleting tasks in dialect A."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.protocol.bench import RELATED, as_owner, bench, settle, until
from workflow_bridge.adapter import Failed, Succeeded, Unavailable
from workflow_bridge.protocol.facade_tools import TOOLS as FACADE

pytestmark = pytest.mark.anyio

NOT_FOUND = {"code": -32602, "message": "Failed to retrieve task: Task not found"}
EXPIRED = {"code": -32602, "message": "Failed to retrieve task: Task has expired"}


@pytest.mark.req("A-13", "A-17", "A-9")
@pytest.mark.case("K12")
async def test_get_tells_all_that_the_dialect_knows_and_changes_nothing() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.ref("t")
        expected = {
            "taskId": "t",
            "status": "working",
            "keepAlive": 86_400_000,
            "pollFrequency": 5000,
            "_meta": {RELATED: {"taskId": "t"}},
        }
        assert [await wire.get("t") for _ in range(3)] == [expected] * 3
        await b.finish("t", Failed("Boom", "c" * 5000, None))
        shown = await wire.get("t")
        assert shown["error"] == "Boom: " + "c" * 5000
        assert "isError" not in shown


@pytest.mark.req("A-9")
async def test_the_cause_of_a_failure_is_shown_only_where_its_tool_allows() -> None:
    async with bench() as b, b.connected() as wire:
        for task_id, tool in (("q", "quiet"), ("r", "run")):
            await wire.create(task_id, tool)
            await b.finish(task_id, Failed("Boom", "secret", None))
        assert (await wire.get("q"))["error"] == "Boom"
        assert (await wire.get("r"))["error"] == "Boom: secret"
        del b.tools["run"]
        assert (await wire.get("r"))["error"] == "Boom"
        assert "secret" not in json.dumps(await wire.ask("tasks/list"))


@pytest.mark.req("A-14", "A-17")
@pytest.mark.case("K12", "T1", "S6")
async def test_a_result_is_the_original_answer_as_often_as_asked_by_any_connection() -> None:
    output: Any = {"b": "é🦊", "a": [1, None, {"x": 1e-7}]}
    async with bench() as b:
        async with b.connected() as wire:
            call = await wire.create("t")
            await b.finish("t", Succeeded(output, None))
            original = (await wire.answer(call))["result"]
        async with b.connected() as later:
            for _ in range(3):
                again = (await later.task("result", "t"))["result"]
                assert json.dumps(again) == json.dumps(original)
        async with b.connected() as plain:
            other = await plain.call("run")
            (row,) = [task for task in await b.made(2) if task.task_id != "t"]
            await b.finish(row.task_id, Succeeded(output, None))
            answer = (await plain.answer(other))["result"]
            del original["_meta"]
            assert json.dumps(answer) == json.dumps(original)


@pytest.mark.req("A-10", "A-14")
async def test_a_workflow_that_returns_a_tool_error_has_completed() -> None:
    output: Any = {"content": [{"type": "text", "text": "no stock"}], "isError": True}
    async with bench() as b, b.connected() as wire:
        call = await wire.create("t")
        await b.finish("t", Succeeded(output, None))
        assert (await wire.get("t"))["status"] == "completed"
        result = (await wire.task("result", "t"))["result"]
        assert result["content"] == [{"text": "no stock", "type": "text"}]
        assert result["isError"] is True
        assert result == (await wire.answer(call))["result"]


@pytest.mark.req("A-14")
@pytest.mark.parametrize("status", ["submitted", "working", "failed", "cancelled", "unknown"])
async def test_there_is_no_result_unless_completed(status: str) -> None:
    async with bench() as b, b.connected() as wire:
        if status == "submitted":
            b.engine.fail("start", Unavailable("down"), times=99)
        await wire.create("t")
        if status != "submitted":
            ref = await b.ref("t")
        if status == "failed":
            await b.finish("t", Failed("Boom", None, None))
        elif status == "cancelled":
            await wire.task("cancel", "t")
        elif status == "unknown":
            b.engine.vanish(ref)
            await b.noticed("t")
        error = (await wire.task("result", "t"))["error"]
        message = f"Cannot retrieve result: Task status is '{status}', not 'completed'"
        assert error == {"code": -32602, "message": message}


@pytest.mark.req("A-18", "A-23", "A-34")
@pytest.mark.case("S4", "K9")
@pytest.mark.parametrize("database", [None, "sqlite://"])
@pytest.mark.parametrize("method", ["get", "result", "cancel", "delete"])
async def test_unknown_foreign_and_impossible_ids_look_the_same(
    method: str, database: str | None
) -> None:
    async with bench(database=database) as b, as_owner(b, "mallory").connected() as wire:
        async with b.connected() as theirs:
            await theirs.create("foreign")
            await b.finish("foreign")
        for task_id in ("unknown", "foreign", "", "a\0b", "x" * 2000):
            assert (await wire.task(method, task_id))["error"] == NOT_FOUND
        assert (await b.task("foreign")).hidden_at is None


async def test_an_id_that_is_no_text_is_nobodys() -> None:
    async with bench() as b, b.connected() as wire:
        assert (await wire.task("get", "\ud800"))["error"] == NOT_FOUND


@pytest.mark.req("A-23")
async def test_owners_may_use_the_same_id_and_see_only_their_own() -> None:
    async with (
        bench() as b,
        b.connected() as wire,
        as_owner(b, "eve").connected() as hers,
    ):
        await wire.create("t")
        await hers.create("t")
        await as_owner(b, "eve").ref("t")
        await b.finish("t", Succeeded("ours", None))
        assert (await hers.get("t"))["status"] == "working"
        listed = (await hers.ask("tasks/list"))["result"]["tasks"]
        assert [task["status"] for task in listed] == ["working"]
        await hers.task("cancel", "t")
        assert (await wire.get("t"))["status"] == "completed"


@pytest.mark.req("A-17")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_the_parameter_decides_and_the_metadata_may_be_missing(version: str) -> None:
    async with bench() as b, b.connected(version) as wire:
        await wire.create("t")
        await b.finish("t")
        for params in (
            {"taskId": "t"},
            {"taskId": "t", "_meta": {RELATED: {"taskId": "other"}}},
            {"taskId": "t", "_meta": {RELATED: 7}},
        ):
            for method in ("tasks/get", "tasks/result"):
                result = (await wire.ask(method, params))["result"]
                assert result["_meta"] == {RELATED: {"taskId": "t"}}
        assert "result" in await wire.ask("tasks/delete", {"taskId": "t"})


@pytest.mark.parametrize(
    "params", [None, {}, {"taskId": None}, {"taskId": 7}, {"taskId": ["t"]}, {"_meta": 7}]
)
@pytest.mark.parametrize("method", ["get", "result", "cancel", "delete"])
async def test_a_task_request_without_an_id_is_refused(method: str, params: Any) -> None:
    async with bench() as b, b.connected() as wire:
        error = (await wire.ask(f"tasks/{method}", params))["error"]
        assert error["code"] == -32602
        assert "taskId" in error["message"] or "_meta" in error["message"]


@pytest.mark.req("A-15", "A-35")
async def test_a_list_comes_in_bounded_pages_and_holds_whatever_get_sees() -> None:
    async with bench() as b, b.connected() as wire:
        ids = [f"t{n}" for n in range(101)]
        for task_id in ids:
            await wire.call(task=task_id)
        for task_id in ids:
            await b.ref(task_id)
        seen: list[str] = []
        params: dict[str, Any] = {}
        pages = 0
        while True:
            page = (await wire.ask("tasks/list", params))["result"]
            assert "_meta" not in page
            assert len(page["tasks"]) <= 50
            seen += [task["taskId"] for task in page["tasks"]]
            pages += 1
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert sorted(seen) == sorted(ids)
        assert pages == 3


@pytest.mark.req("A-15")
async def test_the_last_full_page_has_no_cursor() -> None:
    async with bench() as b, b.connected() as wire:
        assert (await wire.ask("tasks/list"))["result"] == {"tasks": []}
        for n in range(50):
            await wire.create(f"t{n}")
        assert "nextCursor" not in (await wire.ask("tasks/list", {"cursor": None}))["result"]


@pytest.mark.req("A-15", "A-23")
@pytest.mark.parametrize("made_up", ["", "x", "AAAA" * 20, "é", "🦊", 7, [], {}, "a" * 10_000, "0"])
async def test_a_made_up_cursor_is_refused(made_up: Any) -> None:
    async with bench() as b, b.connected() as wire:
        error = (await wire.ask("tasks/list", {"cursor": made_up}))["error"]
        assert error["code"] == -32602
        assert "cursor" in error["message"]
        assert "error" in await wire.ask("tools/list", {"cursor": made_up})


@pytest.mark.req("A-15", "A-23")
async def test_a_cursor_is_no_good_to_another_owner() -> None:
    async with bench() as b, b.connected() as wire, as_owner(b, "eve").connected() as hers:
        for n in range(51):
            await wire.create(f"t{n}")
        cursor = (await wire.ask("tasks/list"))["result"]["nextCursor"]
        assert (await hers.ask("tasks/list", {"cursor": cursor}))["error"]["code"] == -32602
        assert len((await wire.ask("tasks/list", {"cursor": cursor}))["result"]["tasks"]) == 1


@pytest.mark.req("A-16", "A-34", "A-17")
async def test_a_deleted_task_is_gone_with_all_that_belongs_to_it() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.finish("t")
        row = await b.task("t")
        assert (await wire.task("delete", "t"))["result"] == {"_meta": {RELATED: {"taskId": "t"}}}
        for method in ("get", "result", "delete", "cancel"):
            assert (await wire.task(method, "t"))["error"] == NOT_FOUND
        assert (await wire.ask("tasks/list"))["result"] == {"tasks": []}
        payload = await b.store.payload(row.row_id)
        assert (payload.arguments, payload.output) == (None, None)


@pytest.mark.req("A-16")
async def test_a_running_task_is_not_deleted() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.ref("t")
        message = "Cannot delete task: Task status is 'working'; cancel it first"
        assert (await wire.task("delete", "t"))["error"] == {"code": -32602, "message": message}
        assert (await wire.get("t"))["status"] == "working"


@pytest.mark.req("A-16")
async def test_a_running_task_is_cancelled_and_deleted_where_that_is_configured() -> None:
    async with bench(delete_running=True) as b, b.connected() as wire:
        await wire.create("t")
        ref = await b.ref("t")
        assert "result" in await wire.task("delete", "t")
        assert (await wire.task("get", "t"))["error"] == NOT_FOUND
        await until(lambda: b.engine.executions[ref].stop_reasons)


@pytest.mark.req("A-18", "A-19")
@pytest.mark.case("K3", "K4")
@pytest.mark.parametrize("ended", ["completed", "failed", "cancelled"])
async def test_keep_alive_counts_from_the_end_and_then_the_task_has_expired(ended: str) -> None:
    async with bench() as b, b.connected() as wire:
        await wire.call(task={"taskId": "t", "keepAlive": 120_000})
        await b.ref("t")
        b.clock.advance(timedelta(days=400))
        assert (await wire.get("t"))["status"] == "working"
        if ended == "cancelled":
            await wire.task("cancel", "t")
        else:
            await b.finish("t", Failed("Boom", None, None) if ended == "failed" else None)
        b.clock.advance(timedelta(seconds=90))
        assert (await wire.get("t"))["status"] == ended
        b.clock.advance(timedelta(seconds=31))
        for method in ("get", "result", "delete", "cancel"):
            assert (await wire.task(method, "t"))["error"] == EXPIRED
        assert (await wire.ask("tasks/list"))["result"] == {"tasks": []}


@pytest.mark.case("F1", "R12")
async def test_an_outage_changes_no_status_and_says_since_when_and_why() -> None:
    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        await b.ref("t")
        since = (await b.task("t")).last_observed_at
        assert since is not None
        b.engine.fail("observe", Unavailable("Rate exceeded", throttled=True))
        b.clock.advance(timedelta(seconds=10))
        await wire.get("t")
        await settle()
        shown = await wire.get("t")
        assert shown["status"] == "working"
        observation = shown["_meta"]["workflow-bridge/observation"]
        assert observation == {"since": since.isoformat(), "error": "Rate exceeded"}
        assert shown["pollFrequency"] > 5000


@pytest.mark.req("A-18")
async def test_a_fault_of_ours_is_an_internal_error_that_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("password=hunter2 at /var/lib/bridge.db")

    async with bench() as b, b.connected() as wire:
        await wire.create("t")
        monkeypatch.setattr(b.store, "get", broken)
        monkeypatch.setattr(b.store, "page", broken)
        monkeypatch.setattr(b.store, "insert", broken)
        neutral = {"code": -32603, "message": "Internal error"}
        for method in ("get", "result", "cancel", "delete"):
            assert (await wire.task(method, "t"))["error"] == neutral
        assert (await wire.ask("tasks/list"))["error"] == neutral
        assert (await wire.answer(await wire.call(task="t2")))["error"] == neutral
        monkeypatch.undo()
        assert (await wire.get("t"))["taskId"] == "t"


@pytest.mark.parametrize("method", ["tasks/update", "tasks/subscribe", "nonsense", ""])
async def test_methods_that_the_dialect_lacks_are_unknown(method: str) -> None:
    async with bench() as b, b.connected() as wire:
        assert (await wire.ask(method, {"taskId": "t"}))["error"]["code"] == -32601


@pytest.mark.parametrize("method", ["tasks/get", "tasks/list", "tools/call", "tools/list"])
async def test_nothing_is_done_before_the_handshake(method: str) -> None:
    async with bench() as b, b.connected(handshake=False) as wire:
        params = {"name": "run", "taskId": "t", "arguments": {}}
        assert (await wire.ask(method, params))["error"]["code"] == -32602
        assert not b.engine.calls


async def test_tools_are_listed_in_order_with_their_schemas() -> None:
    async with bench() as b, b.connected() as wire:
        tools = (await wire.ask("tools/list"))["result"]["tools"]
        names = [tool["name"] for tool in tools]
        assert names == [*sorted(b.tools), *FACADE]
        for tool in tools[: len(b.tools)]:
            spec = b.tools[tool["name"]]
            assert tool["inputSchema"] == spec.input_schema
            assert tool.get("outputSchema") == spec.output_schema
            assert tool["description"] == spec.description
