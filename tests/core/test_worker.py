"""The loop: one start, one adopted execution, one look per interval, whatever fails or dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import anyio
import pytest

from tests.core.world import TOOL, Died, Process, World, a_world, eventually, living, new, passes
from workflow_bridge.adapter import (
    Aborted,
    Execution,
    Failed,
    Json,
    Queued,
    Rejected,
    Running,
    Succeeded,
    Unavailable,
)
from workflow_bridge.core.policy import Tool
from workflow_bridge.core.service import AlreadyFinal
from workflow_bridge.core.store import MAX_SLEEP, TaskStore
from workflow_bridge.core.task import Event, OutcomeKind, Payload, Status, Task
from workflow_bridge.testing.fake_adapter import FakeAdapter, InlineFakeAdapter
from workflow_bridge.testing.memory_store import MemoryTaskStore

pytestmark = pytest.mark.anyio

Stores = Callable[[Callable[[], float]], TaskStore]
DONE = Succeeded({"n": 1}, None)
SENT_ONCE: dict[str, Any] = {"start_is_idempotent": False}


async def created(process: Process, task_id: str = "t") -> Task:
    await process.ask(process.service.create(new(task_id)))
    await passes(0.5)
    return await process.world.task(task_id)


def finish_all(world: World, end: Succeeded | Failed = DONE) -> None:
    for engine in world.engines.values():
        for ref, execution in engine.executions.items():
            if not execution.has_ended:
                engine.finish(ref, end)


# --- row first -----------------------------------------------------------------------------------


async def test_a_row_is_committed_and_through_the_gate_before_its_engine_is_called(
    stores: Stores,
) -> None:
    seen: list[Task] = []

    async def look(method: str) -> None:
        if method == "start":
            seen.append(await world.task())

    async with living(a_world(store=stores, pause=look)) as world:
        await created(world.process())
    assert [task.start_in_doubt for task in seen] == [True]


@pytest.mark.case("D1", "R13")
async def test_every_retry_of_a_start_sends_the_same_bytes_under_the_same_key() -> None:
    async with living(a_world()) as world:
        world.engine.lose_reply(times=2)
        world.engine.fail("start", Unavailable("down"), times=2)
        process = world.process()
        task = await process.ask(process.service.create(new(arguments={"ü": [1.5, None]})))
        await passes(300)
        assert len(world.engine.called("start")) == 5
        assert {call.key for call in world.engine.called("start")} == {task.key}
        (execution,) = world.executions(task)
        assert execution.payload == '{"ü":[1.5,null]}'.encode()
        assert (await world.task()).ref == execution.ref


# --- kill it anywhere ----------------------------------------------------------------------------


async def live(process: Process, end: str) -> None:
    """Create a task, and end it in some way."""
    await process.ask(process.service.create(new()))
    await passes(1.5)
    match end:
        case "ends":
            finish_all(process.world)
        case "cancel at once":
            await process.ask(process.service.cancel("me", "t", at_once=True))
        case _:
            await process.ask(process.service.cancel("me", "t", at_once=False))
    await passes(2.5)


@pytest.mark.case("D1", "S6", "K6")
@pytest.mark.parametrize("end", ["ends", "cancel at once", "wish to stop"])
@pytest.mark.parametrize(
    ("settings", "lost"), [({}, False), ({}, True), (SENT_ONCE, False), (SENT_ONCE, True)]
)
async def test_a_process_may_be_killed_at_any_point_and_the_next_one_converges(
    settings: dict[str, Any], lost: bool, end: str
) -> None:
    for point in count(1):
        async with living(a_world(**settings)) as world:
            if lost:
                world.engine.lose_reply()
            first = world.process()
            first.dies_at = point
            try:
                await live(first, end)
            except Died:
                pass
            else:
                if not first.dead:
                    assert point > 20
                    return
            if await world.store.get("me", "t") is None:
                assert world.engine.executions == {}
                continue
            world.process()
            await passes(35)
            finish_all(world)
            await eventually(partial(settled, world), within=timedelta(minutes=4))
            await agrees(world, f"killed at {first.trace[-1]}")


async def settled(world: World) -> bool:
    task = await world.task()
    return task.final and task.settled


async def agrees(world: World, why: str) -> None:
    """Check that the task tells of its one execution what is true."""
    task = await world.task()
    executions = world.executions(task)
    if task.ref is None:
        assert not executions, why
        assert task.outcome in {OutcomeKind.LOST, OutcomeKind.ABORTED, None}, why
        return
    (execution,) = executions
    assert execution.ref == task.ref, why
    assert execution.has_ended, why
    ends = {
        OutcomeKind.SUCCEEDED: (Status.COMPLETED, Succeeded),
        OutcomeKind.ABORTED: (Status.CANCELLED, Aborted),
    }
    assert task.outcome is not None, why
    status, kind = ends[task.outcome]
    assert isinstance(execution.execution, kind), why
    assert task.status in {status, Status.CANCELLED}, why


async def test_an_inline_run_whose_process_is_killed_is_never_run_again() -> None:
    def engine(calls: asyncio.Event) -> InlineFakeAdapter:
        async def hang(method: str) -> None:
            calls.set()
            await passes(10)

        return InlineFakeAdapter(
            clock=lambda: world.store.now(), behaviours={"workflow": lambda _: DONE}, pause=hang
        )

    running = asyncio.Event()
    tool = replace(TOOL, inline=True)
    async with living(a_world(tool=tool, engine=engine(running))) as world:
        first = world.process()
        await first.ask(first.service.create(new()))
        await running.wait()
        first.kill()
        world.process()
        await passes(400)
        task = await world.task()
        assert (task.status, task.outcome, task.settled) == (
            Status.UNKNOWN,
            OutcomeKind.LOST,
            True,
        )
        assert len(world.engine.called("run")) == 1


async def test_an_inline_run_ends_its_task_with_its_output() -> None:
    engine = InlineFakeAdapter(
        clock=lambda: world.store.now(), behaviours={"workflow": lambda arguments: DONE}
    )
    async with living(a_world(tool=replace(TOOL, inline=True), engine=engine)) as world:
        task = await created(world.process())
        assert (task.status, task.ref) == (Status.COMPLETED, None)
        assert await world.store.payload(task.row_id) == Payload(output='{"n":1}')
        assert engine.called("start") == []


# --- starts that fail ----------------------------------------------------------------------------


@pytest.mark.case("F11")
async def test_a_rejected_start_fails_the_task_and_is_not_repeated() -> None:
    async with living(a_world()) as world:
        refusal = Rejected("not allowed to start executions", error="AccessDenied")
        world.engine.fail("start", refusal)
        task = await created(world.process())
        assert (task.status, task.outcome) == (Status.FAILED, OutcomeKind.REJECTED)
        assert task.status_message == "AccessDenied: not allowed to start executions"
        await passes(100)
        assert len(world.engine.called("start")) == 1


@pytest.mark.case("D3", "D5")
async def test_a_clash_of_keys_is_not_retried_nor_adopted() -> None:
    async with living(a_world()) as world:
        world.engine.fail("start", Rejected("another input", error="Exists", clash=True))
        task = await created(world.process())
        await passes(100)
        assert (await world.task()).status is Status.FAILED
        assert (len(world.engine.called("start")), world.executions(task)) == (1, [])


async def test_a_start_in_doubt_is_not_failed_by_a_rejection_of_its_repetition() -> None:
    async with living(a_world()) as world:
        world.engine.find_lag = timedelta(seconds=30)
        world.engine.lose_reply()
        world.engine.fail("start", Rejected("no longer allowed"), times=50)
        process = world.process()
        await created(process)
        await passes(70)
        task = await world.task()
        assert (task.status, task.ref) == (Status.WORKING, world.executions(task)[0].ref)


async def test_a_rejection_ends_a_doubt_in_which_nothing_came_to_light() -> None:
    async with living(a_world()) as world:
        world.engine.fail("start", Unavailable("x"))
        process = world.process()
        first = await process.ask(process.service.create(new()))
        process.kill()
        in_doubt = replace(await world.task(), start_called_at=first.created_at, lease_until=None)
        assert await world.store.apply(await world.task(), in_doubt)
        world.engine.fail("start", Rejected("not allowed", error="AccessDenied"), times=50)
        world.process()
        await passes(120)
        task = await world.task()
        assert (task.status, task.outcome) == (Status.FAILED, OutcomeKind.REJECTED)
        assert "AccessDenied: not allowed" in str(task.status_message)


async def test_an_engine_that_stays_down_fails_a_start_that_never_was() -> None:
    async with living(a_world()) as world:
        world.engine.down = True
        process = world.process()
        await created(process)
        await passes(890)
        assert (await world.task()).status is Status.SUBMITTED
        await passes(20)
        task = await world.task()
        assert (task.status, task.outcome) == (Status.FAILED, OutcomeKind.REJECTED)
        assert "the engine is down" in str(task.status_message)
        assert len(world.engine.called("start")) < 40


async def test_a_lost_start_is_adopted_when_it_comes_to_light() -> None:
    async with living(a_world(**SENT_ONCE)) as world:
        world.engine.find_lag = timedelta(seconds=40)
        world.engine.lose_reply()
        task = await created(world.process())
        assert task.start_in_doubt
        await passes(85)
        task = await world.task()
        assert (task.status, task.ref) == (Status.WORKING, world.executions(task)[0].ref)
        assert len(world.engine.called("start")) == 1


async def test_a_start_that_left_no_trace_is_unknown_and_not_sent_again() -> None:
    async with living(a_world(**SENT_ONCE)) as world:
        world.engine.lose_reply()
        task = await created(world.process())
        world.engine.vanish(world.executions(task)[0].ref)
        await passes(120)
        task = await world.task()
        assert (task.status, task.outcome) == (Status.UNKNOWN, OutcomeKind.LOST)
        assert len(world.engine.called("start")) == 1


async def test_extra_executions_are_stopped_and_recorded() -> None:
    async with living(a_world(**SENT_ONCE)) as world:
        world.engine.lose_reply()
        process = world.process()
        task = await process.ask(process.service.create(new()))
        await passes(0.1)
        (first,) = world.executions(task)
        await passes(0.1)
        extra = world.engine.duplicate(first.ref)
        await passes(30)
        task = await world.task()
        assert task.ref == first.ref
        assert world.engine.executions[extra].has_ended
        assert not first.has_ended
        events = [event for _, event in await world.store.events(task.row_id)]
        assert Event("extra_stopped", Status.SUBMITTED, extra) in events


async def test_an_extra_execution_is_stopped_even_if_the_first_attempt_to_fails() -> None:
    async with living(a_world(**SENT_ONCE)) as world:
        world.engine.lose_reply()
        process = world.process()
        task = await process.ask(process.service.create(new()))
        await passes(0.2)
        extra = world.engine.duplicate(world.executions(task)[0].ref)
        world.engine.fail("stop", Unavailable("down"), times=2)
        await passes(120)
        assert world.engine.executions[extra].has_ended
        assert (await world.task()).status is Status.WORKING


# --- replicas ------------------------------------------------------------------------------------


@pytest.mark.case("S3")
async def test_many_replicas_start_each_task_once(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        replicas = [world.process() for _ in range(3)]
        for number in range(12):
            replica = replicas[number % 3]
            await replica.ask(replica.service.create(new(str(number))))
        replicas[0].kill()
        await passes(60)
        assert len(world.engine.executions) == 12
        for number in range(12):
            task = await world.task(str(number))
            assert (task.status, len(world.executions(task))) == (Status.WORKING, 1)
        assert len(world.engine.called("start")) == 12


@pytest.mark.req("A-24")
async def test_however_many_poll_the_engine_is_asked_once_per_poll_interval(
    stores: Stores,
) -> None:
    async with living(a_world(store=stores)) as world:
        replicas = [world.process() for _ in range(2)]
        await created(replicas[0])
        await passes(10)
        before = len(world.engine.called("observe"))

        async def poll(replica: Process) -> None:
            for _ in range(60):
                await replica.ask(replica.service.get("me", "t"))
                await passes(0.5)

        async with anyio.create_task_group() as clients:
            for number in range(10):
                clients.start_soon(poll, replicas[number % 2])
        asked = len(world.engine.called("observe")) - before
        assert 4 <= asked <= 7


async def test_a_row_leased_by_a_dead_process_is_taken_over_when_the_lease_lapses() -> None:
    async def slow(method: str) -> None:
        if method == "observe":
            await passes(5)

    async with living(a_world(pause=slow)) as world:
        first = world.process()
        await created(first)
        await passes(1)
        assert len(world.engine.called("observe")) == 1
        first.kill()
        world.process()
        await passes(25)
        assert len(world.engine.called("observe")) == 1
        await passes(10)
        assert len(world.engine.called("observe")) >= 2


@pytest.mark.case("D2", "F7")
async def test_the_late_answer_of_a_lapsed_lease_changes_nothing() -> None:
    async with living(a_world()) as world:
        first = world.process()
        task = await created(first)
        assert task.ref is not None
        world.engine.finish(task.ref, Failed("Boom", "once", None))
        first.freeze()
        second = world.process()
        await passes(90)
        done = await world.task()
        assert (done.status, done.outcome) == (Status.FAILED, OutcomeKind.FAILED)
        world.engine.become(task.ref, DONE)
        first.thaw()
        second.kill()
        await passes(90)
        assert await world.task() == done
        assert (await world.store.payload(task.row_id)).error == "Boom"


async def test_a_start_answered_after_another_worker_repeated_it_binds_the_same_execution() -> None:
    async def slow(method: str) -> None:
        await passes(2 if method == "start" else 0)

    async with living(a_world(pause=slow)) as world:
        first = world.process()
        await first.ask(first.service.create(new()))
        await passes(1)
        first.freeze()
        world.process()
        await passes(60)
        assert len(world.engine.called("start")) == 2
        first.thaw()
        await passes(5)
        task = await world.task()
        assert [execution.ref for execution in world.executions(task)] == [task.ref]
        assert task.status is Status.WORKING


async def test_a_late_refusal_gives_way_to_a_start_that_another_worker_has_let_through() -> None:
    async def slow(method: str) -> None:
        if method == "start":
            await passes(2 if len(world.engine.called("start")) == 1 else 15)

    async with living(a_world(pause=slow)) as world:
        world.engine.fail("start", Rejected("not allowed"))
        first = world.process()
        await first.ask(first.service.create(new()))
        await passes(1)
        first.freeze()
        world.process()
        await passes(35)
        assert len(world.engine.called("start")) == 2
        first.thaw()
        await passes(60)
        task = await world.task()
        assert (task.status, task.last_error) == (Status.WORKING, None)


async def test_a_start_that_names_another_execution_than_the_adopted_one_stops_that() -> None:
    async def slow(method: str) -> None:
        await passes(8 if method == "start" else 0)

    async with living(a_world(pause=slow, **SENT_ONCE)) as world:
        first = world.process()
        task = await first.ask(first.service.create(new()))
        await passes(1)
        first.freeze()
        await passes(9)
        (late,) = world.executions(task)
        early = world.engine.executions[world.engine.duplicate(late.ref)]
        early.created_at = task.created_at
        world.engine.find_lag = timedelta(seconds=25)
        world.process()
        await passes(24)
        assert (await world.task()).ref == early.ref
        first.thaw()
        await passes(20)
        assert (await world.task()).ref == early.ref
        assert (late.has_ended, early.has_ended) == (True, False)


async def test_a_process_held_up_behind_the_gate_does_not_start_late() -> None:
    class SlowOnce(MemoryTaskStore):
        """Answers its first `apply`, which is the gate, after the start's doubt has ended."""

        slow = True

        async def apply(
            self,
            before: Task,
            after: Task,
            *,
            payload: Payload | None = None,
            events: Sequence[Event] = (),
        ) -> Task | None:
            slow, self.slow = self.slow, False
            written = await super().apply(before, after, payload=payload, events=events)
            if slow:
                await passes(100)
            return written

    async with living(a_world(store=SlowOnce, **SENT_ONCE)) as world:
        first = world.process()
        await first.ask(first.service.create(new()))
        world.process()
        await passes(95)
        assert (await world.task()).status is Status.UNKNOWN
        await passes(100)
        assert world.engine.calls
        assert world.engine.called("start") == []


