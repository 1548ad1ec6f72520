"""One state machine over two processes, an engine and a database, against the invariants.

Everything runs on virtual time inside each rule. `HYPOTHESIS_PROFILE=long` looks for longer.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.core.virtual_time import VirtualTimeLoop
from tests.core.world import TOOL, Died, Process, World, a_world, new, passes
from workflow_bridge.adapter import (
    Aborted,
    Ended,
    Execution,
    Failed,
    Queued,
    Rejected,
    Running,
    Succeeded,
    TimedOut,
    Unavailable,
)
from workflow_bridge.core.service import AlreadyFinal, StillRunning, TaskExpired, TaskNotFound
from workflow_bridge.core.store import NameTaken
from workflow_bridge.core.task import LEGAL_MOVES, OutcomeKind, Status, Task
from workflow_bridge.testing.fake_adapter import FakeExecution

T = TypeVar("T")

OWNERS = st.sampled_from(["ann", "bob"])
NAMES = st.sampled_from(["t1", "t2", "t3"])
WHICH = st.integers(0, 1)
ENDS = st.sampled_from(
    [
        Succeeded({"n": 1}, None),
        Failed("Boom", "it broke", None),
        TimedOut(None, None, None),
        Aborted(None, None, None),
    ]
)
CALLS = st.sampled_from(["start", "observe", "stop", "find"])
ERRORS = st.sampled_from(
    [
        Unavailable("down"),
        Unavailable("slow down", throttled=True),
        Unavailable("later", retry_after=timedelta(minutes=3)),
        Unavailable("much later", retry_after=timedelta(days=2)),
    ]
)
STARTS_UP_TO = timedelta(seconds=20)


@dataclass
class Seen:
    """What clients were shown, and what happened, of one row."""

    shown: list[Status] = field(default_factory=list)
    announced: bool = False
    wanted: bool = False
    last: Task | None = None


class Bridges(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.latency = 0.0
        self.seen: dict[str, Seen] = {}
        self.rows: dict[str, Task] = {}
        self.lost_ends: set[str] = set()
        """Keys of executions that vanished."""
        self.removed: dict[str, Task] = {}

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    # --- the world -------------------------------------------------------------------------------

    @initialize(idempotent=st.booleans(), repeatable=st.booleans(), completes=st.booleans())
    def begin(self, idempotent: bool, repeatable: bool, completes: bool) -> None:
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        # Row ids spread delays: the same rules are to make the same example.
        chance = random.Random(0)
        self.entropy = patch("secrets.token_hex", lambda n: chance.randbytes(n).hex())
        self.entropy.start()

        async def build() -> tuple[World, list[Process]]:
            tool = replace(TOOL, idempotent=repeatable, failure_completes=completes)
            world = a_world(tool=tool, start_is_idempotent=idempotent, pause=self.pause)
            return world, [world.process(), world.process()]

        self.world, self.processes = self.do(build())

    async def pause(self, method: str) -> None:
        limit = STARTS_UP_TO.total_seconds() - 1
        await asyncio.sleep(min(self.latency, limit) if method == "start" else self.latency)

    def process(self, which: int) -> Process:
        return self.processes[which]

    # --- clients ---------------------------------------------------------------------------------

    @rule(owner=OWNERS, name=NAMES, which=WHICH)
    def create(self, owner: str, name: str, which: int) -> None:
        async def work() -> None:
            before = await self.world.store.get(owner, name)
            process = self.process(which)
            try:
                task = await process.ask(process.service.create(new(name, owner=owner)))
            except NameTaken:
                assert before is not None
                return
            except Died:
                return
            assert before is None, "a name that is still remembered was given again"
            self.seen[task.row_id] = Seen([task.status])
            await passes(0.01)

        self.answered(which, work())

    @rule(owner=OWNERS, name=NAMES, which=WHICH)
    def poll(self, owner: str, name: str, which: int) -> None:
        async def work() -> None:
            process = self.process(which)
            try:
                task = await process.ask(process.service.get(owner, name))
            except (TaskNotFound, TaskExpired, Died):
                return
            assert task.owner == owner
            self.show(task)

        self.answered(which, work())

    @rule(owner=OWNERS, name=NAMES, which=WHICH, at_once=st.booleans())
    def cancel(self, owner: str, name: str, which: int, at_once: bool) -> None:
        async def work() -> None:
            process = self.process(which)
            row = await self.world.store.get(owner, name)
            try:
                task = await process.ask(process.service.cancel(owner, name, at_once=at_once))
            except AlreadyFinal as exc:
                self.show(exc.task)
                return
            except (TaskNotFound, TaskExpired):
                return
            except Died:
                if row is not None:
                    # Done or not: the client cannot know.
                    self.of(row).announced |= at_once
                return
            self.show(task)
            self.of(task).announced |= at_once
            self.of(task).wanted = True
            assert task.stop_requested_at is not None
            assert not at_once or task.status is Status.CANCELLED

        self.answered(which, work())

    @rule(owner=OWNERS, name=NAMES, which=WHICH)
    def delete(self, owner: str, name: str, which: int) -> None:
        async def work() -> None:
            process = self.process(which)
            try:
                await process.ask(process.service.delete(owner, name))
            except StillRunning as exc:
                self.show(exc.task)
                return
            except (TaskNotFound, TaskExpired, Died):
                return
            with pytest.raises(TaskNotFound):
                await process.service.peek(owner, name)

        self.answered(which, work())

    def answered(self, which: int, work: Coroutine[Any, Any, None]) -> None:
        """Run a client's request; a frozen process answers nobody."""
        if self.process(which).dead or self.process(which).frozen:
            work.close()
            return
        self.do(work)

    def of(self, task: Task) -> Seen:
        return self.seen.setdefault(task.row_id, Seen())

    def show(self, task: Task) -> None:
        shown = self.of(task).shown
        if not shown or shown[-1] is not task.status:
            assert not shown or task.status in LEGAL_MOVES[shown[-1]], (shown, task.status)
            shown.append(task.status)

    # --- the engine ------------------------------------------------------------------------------

    def some_execution(self, pick: int) -> FakeExecution | None:
        open_ones = [e for e in self.world.engine.executions.values() if not e.has_ended]
        return open_ones[pick % len(open_ones)] if open_ones else None

    @rule(pick=st.integers(0, 5), end=ENDS)
    def execution_ends(self, pick: int, end: Ended) -> None:
        execution = self.some_execution(pick)
        if execution is not None:
            self.world.engine.finish(execution.ref, end)

    @rule(pick=st.integers(0, 5), state=st.sampled_from([Queued("q"), Running("r")]))
    def execution_moves(self, pick: int, state: Execution) -> None:
        execution = self.some_execution(pick)
        if execution is not None:
            self.world.engine.become(execution.ref, state)

    @rule(pick=st.integers(0, 5))
    def execution_vanishes(self, pick: int) -> None:
        execution = self.some_execution(pick)
        if execution is not None:
            self.lost_ends.add(execution.key)
            self.world.engine.vanish(execution.ref)

    @rule(call=CALLS, error=ERRORS, times=st.integers(1, 3))
    def calls_will_fail(self, call: str, error: Unavailable, times: int) -> None:
        self.world.engine.fail(call, error, times=times)

    @rule(call=CALLS, times=st.integers(1, 2))
    def replies_will_be_lost(self, call: str, times: int) -> None:
        self.world.engine.lose_reply(call, times=times)

    @rule()
    def a_start_will_be_rejected(self) -> None:
        self.world.engine.fail("start", Rejected("not allowed", error="AccessDenied"))

    @rule(down=st.booleans(), works=st.booleans())
    def engine_is(self, down: bool, works: bool) -> None:
        self.world.engine.down = down
        self.world.engine.stop_works = works

    @rule(seconds=st.sampled_from([0.0, 0.5, 15.0, 45.0]), lag=st.sampled_from([0, 30]))
    def engine_is_slow(self, seconds: float, lag: int) -> None:
        self.latency = seconds
        self.world.engine.find_lag = timedelta(seconds=lag)

    # --- processes and clocks --------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.001, 0.3, 1.0, 5.0, 35.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(passes(seconds))

    @rule(
        by=st.sampled_from(
            [timedelta(minutes=m) for m in (1, 5, 20, 65)] + [timedelta(days=d) for d in (1, 2)]
        )
    )
    @precondition(lambda self: not self.start_on_the_wire)
    def the_machines_sleep(self, by: timedelta) -> None:
        self.world.clock.jump(by)
        self.do(passes(0.1))

    @rule(by=st.sampled_from([timedelta(seconds=-3), timedelta(minutes=-30), timedelta(days=-1)]))
    @precondition(lambda self: not self.start_on_the_wire)
    def the_clock_is_set_back(self, by: timedelta) -> None:
        self.world.clock.be_set(by)
        self.do(passes(0.1))

    @property
    def start_on_the_wire(self) -> bool:
        return bool(self.world.on_the_wire) or any(p.frozen for p in self.processes)

    @rule(which=WHICH, points=st.integers(1, 12))
    def a_process_will_be_killed(self, which: int, points: int) -> None:
        process = self.process(which)
        process.dies_at = process.crossed + points

    @rule(which=WHICH)
    def a_process_is_replaced(self, which: int) -> None:
        async def work() -> Process:
            self.processes[which].kill()
            await passes(0.01)
            return self.world.process()

        self.processes[which] = self.do(work())

    @rule(which=WHICH)
    def a_process_ends_in_order(self, which: int) -> None:
        async def work() -> None:
            process = self.processes[which]
            if not process.dead and not process.frozen:
                ended = asyncio.ensure_future(process.close())
                await asyncio.wait({ended}, timeout=10)
                process.kill()
                ended.cancel()
                await asyncio.wait({ended})
            self.processes[which] = self.world.process()

        self.do(work())

    @rule(which=WHICH)
    def a_process_is_held_up(self, which: int) -> None:
        self.process(which).freeze()

    @rule(which=WHICH)
    def a_process_goes_on(self, which: int) -> None:
        self.process(which).thaw()
        self.do(passes(0.01))

    # --- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_laws_hold(self) -> None:
        self.do(self.check())

    async def check(self) -> None:
        for owner in ("ann", "bob"):
            for name in ("t1", "t2", "t3"):
                task = await self.world.store.get(owner, name)
                if task is not None:
                    self.rows[task.row_id] = task
        for row_id in list(self.rows):
            task = await self.world.store.row(row_id)
            if task is None:
                gone = self.rows.pop(row_id)
                assert gone.final, "a task was forgotten before its end"
                self.removed[gone.key] = gone
            else:
                self.check_row(task)
        keys = {task.key for task in self.rows.values()} | self.removed.keys()
        for execution in self.world.engine.executions.values():
            assert execution.key in keys, "an execution that belongs to no row"
        for process in self.processes:
            assert process.dead or process.running, "a loop has ended by itself"

    def check_row(self, task: Task) -> None:
        last = self.of(task).last
        self.of(task).last = task
        executions = self.world.executions(task)
        assert len(executions) <= 1, "started twice"
        if last is not None:
            assert task.status is last.status or task.status in LEGAL_MOVES[last.status]
            assert last.ref in (None, task.ref)
            assert last.outcome in (None, task.outcome)
        if task.ref is not None and executions:
            assert executions[0].ref == task.ref
        if not (task.final and task.settled):
            assert task.due_at is not None, "stuck"

    # --- in the end ------------------------------------------------------------------------------

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.do(self.calm_down())
            finally:
                self.do(self.world.end())
                self.runner.close()
                self.entropy.stop()

    async def calm_down(self) -> None:
        """Heal everything, let all work end, and compare."""
        engine = self.world.engine
        self.latency, engine.down, engine.stop_works = 0.0, False, True
        engine._faults.clear()
        engine.find_lag = timedelta(0)
        for process in self.processes:
            process.thaw()
        await passes(50)
        for process in self.processes:
            process.kill()
        await passes(1)
        self.world.process()
        await passes(50)
        for _ in range(200):
            await self.check()
            if not any(await self.unsettled()):
                break
            await self.skip()
            for execution in engine.executions.values():
                if not execution.has_ended:
                    engine.finish(execution.ref, Succeeded({"n": 1}, None))
        left = await self.unsettled()
        assert not left, f"never settled: {left}"
        for task in self.rows.values():
            await self.compare(task)
        for task in self.removed.values():
            for execution in self.world.executions(task):
                assert execution.has_ended, "forgotten while it ran"

    async def skip(self) -> None:
        """Go to when something is next due."""
        next_due = await self.world.store.next_due(["engine"])
        wait = timedelta(hours=1) if next_due is None else next_due - self.world.store.now()
        self.world.clock.jump(min(max(wait, timedelta(seconds=20)), timedelta(hours=1)))
        await passes(3)

    async def unsettled(self) -> list[Task]:
        rows = [await self.world.store.row(row_id) for row_id in self.rows]
        return [row for row in rows if row is not None and not (row.final and row.settled)]

    async def compare(self, task: Task) -> None:
        row = await self.world.store.row(task.row_id)
        if row is None:
            return
        executions = self.world.executions(row)
        seen = self.of(row)
        if row.ref is None:
            assert not [e for e in executions if not e.has_ended], "an execution runs unwatched"
            assert not executions or row.key in self.lost_ends, "an execution was overlooked"
        for execution in executions:
            assert execution.ref == row.ref
            assert execution.has_ended
            kind = {
                Succeeded: OutcomeKind.SUCCEEDED,
                Failed: OutcomeKind.FAILED,
                TimedOut: OutcomeKind.TIMED_OUT,
                Aborted: OutcomeKind.ABORTED,
            }[type(execution.execution)]
            assert row.outcome is kind, (row, execution)
            if not seen.announced:
                completes = self.world.tools["tool"].failure_completes
                failed = Status.COMPLETED if completes else Status.FAILED
                assert (
                    row.status
                    is {
                        OutcomeKind.SUCCEEDED: Status.COMPLETED,
                        OutcomeKind.FAILED: failed,
                        OutcomeKind.TIMED_OUT: failed,
                        OutcomeKind.ABORTED: Status.CANCELLED,
                    }[kind]
                )
        if row.outcome is OutcomeKind.LOST:
            assert not executions or row.key in self.lost_ends
            assert row.key in self.lost_ends or not self.world.engine.start_is_idempotent
        assert not row.stop_pending


SHORT = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
)
LONG = settings(SHORT, max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "2000")))


@pytest.mark.timeout(0)
@pytest.mark.case("S6", "D1", "D2", "K3", "K4", "K6", "T2")
@pytest.mark.req("A-7", "A-21", "A-26")
def test_whatever_fails_dies_or_jumps_the_invariants_hold() -> None:
    profile = LONG if os.environ.get("HYPOTHESIS_PROFILE") == "long" else SHORT
    run_state_machine_as_test(Bridges, settings=profile)
