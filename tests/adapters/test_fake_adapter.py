"""The fake's script: what core tests rely on beyond the contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from workflow_bridge.adapter import (
    Aborted,
    ExecutionNotFound,
    Found,
    Narrates,
    Rejected,
    Running,
    RunsInline,
    StartUnknown,
    Succeeded,
    Unavailable,
)
from workflow_bridge.testing.fake_adapter import FakeAdapter, FakeCall, InlineFakeAdapter

pytestmark = pytest.mark.anyio

START = datetime(2026, 12, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> FakeAdapter:
    return FakeAdapter(clock=clock)


async def test_an_execution_ends_when_the_test_says_so(fake: FakeAdapter) -> None:
    ref = (await fake.start("w", b"{}", key="k")).ref
    assert await fake.observe(ref) == Running()
    fake.finish(ref, Succeeded(1, START))
    assert await fake.observe(ref) == Succeeded(1, START)
    fake.vanish(ref)
    with pytest.raises(ExecutionNotFound):
        await fake.observe(ref)


async def test_a_lost_reply_leaves_an_execution_behind(fake: FakeAdapter) -> None:
    fake.lose_reply()
    with pytest.raises(StartUnknown):
        await fake.start("w", b"{}", key="k")
    assert len(await fake.find("w", key="k", since=START)) == 1


async def test_a_failure_before_the_effect_leaves_nothing(fake: FakeAdapter) -> None:
    fake.fail("start", Unavailable("no"), times=2)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await fake.start("w", b"{}", key="k")
    assert not fake.executions
    await fake.start("w", b"{}", key="k")
    assert fake.called("start") == [FakeCall("start", "w", "k")] * 3


async def test_what_is_younger_than_the_lag_is_not_listed(fake: FakeAdapter, clock: Clock) -> None:
    fake.find_lag = timedelta(seconds=5)
    ref = (await fake.start("w", b"{}", key="k")).ref
    assert await fake.find("w", key="k", since=START) == []
    clock.now += timedelta(seconds=5)
    assert await fake.find("w", key="k", since=START) == [Found(ref, START)]


async def test_duplicates_are_found_earliest_first(fake: FakeAdapter, clock: Clock) -> None:
    first = (await fake.start("w", b"{}", key="k")).ref
    clock.now += timedelta(seconds=1)
    second = fake.duplicate(first)
    found = await fake.find("w", key="k", since=START)
    assert [execution.ref for execution in found] == [first, second]


async def test_a_stop_may_be_without_effect(fake: FakeAdapter) -> None:
    ref = (await fake.start("w", b"{}", key="k")).ref
    fake.stop_works = False
    await fake.stop(ref, "please")
    assert await fake.observe(ref) == Running()
    assert fake.executions[ref].stop_reasons == ["please"]
    fake.stop_works = True
    await fake.stop(ref, "now")
    assert await fake.observe(ref) == Aborted("Cancelled", "now", START)


async def test_steps_are_those_it_was_let_enter(fake: FakeAdapter) -> None:
    assert isinstance(fake, Narrates)
    ref = (await fake.start("w", b"{}", key="k")).ref
    fake.enter(ref, "A")
    fake.enter(ref, "B")
    assert (await fake.narrate(ref)).current == "B"


async def test_the_pause_sees_every_call_before_it_has_an_effect(clock: Clock) -> None:
    paused: list[tuple[str, int]] = []

    async def pause(method: str) -> None:
        paused.append((method, len(engine.executions)))

    engine = FakeAdapter(clock=clock, pause=pause)
    ref = (await engine.start("w", b"{}", key="k")).ref
    await engine.observe(ref)
    assert paused == [("start", 0), ("observe", 1)]


async def test_only_the_inline_one_runs_inline(clock: Clock, fake: FakeAdapter) -> None:
    assert not isinstance(fake, RunsInline)
    inline = InlineFakeAdapter(clock=clock, behaviours={"w": lambda a: Succeeded(a, START)})
    assert isinstance(inline, RunsInline)
    assert await inline.run("w", b"[1]", key="k") == Succeeded([1], START)
    inline.lose_reply("run")
    with pytest.raises(StartUnknown):
        await inline.run("w", b"[1]", key="k")
    with pytest.raises(Rejected):
        await InlineFakeAdapter(clock=clock).run("w", b"[1]", key="k")