# --- cancelling ----------------------------------------------------------------------------------


@pytest.mark.case("K6")
@pytest.mark.req("A-21")
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("settings", [{}, SENT_ONCE])
async def test_a_cancel_while_the_start_is_in_flight_stops_what_was_started(
    settings: dict[str, Any], at_once: bool
) -> None:
    async def slow(method: str) -> None:
        if method == "start":
            await passes(10)

    async with living(a_world(pause=slow, **settings)) as world:
        process = world.process()
        await created(process)
        await passes(1)
        await process.ask(process.service.cancel("me", "t", at_once=at_once))
        await passes(60)
        task = await world.task()
        assert (task.status, task.settled) == (Status.CANCELLED, True)
        (execution,) = world.executions(task)
        assert execution.has_ended
        assert len(world.engine.called("start")) == 1


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_cancel_while_a_look_is_in_flight_reaches_the_engine(at_once: bool) -> None:
    async def slow(method: str) -> None:
        if method == "observe":
            await passes(10)

    async with living(a_world(pause=slow)) as world:
        process = world.process()
        await created(process)
        await passes(2)
        assert len(world.engine.called("observe")) == 1
        await process.ask(process.service.cancel("me", "t", at_once=at_once))
        await passes(10)
        assert len(world.engine.called("stop")) == 1
        await passes(50)
        task = await world.task()
        assert (task.status, task.settled) == (Status.CANCELLED, True)


