"""How much an owner may ask for, and what is written down of it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from structlog.testing import capture_logs

from tests.protocol.bench import as_owner, bench, settle
from workflow_bridge.config.docstrings import docstrings
from workflow_bridge.config.models import KeepAliveLimits
from workflow_bridge.config.models import Limits as ConfiguredLimits
from workflow_bridge.core.policy import KeepAlive
from workflow_bridge.core.task import Task
from workflow_bridge.protocol.inflight import REMEMBERED, Calls
from workflow_bridge.protocol.limits import HARD, MAX_OWNERS, Limits, Rates

RATE = 0.001
"""So slow that the test is over before there is a second token."""


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(take: Any, owner: str = "o") -> Any:
    with pytest.raises(MCPError) as error:
        take(owner)
    assert error.value.code == 429001
    return error.value.data


@pytest.mark.req("A-24")
def test_a_bucket_fills_at_its_rate_and_says_when() -> None:
    clock = Seconds()
    limits = Limits(Rates(create=2), clock)
    limits.create("o")
    limits.create("o")
    assert refused(limits.create) == {"retryAfterMs": 500}
    limits.create("other")
    clock.now += 0.5
    limits.create("o")
    refused(limits.create)
    clock.now -= 100
    refused(limits.create)


@pytest.mark.req("A-24")
def test_polls_beyond_the_rate_are_answered_from_the_row_up_to_a_hard_limit() -> None:
    limits = Limits(Rates(poll=10), Seconds())
    fresh = [limits.poll("o") for _ in range(10 * HARD)]
    assert fresh == [True] * 10 + [False] * 10 * (HARD - 1)
    assert refused(limits.poll) == {"retryAfterMs": 25}


@pytest.mark.req("A-24")
def test_no_rate_is_no_limit_and_owners_are_forgotten() -> None:
    limits = Limits(Rates(), Seconds())
    for n in range(1000):
        limits.create("o")
        assert limits.poll(str(n))
    limits = Limits(Rates(list=1), Seconds())
    for n in range(MAX_OWNERS + 1):
        limits.list(str(n))
    limits.list("0")
    refused(limits.list, str(MAX_OWNERS))


def test_calls_are_forgotten_soon_after_they_were_abandoned() -> None:
    async def scenario() -> None:
        clock = Seconds()
        calls = Calls(clock)
        call = calls.begin(None, "7")
        calls.abandoned(None, "7", call)
        assert calls.find(None, 7) is call
        newer = calls.begin(None, 7)
        clock.now += REMEMBERED + 1
        calls.begin(None, 8)
        assert calls.find(None, 7) is newer
        calls.answered(None, 7, call)
        assert calls.find(None, 7) is newer
        calls.answered(None, 7, newer)
        assert calls.find(None, 7) is None

    anyio.run(scenario)


@pytest.mark.anyio
@pytest.mark.req("A-24")
async def test_creating_too_fast_is_refused_with_nothing_started() -> None:
    async with bench(rates=Rates(create=RATE)) as b, b.connected() as wire:
        await wire.create("t1")
        for task in ("t2", None):
            error = (await wire.answer(await wire.call(task=task)))["error"]
            assert error["code"] == 429001
            assert error["data"]["retryAfterMs"] > 0
        await b.ref("t1")
        assert len(b.engine.called("start")) == 1
        assert len((await b.service.page("local", None))[0]) == 1


@pytest.mark.anyio
@pytest.mark.req("A-24")
async def test_results_and_lists_read_too_fast_are_refused() -> None:
    rates = Rates(result=RATE, list=RATE)
    async with bench(rates=rates) as b, b.connected() as wire:
        await wire.create("t")
        await b.finish("t")
        assert "result" in await wire.task("result", "t")
        assert (await wire.task("result", "t"))["error"]["code"] == 429001
        assert "result" in await wire.ask("tasks/list")
        assert (await wire.ask("tasks/list"))["error"]["code"] == 429001


@pytest.mark.anyio
@pytest.mark.req("A-24")
async def test_an_impatient_poll_is_answered_without_a_look_at_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []

    async with bench(rates=Rates(poll=RATE)) as b, b.connected() as wire:
        get = b.service.get

        async def counted(owner: str, task_id: str) -> Task:
            looks.append(task_id)
            return await get(owner, task_id)

        monkeypatch.setattr(b.service, "get", counted)
        await wire.create("t")
        await b.ref("t")
        for _ in range(HARD):
            assert (await wire.get("t"))["status"] == "working"
        assert (await wire.task("get", "t"))["error"]["code"] == 429001
        assert looks == ["t"]


@pytest.mark.anyio
@pytest.mark.req("A-24", "A-32", "A-33")
async def test_more_tasks_at_a_time_than_allowed_are_refused_until_one_has_ended() -> None:
    async with bench(cap=2) as b, b.connected() as wire:
        await wire.create("t1")
        await wire.create("t2")
        with capture_logs() as logs:
            error = (await wire.answer(await wire.call(task="t3")))["error"]
        assert error["code"] == 429001
        assert error["data"]["retryAfterMs"] > 0
        assert [entry["reason"] for entry in logs if entry["event"] == "task_refused"] == [
            "too_many_tasks"
        ]
        assert await b.row("t3") is None
        assert sum((await b.store.census()).values()) >= 2
        async with as_owner(b, "other").connected() as other:
            await other.create("t3")
        await b.finish("t1")
        await wire.create("t3")


@pytest.mark.req("A-20", "A-32")
def test_the_bounds_are_documented_where_they_are_configured() -> None:
    keep_alive = KeepAliveLimits()
    assert (
        KeepAlive(default=keep_alive.default, minimum=keep_alive.min, maximum=keep_alive.max)
        == KeepAlive()
    )
    assert KeepAliveLimits.__doc__
    assert docstrings(ConfiguredLimits)["concurrent_tasks"]


@pytest.mark.anyio
@pytest.mark.req("A-25")
async def test_what_happens_to_a_task_is_logged_without_what_is_in_it() -> None:
    async with bench() as b, b.connected() as wire:
        with capture_logs() as logs:
            await wire.create("t", arguments={"card": "hunter2"})
            await b.finish("t")
            await wire.task("result", "t")
            await wire.answer(await wire.call(task="t"))
            await wire.answer(await wire.call("no-such-tool", task="t"))
            await wire.task("get", "unknown")
            await wire.task("delete", "t")
            call = await wire.create("c")
            await b.ref("c")
            await wire.notify("notifications/cancelled", {"requestId": call})
            await settle()
            await wire.create("c2")
            await wire.task("cancel", "c2")
        events = [entry for entry in logs if "owner" in entry]
        told = [(entry["event"], entry.get("reason")) for entry in events]
        assert told == [
            ("task_created", None),
            ("result_read", None),
            ("task_refused", "name_taken"),
            ("task_refused", "unknown_tool"),
            ("task_lookup_failed", "not_found"),
            ("task_deleted", None),
            ("task_created", None),
            ("cancel_requested", None),
            ("task_created", None),
            ("cancel_requested", None),
        ]
        assert all(entry["owner"] == "local" and entry["dialect"] == "a" for entry in events)
        rows = [entry for entry in events if entry["event"] in ("task_created", "result_read")]
        assert all(len(entry["row_id"]) == 32 and entry["tool"] == "run" for entry in rows)
        assert "hunter2" not in str(logs)
        assert "done" not in str(logs)
