"""Waiting for a task: nothing is missed, and a hundred who wait cost what one costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import anyio
import pytest

from tests.core.rows import FRESH, T0, bound
from tests.core.world import Process, World, a_world, living, new, passes
from workflow_bridge.adapter import Failed, Succeeded
from workflow_bridge.core import step as steps
from workflow_bridge.core.budget import Budget
from workflow_bridge.core.store import TaskStore
from workflow_bridge.core.task import OutcomeKind, Status, Task
from workflow_bridge.core.waiters import Waiters, Watch

pytestmark = pytest.mark.anyio

Stores = Callable[[Callable[[], float]], TaskStore]
FINAL = replace(steps.ended(bound(), Status.COMPLETED, OutcomeKind.SUCCEEDED, None, T0), version=9)


async def created(process: Process, task_id: str = "t") -> Task:
    await process.ask(process.service.create(new(task_id)))
    await passes(0.5)
    return await process.world.task(task_id)


async def statuses(watch: Watch) -> list[Status]:
    async with watch:
        return [task.status async for task in watch]


def finish(world: World) -> None:
    for ref, execution in world.engine.executions.items():
        if not execution.has_ended:
            world.engine.finish(ref, Succeeded(1, None))


async def test_a_watch_shows_each_state_up_to_the_end() -> None:
    async with living(a_world()) as world:
        process = world.process()
        seen: list[Status] = []
        task = await process.ask(process.service.create(new()))
        async with process.service.watch(task) as watch:
            async for shown in watch:
                if not seen or seen[-1] is not shown.status:
                    seen.append(shown.status)
                if shown.status is Status.WORKING:
                    finish(world)
        assert seen == [Status.SUBMITTED, Status.WORKING, Status.COMPLETED]


async def test_a_watch_on_a_task_that_has_ended_shows_its_end_at_once() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        finish(world)
        await passes(3)
        assert await statuses(process.service.watch(task)) == [Status.COMPLETED]


async def test_a_change_between_registering_and_reading_is_not_missed() -> None:
    async def read(row_id: str) -> Task | None:
        waiters.publish(FINAL)
        return replace(FRESH, version=2)

    waiters = Waiters(read)
    assert await statuses(waiters.watch(FRESH.row_id)) == [Status.COMPLETED]


async def test_versions_are_never_shown_backwards() -> None:
    async def read(row_id: str) -> Task | None:
        return replace(FRESH, version=5)

    waiters = Waiters(read)
    async with waiters.watch(FRESH.row_id) as watch:
        shown = [(await anext(watch)).version]
        for version in (3, 7, 6, 4):
            waiters.publish(replace(FRESH, version=version))
        shown.append((await anext(watch)).version)
        waiters.publish(replace(FRESH, version=7))
        waiters.publish(FINAL)
        shown += [task.version async for task in watch]
    assert shown == [5, 7, 9]
    assert waiters.rows() == {}


async def test_a_watch_whose_read_fails_is_forgotten() -> None:
    async def read(row_id: str) -> Task | None:
        raise OSError("disk")

    waiters = Waiters(read)
    with pytest.raises(OSError, match="disk"):
        async with waiters.watch(FRESH.row_id):
            pass
    assert waiters.rows() == {}


async def test_a_watch_on_a_row_that_is_not_there_ends_at_once() -> None:
    async def read(row_id: str) -> Task | None:
        return None

    assert await statuses(Waiters(read).watch(FRESH.row_id)) == []


async def test_a_version_shown_last_before_a_removal_is_still_shown() -> None:
    async def read(row_id: str) -> Task | None:
        return FRESH

    waiters = Waiters(read)
    async with waiters.watch(FRESH.row_id) as watch:
        waiters.gone(FRESH.row_id)
        assert [task.version async for task in watch] == [1]


async def test_steps_are_wanted_while_at_least_one_listens() -> None:
    async def read(row_id: str) -> Task | None:
        return FRESH

    waiters = Waiters(read)
    async with waiters.watch(FRESH.row_id):
        assert not waiters.want_steps(FRESH.row_id)
        async with waiters.watch(FRESH.row_id, steps=True):
            assert waiters.want_steps(FRESH.row_id)
        assert not waiters.want_steps(FRESH.row_id)


@pytest.mark.case("S3")
async def test_a_change_made_by_another_process_is_seen_soon(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        here, there = world.process(), world.process()
        task = await created(there)
        async with here.service.watch(task) as watch:
            assert (await anext(watch)).status is Status.WORKING
            await there.ask(there.service.cancel("me", "t", at_once=True))
            with anyio.fail_after(1.5):
                async for shown in watch:
                    if shown.final:
                        break
        assert shown.status is Status.CANCELLED


async def test_a_row_removed_by_another_process_ends_the_watch(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        here = world.process()
        task = await created(here)
        async with here.service.watch(task) as watch:
            await anext(watch)
            assert await world.store.remove(await world.task())
            with anyio.fail_after(1.5):
                assert [shown async for shown in watch] == []


async def test_hundreds_who_wait_cost_one_query_a_second() -> None:
    async with living(a_world()) as world:
        process = world.process()
        tasks = [await created(process, str(number)) for number in range(40)]
        ended: list[str] = []

        async def wait(task: Task) -> None:
            async with process.service.watch(task) as watch:
                async for shown in watch:
                    if shown.final:
                        ended.append(shown.task_id)

        async with anyio.create_task_group() as clients:
            for task in tasks:
                for _ in range(10):
                    clients.start_soon(wait, task)
            await passes(3)
            process.trace.clear()
            await passes(30)
            assert 28 <= process.trace.count("versions?") <= 31
            assert process.trace.count("row?") + process.trace.count("get?") <= 3
            finish(world)
        assert len(ended) == 400


@pytest.mark.req("A-22")
async def test_a_watch_that_is_dropped_cancels_nothing() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        with anyio.move_on_after(2):
            await statuses(process.service.watch(task))
        assert process.waiters.rows() == {}
        await passes(10)
        assert (await world.task()).status is Status.WORKING
        assert world.engine.called("stop") == []


async def test_the_end_of_a_watched_task_is_noticed_within_a_poll_interval() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        world.clock.jump(timedelta(hours=2))
        await passes(10)
        begun = asyncio.get_running_loop().time()
        finish(world)
        await statuses(process.service.watch(task))
        assert asyncio.get_running_loop().time() - begun <= 7


async def test_a_failure_is_shown_with_its_message() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        assert task.ref is not None
        world.engine.finish(task.ref, Failed("Boom", "broke", None))
        async with process.service.watch(task) as watch:
            messages = [shown.status_message async for shown in watch]
        assert messages[-1] == "Boom: broke"


# --- the budget ----------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_lets_through_its_rate_and_tells_the_rest_when_to_come() -> None:
    clock = Clock()
    budget = Budget(10, clock=clock)
    assert [budget.take() for _ in range(10)] == [None] * 10
    waits = [budget.take() for _ in range(3)]
    assert waits == [timedelta(seconds=seconds) for seconds in (0.1, 0.2, 0.3)]
    clock.now += 0.1001
    assert budget.take() is None
    assert budget.take() is not None


def test_throttling_halves_a_budget_down_to_a_floor_and_success_restores_it() -> None:
    clock = Clock()
    budget = Budget(10, clock=clock)
    assert budget.stretch == 1
    budget.throttled()
    assert budget.stretch == 2
    assert budget.take() is not None
    for _ in range(50):
        budget.throttled()
    assert budget.stretch == 64
    for _ in range(100):
        budget.succeeded()
    assert budget.stretch == 1


def test_a_budget_outlives_a_clock_that_goes_back() -> None:
    clock = Clock()
    budget = Budget(2, clock=clock)
    while budget.take() is None:
        pass
    clock.now -= 1000
    budget.take()
    clock.now += 1
    assert budget.take() is None


def test_a_call_that_is_spoken_for_is_not_there_for_others() -> None:
    budget = Budget(2, clock=lambda: 0.0)
    assert budget.ready(spoken_for=1)
    assert not budget.ready(spoken_for=2)
    assert budget.take() is None
    assert budget.ready()
    assert not budget.ready(spoken_for=1)