@pytest.mark.case("K6")
async def test_a_stop_is_repeated_until_the_engine_confirms_it(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        task = await created(process)
        world.engine.fail("stop", Unavailable("down"), times=3)
        world.engine.stop_works = False
        await process.ask(process.service.cancel("me", "t", at_once=True))
        await passes(200)
        assert (await world.task()).stop_pending
        world.engine.stop_works = True
        await passes(300)
        task = await world.task()
        assert (task.settled, task.outcome) == (True, OutcomeKind.ABORTED)
        stops = len(world.engine.called("stop"))
        await passes(300)
        assert len(world.engine.called("stop")) == stops


@pytest.mark.case("T2", "F10")
async def test_a_task_that_succeeded_before_its_stop_arrived_says_so() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        world.engine.fail("observe", Unavailable("down"))
        world.engine.fail("stop", Unavailable("down"))
        assert task.ref is not None
        await process.ask(process.service.cancel("me", "t", at_once=True))
        world.engine.finish(task.ref, DONE)
        await passes(60)
        task = await world.task()
        assert (task.status, task.outcome, task.settled) == (
            Status.CANCELLED,
            OutcomeKind.SUCCEEDED,
            True,
        )
        assert "had succeeded" in str(task.status_message)
        assert (await world.store.payload(task.row_id)).output == '{"n":1}'


@pytest.mark.case("F10")
async def test_a_cancel_of_a_task_that_has_just_ended_is_told_so() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        assert task.ref is not None
        world.engine.finish(task.ref, DONE)
        with pytest.raises(AlreadyFinal):
            await process.ask(process.service.cancel("me", "t", at_once=True))
        assert (await world.task()).status is Status.COMPLETED
        assert world.engine.called("stop") == []


async def test_a_delete_while_a_stop_is_pending_hides_at_once_and_removes_when_confirmed(
    stores: Stores,
) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        task = await created(process)
        world.engine.stop_works = False
        await process.ask(process.service.cancel("me", "t", at_once=True))
        await process.ask(process.service.delete("me", "t"))
        assert not (await world.task()).visible(world.store.now())
        world.clock.jump(timedelta(days=2))
        await passes(10)
        assert (await world.task()).stop_pending
        world.engine.stop_works = True
        world.clock.jump(timedelta(hours=1))
        await passes(10)
        assert await world.store.get("me", "t") is None
        assert world.executions(task)[0].has_ended


# --- outages -------------------------------------------------------------------------------------


@pytest.mark.case("F1")
@pytest.mark.parametrize(
    "error", [Unavailable("down"), Unavailable("slow down", throttled=True), Rejected("denied")]
)
async def test_an_outage_is_not_an_outcome(error: Unavailable | Rejected) -> None:
    async with living(a_world()) as world:
        process = world.process()
        await created(process)
        await passes(5)
        world.engine.fail("observe", error, times=10_000)
        await passes(300)
        task = await world.task()
        assert task.status is Status.WORKING
        assert task.last_error == str(error)
        assert task.last_observed_at is not None
        assert len(world.engine.called("observe")) < 20


@pytest.mark.case("F1")
async def test_throttling_lengthens_the_poll_interval_and_success_shortens_it_again() -> None:
    async with living(a_world()) as world:
        process = world.process(rate=10)
        task = await created(process)
        world.engine.fail("observe", Unavailable("slow", throttled=True), times=3)
        await passes(60)
        stretched = process.service.poll_interval(task)
        assert stretched > 2 * task.poll_interval
        process.backends["engine"].budget.succeeded()
        assert process.service.poll_interval(task) < stretched


async def test_a_budget_that_is_spent_for_hours_puts_a_task_off_once_and_for_an_hour_at_most() -> (
    None
):
    async with living(a_world()) as world:
        await created(world.process(rate=0.0001))
        await passes(60)
        before = await world.task()
        assert before.due_at is not None
        assert timedelta(minutes=50) < before.due_at - world.store.now() <= MAX_SLEEP
        await passes(600)
        assert await world.task() == before


async def test_a_wait_that_the_engine_asks_for_is_granted_within_reason() -> None:
    async with living(a_world()) as world:
        process = world.process()
        await created(process)
        wait = Unavailable("later", retry_after=timedelta(minutes=10))
        world.engine.fail("observe", wait)
        await passes(5)
        asked = len(world.engine.called("observe"))
        await passes(590)
        assert len(world.engine.called("observe")) == asked
        for_ever = Unavailable("later", retry_after=timedelta(days=3))
        world.engine.fail("observe", for_ever)
        await passes(30)
        asked = len(world.engine.called("observe"))
        await passes(1800)
        assert len(world.engine.called("observe")) == asked
        await passes(1800)
        assert len(world.engine.called("observe")) > asked


@pytest.mark.case("S8", "F13")
async def test_an_orphan_is_asked_for_less_and_less_often_and_ends() -> None:
    async with living(a_world()) as world:
        task = await created(world.process())
        assert task.ref is not None
        world.engine.vanish(task.ref)
        await passes(600)
        first = len(world.engine.called("observe"))
        await passes(600)
        second = len(world.engine.called("observe")) - first
        assert second < first < 25
        assert (await world.task()).status is Status.WORKING
        world.clock.jump(timedelta(minutes=45))
        await passes(120)
        task = await world.task()
        assert (task.status, task.outcome) == (Status.UNKNOWN, OutcomeKind.LOST)
        asked = len(world.engine.calls)
        world.clock.jump(timedelta(hours=20))
        await passes(60)
        assert len(world.engine.calls) == asked


@pytest.mark.case("F13")
async def test_a_result_outlives_the_execution_at_the_engine() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        assert task.ref is not None
        world.engine.finish(task.ref, DONE)
        await passes(2)
        world.engine.vanish(task.ref)
        world.clock.jump(timedelta(hours=5))
        await passes(5)
        task = await process.ask(process.service.get("me", "t"))
        assert (await process.ask(process.service.payload(task))).output == '{"n":1}'


async def test_a_fault_in_an_adapter_backs_off_its_row_and_stops_nothing(
    faults: list[str],
) -> None:
    async def fault(method: str) -> None:
        if method == "observe" and len(world.engine.called("observe")) < 4:
            raise ZeroDivisionError

    async with living(a_world(pause=fault)) as world:
        process = world.process()
        await created(process)
        await passes(5)
        task = await world.task()
        assert (task.status, task.attempts, task.last_error) == (
            Status.WORKING,
            1,
            "internal error of the bridge",
        )
        await created(process, "other")
        await passes(120)
        assert process.running
        assert (await world.task()).last_error is None
        assert (await world.task("other")).status is Status.WORKING
    assert {fault.split(":")[0] for fault in faults} == {"step_failed"}
    faults.clear()


async def test_a_fault_while_starting_leaves_the_start_in_doubt(faults: list[str]) -> None:
    async def fault(method: str) -> None:
        if method == "start":
            raise ZeroDivisionError

    async with living(a_world(pause=fault, **SENT_ONCE)) as world:
        process = world.process()
        task = await created(process)
        assert task.start_in_doubt
        await passes(120)
        assert (await world.task()).status is Status.UNKNOWN
        assert len(world.engine.called("start")) == 1
    faults.clear()


@pytest.mark.parametrize("method", ["claim", "next_due", "row", "versions", "claim_row", "apply"])
async def test_a_database_that_fails_for_a_while_stops_no_loop(
    method: str, faults: list[str]
) -> None:
    async with living(a_world()) as world:
        process = world.process()
        await created(process)
        healthy = getattr(world.store, method)

        async def broken(*args: object, **kwargs: object) -> object:
            raise OSError("disk")

        setattr(world.store, method, broken)
        task = await world.task()
        with anyio.move_on_after(10):
            async with process.service.watch(task) as watch:
                async for _ in watch:
                    pass
        await passes(20)
        setattr(world.store, method, healthy)
        finish_all(world)
        await passes(60)
        assert process.running
        assert (await world.task()).status is Status.COMPLETED
    faults.clear()


async def test_a_backend_that_hangs_holds_up_no_other() -> None:
    async def hang(method: str) -> None:
        await asyncio.get_running_loop().create_future()

    dead = FakeAdapter(clock=lambda: world.store.now(), pause=hang)
    other = Tool(name="other", backend="dead", workflow="workflow")
    async with living(a_world(others={"dead": dead}, tools={"other": other})) as world:
        process = world.process()
        for number in range(80):
            await process.ask(process.service.create(new(f"d{number}", tool="other")))
        task = await created(process)
        assert task.status is Status.WORKING
        finish_all(world)
        await passes(5)
        assert (await world.task()).status is Status.COMPLETED


async def test_a_row_of_a_backend_that_nobody_has_is_left_alone() -> None:
    async with living(a_world()) as world:
        task = await created(world.process())
        gone = replace(task, backend="gone", due_at=world.store.now())
        assert await world.store.apply(task, gone) is not None
        process = world.process()
        await passes(60)
        assert process.running
        task = await process.ask(process.service.get("me", "t"))
        assert task.status is Status.WORKING
        task = await process.ask(process.service.cancel("me", "t", at_once=True))
        assert (task.status, task.stop_pending) == (Status.CANCELLED, True)


async def test_a_thousand_rows_due_at_once_are_looked_at_at_the_backends_rate() -> None:
    async with living(a_world()) as world:
        process = world.process()
        for number in range(300):
            await process.ask(process.service.create(new(str(number))))
        await passes(30)
        process.kill()
        world.clock.jump(timedelta(hours=1))
        world.process(rate=10)
        asked = len(world.engine.called("observe"))
        crossed = world.processes[-1].crossed
        await passes(10)
        looks = len(world.engine.called("observe")) - asked
        assert 90 <= looks <= 125
        assert world.processes[-1].crossed - crossed < 300 * 12


# --- clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [timedelta(days=-1), timedelta(minutes=-20), timedelta(days=1)])
async def test_a_clock_that_jumps_stops_no_task(stores: Stores, jump: timedelta) -> None:
    async with living(a_world(store=stores)) as world:
        process = world.process()
        await created(process)
        await passes(30)
        world.clock.be_set(jump)
        await passes(5)
        finish_all(world)
        await process.ask(process.service.get("me", "t"))
        await passes(10)
        await process.ask(process.service.get("me", "t"))
        assert (await world.task()).status is Status.COMPLETED


async def test_a_lost_start_is_found_by_a_bridge_whose_clock_is_fast() -> None:
    async with living(a_world(**SENT_ONCE)) as world:
        world.clock.be_set(timedelta(minutes=50))
        world.engine.lose_reply()
        task = await created(world.process())
        await passes(30)
        assert (await world.task()).ref == world.executions(task)[0].ref


# --- ends ----------------------------------------------------------------------------------------


async def test_an_orderly_end_waits_for_starts_and_releases_all_leases() -> None:
    async def slow(method: str) -> None:
        await passes(3 if method == "start" else 20)

    async with living(a_world(pause=slow)) as world:
        process = world.process()
        await created(process, "observed")
        await passes(5)
        await process.ask(process.service.create(new("starting")))
        await passes(1)
        assert len(world.engine.called("observe")) == 1
        await process.close()
        for task_id in ("observed", "starting"):
            task = await world.task(task_id)
            assert (task.lease_until, task.status) == (None, Status.WORKING)
        assert not process.running


async def test_a_process_that_ends_begins_nothing_new_and_leaves_it_to_the_next() -> None:
    async def slow(method: str) -> None:
        await passes(3 if method == "start" else 0)

    async with living(a_world(pause=slow)) as world:
        process = world.process()
        await process.ask(process.service.create(new("first")))
        await passes(1)
        ending = asyncio.ensure_future(process.close())
        await passes(0.1)
        await process.ask(process.service.create(new("during")))
        await ending
        await process.service.create(new("after"))
        assert (await world.task("first")).status is Status.WORKING
        assert len(world.engine.called("start")) == 1
        assert (await world.task("during")).lease_until is None
        world.process()
        await passes(5)
        assert (await world.task("during")).status is Status.WORKING
        await passes(30)
        assert (await world.task("after")).status is Status.WORKING


async def test_a_start_that_outlasts_the_grace_is_taken_over_without_a_second_execution() -> None:
    async def slow(method: str) -> None:
        await passes(15 if method == "start" else 0)

    async with living(a_world(pause=slow, **SENT_ONCE)) as world:
        process = world.process()
        await process.ask(process.service.create(new()))
        await passes(1)
        await process.close()
        task = await world.task()
        assert (task.lease_until, task.start_in_doubt) == (None, True)
        world.process()
        await passes(60)
        task = await world.task()
        assert [execution.ref for execution in world.executions(task)] == [task.ref]


@pytest.mark.case("K3", "K4")
@pytest.mark.req("A-19", "A-3")
async def test_a_task_expires_leaves_its_name_taken_and_is_forgotten(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        await created(world.process())
        world.clock.jump(timedelta(days=3))
        await passes(5)
        assert (await world.task()).status is Status.WORKING
        finish_all(world)
        world.clock.jump(timedelta(minutes=20))
        await passes(5)
        task = await world.task()
        assert task.status is Status.COMPLETED
        world.clock.jump(timedelta(days=1))
        await passes(5)
        task = await world.task()
        assert task.hidden_at is not None
        assert await world.store.payload(task.row_id) == Payload()
        world.clock.jump(timedelta(days=1))
        await passes(5)
        assert await world.store.get("me", "t") is None
        assert len(await world.store.events(task.row_id)) > 3


async def test_arguments_are_dropped_once_the_start_is_settled(stores: Stores) -> None:
    async with living(a_world(store=stores)) as world:
        world.engine.fail("start", Unavailable("down"))
        process = world.process()
        task = await process.ask(process.service.create(new()))
        await passes(0.5)
        assert (await world.store.payload(task.row_id)).arguments == b'{"n":1}'
        await passes(20)
        assert await world.store.payload(task.row_id) == Payload()


@pytest.mark.case("T8")
async def test_a_queued_execution_is_submitted_with_the_engines_message() -> None:
    def queue(arguments: Json) -> Execution:
        return Queued("waiting for a slot")

    async with living(a_world(behaviours={"workflow": queue})) as world:
        task = await created(world.process())
        assert (task.status, task.status_message) == (Status.SUBMITTED, "waiting for a slot")
        assert task.ref is not None
        world.engine.become(task.ref, Running())
        await passes(5)
        assert (await world.task()).status is Status.WORKING


async def test_steps_are_read_only_while_somebody_listens() -> None:
    async with living(a_world()) as world:
        process = world.process()
        task = await created(process)
        assert task.ref is not None
        world.engine.enter(task.ref, "Charge")
        await passes(20)
        assert world.engine.called("narrate") == []
        async with process.service.watch(task, steps=True) as watch:
            with anyio.fail_after(20):
                async for seen in watch:
                    if seen.step == "Charge":
                        break
        asked = len(world.engine.called("narrate"))
        await passes(60)
        assert len(world.engine.called("narrate")) == asked
