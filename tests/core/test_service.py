"""What owners can do with their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import anyio
import pytest

from tests.core.world import TOOL, Process, World, a_world, living, new, passes
from workflow_bridge.adapter import Failed, Succeeded, Unavailable
from workflow_bridge.core.service import (
    AlreadyFinal,
    CannotStop,
    InvalidArguments,
    StillRunning,
    TaskExpired,
    TaskNotFound,
)
from workflow_bridge.core.store import NameTaken, TaskStore, TooManyTasks
from workflow_bridge.core.task import OutcomeKind, Payload, Status, Task
from workflow_bridge.testing.fake_adapter import InlineFakeAdapter

pytestmark = pytest.mark.anyio

Stores = Callable[[Callable[[], float]], TaskStore]
DONE = Succeeded({"n": 1}, None)


async def created(process: Process, task_id: str = "t", owner: str = "me") -> Task:
    await process.ask(process.service.create(new(task_id, owner=owner)))
    await passes(0.5)
    return await process.world.task(task_id, owner)


def finish(world: World, task: Task) -> None:
    assert task.ref is not None
    world.engine.finish(task.ref, DONE)


# --- creating ------------------------------------------------------------------------------------


@pytest.mark.req("A-6")
async def test_a_task_starts_as_submitted_and_is_started_right_behind(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        task = await process.ask(process.service.create(new()))
        assert task.status is Status.SUBMITTED
        await passes(0.5)
        assert (await process.service.get("me", "t")).status is Status.WORKING


@pytest.mark.req("A-3")
@pytest.mark.case("T6")
async def test_an_id_used_twice_is_refused_and_starts_nothing(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        first = await created(process)
        for _ in range(2):
            with pytest.raises(NameTaken):
                await process.ask(process.service.create(new()))
            finish(world, first)
            await passes(3)
        await process.service.delete("me", "t")
        with pytest.raises(NameTaken):
            await process.ask(process.service.create(new()))
        await passes(3)
        assert len(world.engine.executions) == 1


@pytest.mark.req("A-3", "A-23")
async def test_two_owners_may_use_the_same_id(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        mine, theirs = await created(process), await created(process, owner="them")
        assert mine.row_id != theirs.row_id
        assert len(world.engine.executions) == 2


async def test_a_name_is_free_again_once_its_tombstone_is_gone() -> None:
    async with living(a_world()) as world:
        process = world.process()
        finish(world, await created(process))
        await passes(3)
        await process.service.delete("me", "t")
        world.clock.jump(timedelta(days=1))
        await passes(3)
        again = await created(process)
        assert again.status is Status.WORKING
        assert len(world.engine.executions) == 2


@pytest.mark.case("F6")
async def test_arguments_that_cannot_be_sent_are_refused_before_anything_is_written() -> None:
    async with living(a_world(max_payload_bytes=10)) as world:
        process = world.process()
        for arguments in ({"long": "ü" * 5}, {"nan": float("nan")}):
            with pytest.raises(InvalidArguments):
                await process.ask(process.service.create(new(arguments=arguments)))
        await passes(3)
        assert await world.store.get("me", "t") is None
        assert world.engine.calls == []


@pytest.mark.req("A-24", "A-32")
async def test_an_owners_tasks_are_capped_until_they_are_settled(stores: Stores) -> None:
    async with living(a_world(store=stores, cap=2)) as world:
        process = world.process()
        first = await created(process, "1")
        await created(process, "2")
        with pytest.raises(TooManyTasks):
            await process.ask(process.service.create(new("3")))
        assert await world.store.get("me", "3") is None
        await created(process, "1", owner="them")
        world.engine.stop_works = False
        await process.service.cancel("me", "1", at_once=True)
        with pytest.raises(TooManyTasks):
            await process.ask(process.service.create(new("3")))
        world.engine.stop_works = True
        await passes(20)
        assert (await world.task("1")).settled
        await created(process, "3")
        assert len(world.executions(first)) == 1


@pytest.mark.req("A-4")
async def test_a_task_is_announced_after_its_row_and_before_its_start() -> None:
    async with living(a_world()) as world:
        process = world.process()

        async def announce(task: Task) -> None:
            assert await world.store.row(task.row_id) is not None
            await passes(0.8)
            assert world.engine.calls == []

        await process.ask(process.service.create(new(), announce))
        await passes(0.5)
        assert (await world.task()).status is Status.WORKING


async def test_a_client_that_takes_no_announcement_does_not_hold_up_its_start() -> None:
    async with living(a_world()) as world:
        process = world.process()

        async def announce(task: Task) -> None:
            await asyncio.get_running_loop().create_future()

        await process.ask(process.service.create(new(), announce))
        await passes(0.5)
        assert (await world.task()).status is Status.WORKING


async def test_a_client_that_leaves_during_the_announcement_leaves_a_task_that_runs() -> None:
    async with living(a_world()) as world:
        process = world.process()

        async def announce(task: Task) -> None:
            await asyncio.get_running_loop().create_future()

        with anyio.move_on_after(0.2):
            await process.service.create(new(), announce)
        await passes(0.5)
        assert (await world.task()).status is Status.WORKING


@pytest.mark.req("A-20", "A-36")
@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        (None, timedelta(hours=2)),
        (timedelta(0), timedelta(minutes=1)),
        (timedelta(minutes=5), timedelta(minutes=5)),
        (timedelta(days=400), timedelta(days=30)),
    ],
)
async def test_keep_alive_is_granted_within_bounds(
    wanted: timedelta | None, granted: timedelta
) -> None:
    async with living(a_world(tool=replace(TOOL, keep_alive=timedelta(hours=2)))) as world:
        process = world.process()
        task = await process.ask(process.service.create(new(keep_alive=wanted)))
        assert task.keep_alive == granted


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.case("K9")
@pytest.mark.req("A-18", "A-23")
async def test_a_foreign_task_is_no_task(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        await created(process)
        service = process.service
        for ask in (
            lambda: service.get("them", "t"),
            lambda: service.peek("them", "t"),
            lambda: service.cancel("them", "t", at_once=True),
            lambda: service.cancel("them", "t", at_once=False),
            lambda: service.delete("them", "t", cancel_running=True),
            lambda: service.get("me", "absent"),
        ):
            with pytest.raises(TaskNotFound):
                await process.ask(ask())
        await passes(3)
        assert (await world.task()).status is Status.WORKING


async def test_a_poll_brings_the_engines_latest_word() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        world.clock.jump(timedelta(minutes=5))
        await passes(0.001)
        finish(world, task)
        world.clock.jump(timedelta(seconds=6))
        assert (await process.ask(process.service.get("me", "t"))).status is Status.COMPLETED


async def test_a_poll_waits_no_longer_than_a_second_for_a_slow_engine() -> None:
    async def slow(method: str) -> None:
        await passes(8 if method == "observe" else 0)

    async with living(a_world(pause=slow)) as world:
        process = world.process()
        await created(process)
        await passes(20)
        begun = asyncio.get_running_loop().time()
        for _ in range(5):
            assert (await process.ask(process.service.get("me", "t"))).status is Status.WORKING
            await passes(1.5)
        assert asyncio.get_running_loop().time() - begun < 5 * 2.6


async def test_a_poll_during_a_back_off_asks_the_engine_nothing() -> None:
    async with living(a_world()) as world:
        process = world.process()
        await created(process)
        world.engine.fail("observe", Unavailable("later", retry_after=timedelta(minutes=5)))
        await passes(5)
        asked = len(world.engine.calls)
        for _ in range(20):
            task = await process.ask(process.service.get("me", "t"))
            assert task.last_error == "later"
            await passes(5)
        assert len(world.engine.calls) == asked


@pytest.mark.case("K6")
async def test_a_poll_notices_a_slow_stop_as_soon_as_it_would_notice_any_end() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        world.engine.stop_works = False
        await process.ask(process.service.cancel("me", "t", at_once=False))
        await passes(300)
        finish(world, task)
        await passes(6)
        assert (await process.ask(process.service.get("me", "t"))).status is Status.COMPLETED


@pytest.mark.case("K12")
@pytest.mark.req("A-14")
async def test_reading_changes_nothing(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        finish(world, await created(process))
        await passes(3)
        before = await world.task()
        for _ in range(3):
            task = await process.ask(process.service.get("me", "t"))
            assert await process.service.payload(task) == Payload(output='{"n":1}')
            await process.service.page("me", None)
        assert await world.task() == before


@pytest.mark.req("A-18", "A-19")
@pytest.mark.case("K4")
async def test_reads_follow_the_clock_not_the_clean_up(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        finish(world, await created(process))
        await passes(3)
        world.clock.jump(timedelta(days=1))
        with pytest.raises(TaskExpired):
            await process.ask(process.service.get("me", "t"))
        assert (await process.service.page("me", None)) == ([], None)
        assert (await world.task()).hidden_at is None


@pytest.mark.req("A-15", "A-35")
async def test_pages_hold_every_task_once_and_go_on_exactly_when_there_is_more(
    stores: Stores,
) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        names = [f"t{number}" for number in range(7)]
        for name in names:
            await process.ask(process.service.create(new(name)))
        await process.ask(process.service.create(new("foreign", owner="them")))
        for limit in (1, 3, 7, 8):
            seen: list[str] = []
            after, pages = None, 0
            while True:
                tasks, after = await process.service.page("me", after, limit)
                assert len(tasks) <= limit
                seen += [task.task_id for task in tasks]
                pages += 1
                if after is None:
                    break
            assert sorted(seen) == names
            assert pages == -(-7 // limit)


# --- cancelling and deleting ---------------------------------------------------------------------


@pytest.mark.case("K4", "K6")
@pytest.mark.req("A-21", "B-3")
async def test_cancelling_twice_is_told_and_stops_once(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        task = await created(process)
        cancelled = await process.ask(process.service.cancel("me", "t", at_once=True))
        assert (cancelled.status, cancelled.final_at is not None) == (Status.CANCELLED, True)
        with pytest.raises(AlreadyFinal):
            await process.ask(process.service.cancel("me", "t", at_once=True))
        await passes(10)
        task = await world.task()
        assert (task.settled, task.outcome) == (True, OutcomeKind.ABORTED)
        assert len(world.engine.called("stop")) == 1


@pytest.mark.req("C-6")
async def test_wishing_to_stop_twice_is_one_wish() -> None:
    async with living(a_world()) as world:
        process = world.process()
        await created(process)
        for _ in range(3):
            task = await process.ask(process.service.cancel("me", "t", at_once=False))
            assert task.status is Status.WORKING
        await passes(5)
        assert (await world.task()).status is Status.CANCELLED
        assert len(world.engine.called("stop")) == 1


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_cancel_before_the_start_means_that_nothing_is_started(at_once: bool) -> None:
    async with living(a_world()) as world:
        process = world.process()

        async def announce(task: Task) -> None:
            await process.service.cancel("me", "t", at_once=at_once)

        await process.ask(process.service.create(new(), announce))
        await passes(60)
        task = await world.task()
        assert (task.status, task.settled) == (Status.CANCELLED, True)
        assert world.engine.called("start") == []


async def test_a_cancel_works_while_the_engine_is_down() -> None:
    async with living(a_world()) as world:
        process = world.process()
        await created(process)
        world.engine.down = True
        task = await process.ask(process.service.cancel("me", "t", at_once=True))
        assert task.status is Status.CANCELLED
        await passes(300)
        world.engine.down = False
        await passes(100)
        assert (await world.task()).settled


async def test_an_inline_run_in_flight_cannot_be_stopped() -> None:
    async def slow(method: str) -> None:
        await passes(5)

    engine = InlineFakeAdapter(
        clock=lambda: world.store.now(), behaviours={"workflow": lambda _: DONE}, pause=slow
    )
    async with living(a_world(tool=replace(TOOL, inline=True), engine=engine)) as world:
        process = world.process()
        await created(process)
        for at_once in (True, False):
            with pytest.raises(CannotStop):
                await process.ask(process.service.cancel("me", "t", at_once=at_once))
        await passes(6)
        assert (await world.task()).status is Status.COMPLETED


@pytest.mark.req("A-16", "A-34")
async def test_only_what_has_ended_can_be_deleted(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        task = await created(process)
        with pytest.raises(StillRunning):
            await process.ask(process.service.delete("me", "t"))
        finish(world, task)
        await passes(3)
        await process.ask(process.service.delete("me", "t"))
        for _ in range(2):
            with pytest.raises(TaskNotFound):
                await process.ask(process.service.get("me", "t"))
            world.clock.jump(timedelta(hours=20))
        assert await world.store.payload(task.row_id) == Payload()
        assert await process.service.page("me", None) == ([], None)


@pytest.mark.req("A-16")
async def test_deleting_a_running_task_may_cancel_it_first() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        await process.ask(process.service.delete("me", "t", cancel_running=True))
        with pytest.raises(TaskNotFound):
            await process.service.peek("me", "t")
        await passes(10)
        (execution,) = world.executions(task)
        assert execution.has_ended


async def test_a_late_result_leaves_no_payload_behind_a_deletion() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        world.engine.stop_works = False
        await process.ask(process.service.delete("me", "t", cancel_running=True))
        assert task.ref is not None
        world.engine.finish(task.ref, Failed("Secret", "of the owner", None))
        await passes(60)
        row = await world.task()
        assert (row.settled, row.outcome) == (True, OutcomeKind.FAILED)
        assert await world.store.payload(task.row_id) == Payload()
        assert "Secret" not in str(row.status_message)
