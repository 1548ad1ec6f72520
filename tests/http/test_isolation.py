"""Whose tasks are whose, over HTTP."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.http.wire import ENVELOPE, HttpWire, site
from tests.protocol.bench import Bench, bench, until
from workflow_bridge.adapter import Succeeded

pytestmark = pytest.mark.anyio

NOT_FOUND = {"code": -32602, "message": "Failed to retrieve task: Task not found"}
METHODS = ["get", "result", "cancel", "delete"]


def owner_of(wire: HttpWire) -> str:
    session = wire.headers["mcp-session-id"]
    return f"session:{hashlib.sha256(session.encode()).hexdigest()}"


async def row(b: Bench, wire: HttpWire, task_id: str) -> Any:
    return await b.row(task_id, owner_of(wire))


async def end(b: Bench, wire: HttpWire, task_id: str) -> None:
    """End the execution of a session's task, and have the session see it."""
    await until(lambda: b.engine.executions)
    found = await row(b, wire, task_id)
    while found.ref is None:
        found = await row(b, wire, task_id)
    b.engine.finish(found.ref, Succeeded({"n": 1}, None))
    while (await wire.get(task_id))["status"] != "completed":
        b.clock.seconds += 10


@pytest.mark.req("A-23", "A-18")
@pytest.mark.case("S1", "S4")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("database", [None, "sqlite://"])
async def test_a_task_of_another_session_looks_like_one_that_is_not_there(
    method: str, database: str | None
) -> None:
    async with (
        bench(database=database) as b,
        site(b) as made,
        made.connected() as mine,
        made.connected() as foreign,
    ):
        await mine.create("t")
        answers = []
        for task_id in ("t", "unknown", "", "a\0b", "x" * 2000):
            answers.append(await foreign.task(method, task_id))
        assert all(answer["error"] == NOT_FOUND for answer in answers)
        assert (await foreign.ask("tasks/list"))["result"] == {"tasks": []}
        assert (await mine.get("t"))["status"] in ("submitted", "working")
        assert (await row(b, mine, "t")).stop_requested_at is None
        (listed,) = (await mine.ask("tasks/list"))["result"]["tasks"]
        assert listed["taskId"] == "t"


@pytest.mark.req("A-23", "A-3")
@pytest.mark.case("S1")
async def test_sessions_may_use_the_same_id_and_each_has_its_own_task() -> None:
    async with (
        bench() as b,
        site(b) as made,
        made.connected() as one,
        made.connected() as two,
    ):
        await one.create("t")
        await two.create("t")
        again = await one.answer(await one.call(task="t"))
        assert again["error"]["message"] == "Task ID already exists: t"
        assert (await two.task("cancel", "t"))["result"]["status"] == "cancelled"
        assert (await one.get("t"))["status"] in ("submitted", "working")
        assert len(b.engine.executions) == 2


@pytest.mark.req("A-23")
async def test_a_session_is_used_over_any_connection_and_ends_with_it_for_good() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        await wire.create("t")
        async with made.connected(handshake=False) as later:
            later.headers = dict(wire.headers)
            assert (await later.get("t"))["taskId"] == "t"
            await later.client.delete(later.url, headers=later.headers)
        assert not (await row(b, wire, "t")).final
        async with made.connected() as fresh:
            assert (await fresh.task("get", "t"))["error"] == NOT_FOUND


@pytest.mark.req("A-23", "P-1")
async def test_on_this_machine_requests_without_a_session_are_the_local_users() -> None:
    async with (
        bench() as b,
        site(b) as made,
        made.connected(handshake=False) as modern,
        made.connected() as session,
    ):
        await modern.call(meta=ENVELOPE)
        await until(lambda: b.engine.executions)
        (task,) = (await b.service.page("local", None))[0]
        assert (await session.task("get", task.task_id))["error"] == NOT_FOUND


@pytest.mark.req("A-23")
async def test_a_session_that_the_modern_protocol_names_is_none() -> None:
    """The SDK checks the header below 2026-07-28 only."""
    async with (
        bench() as b,
        site(b) as made,
        made.connected() as victim,
        made.connected(handshake=False) as modern,
    ):
        for session in (victim.headers["mcp-session-id"], "of-my-choice"):
            modern.headers["mcp-session-id"] = session
            await modern.call(meta=ENVELOPE)
        await until(lambda: len(b.engine.executions) == 2)
        assert len((await b.service.page("local", None))[0]) == 2
        assert (await victim.ask("tasks/list"))["result"] == {"tasks": []}


@pytest.mark.req("A-23")
async def test_where_sessions_are_asked_for_nothing_is_done_without_one() -> None:
    async with (
        bench() as b,
        site(b, isolation="session") as made,
        made.connected(handshake=False) as modern,
        made.connected() as session,
    ):
        assert "result" in await modern.ask("tools/list", {"_meta": ENVELOPE})
        answer = await modern.answer(await modern.call(meta=ENVELOPE))
        assert answer["error"]["code"] == -32600
        assert "2025-11-25" in answer["error"]["message"]
        assert not b.engine.calls
        await session.create("t")
        assert (await row(b, session, "t")).owner == owner_of(session)


@pytest.mark.req("A-23")
async def test_without_isolation_all_see_all() -> None:
    async with (
        bench() as b,
        site(b, isolation="none") as made,
        made.connected() as one,
        made.connected() as two,
    ):
        await one.create("t")
        assert (await two.get("t"))["taskId"] == "t"
        assert (await b.task("t")).owner == "local"


@pytest.mark.req("A-21", "A-23")
@pytest.mark.case("S1")
async def test_one_session_cannot_cancel_the_call_of_another_by_its_number() -> None:
    async with (
        bench() as b,
        site(b) as made,
        made.connected() as mine,
        made.connected() as foreign,
    ):
        await mine.call(task="t", request_id=7)
        await foreign.call(task="t", request_id=7)
        await until(lambda: len(b.engine.executions) == 2)
        await foreign.notify("notifications/cancelled", {"requestId": 7})
        while (await foreign.get("t"))["status"] != "cancelled":
            pass
        assert (await mine.get("t"))["status"] == "working"
        assert (await row(b, mine, "t")).stop_requested_at is None


@pytest.mark.case("S3")
async def test_the_id_of_a_session_is_in_no_log_answer_or_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "workflow_bridge")
    async with bench() as b, site(b) as made, made.connected() as wire:
        session = wire.headers["mcp-session-id"]
        with capture_logs() as log:
            await wire.create("t")
            await wire.task("get", "nothing")
            await end(b, wire, "t")
            await wire.task("result", "t")
            await wire.task("delete", "t")
        assert log
        assert session not in json.dumps(log, default=str)
        assert session not in json.dumps(wire.received)
        assert session not in str(await row(b, wire, "t"))
