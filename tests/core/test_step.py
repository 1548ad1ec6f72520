"""`next_step` and the transitions, one by one and in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.rows import (
    POLICY,
    REF,
    SENT_ONCE,
    T0,
    at,
    bound,
    called,
    fresh,
    minutes,
    seconds,
)
from workflow_bridge.adapter import (
    Aborted,
    Ended,
    Execution,
    ExecutionRef,
    Failed,
    Found,
    Queued,
    Running,
    Succeeded,
    TimedOut,
)
from workflow_bridge.core import step as steps
from workflow_bridge.core.policy import Policy
from workflow_bridge.core.step import next_step
from workflow_bridge.core.store import MAX_SLEEP
from workflow_bridge.core.task import LEGAL_MOVES, MESSAGE_LIMIT, OutcomeKind, Status, Task

SUCCEEDED = Succeeded({"n": 1}, at(60))
FAILED = Failed("Boom", "it broke", at(60))
TIMED_OUT = TimedOut(None, None, at(60))
ABORTED = Aborted(None, None, at(60))
ENDS: tuple[Ended, ...] = (SUCCEEDED, FAILED, TIMED_OUT, ABORTED)
OTHER = ExecutionRef("run:2")


def done(**changes: Any) -> Task:
    """A row completed at `T0`, to be kept for an hour."""
    ended = steps.ended(bound(), Status.COMPLETED, OutcomeKind.SUCCEEDED, None, T0)
    return replace(ended, **changes)


# --- which step ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "now", "policy", "step"),
    [
        pytest.param(fresh(), T0, POLICY, steps.Start(), id="a fresh row is started"),
        pytest.param(
            fresh(), at(899), POLICY, steps.Start(), id="a start is tried until start_within"
        ),
        pytest.param(
            fresh(), at(900), POLICY, steps.GiveUp(), id="a start that never began is given up"
        ),
        pytest.param(
            called(), at(30), POLICY, steps.Start(), id="an idempotent start is simply repeated"
        ),
        pytest.param(
            called(), at(900), POLICY, steps.Find(), id="after start_within it is looked for"
        ),
        pytest.param(
            called(), at(30), SENT_ONCE, steps.Find(), id="a start sent once is looked for"
        ),
        pytest.param(
            called(stop_requested_at=at(1)),
            at(30),
            POLICY,
            steps.Find(),
            id="an unwanted start is never repeated",
        ),
        pytest.param(
            fresh(stop_requested_at=at(1)),
            at(30),
            POLICY,
            steps.GiveUp(),
            id="an unwanted start is never made",
        ),
        pytest.param(
            called(inline=True), at(30), POLICY, steps.GiveUp(), id="an inline run leaves no trace"
        ),
        pytest.param(
            called(fingerprint="there"),
            at(30),
            POLICY,
            steps.Sleep(at(90)),
            id="a start made elsewhere is left to a replica that points there",
        ),
        pytest.param(
            called(fingerprint="there"),
            at(899),
            POLICY,
            steps.Sleep(at(900)),
            id="but no longer than start_within",
        ),
        pytest.param(
            called(fingerprint="there"), at(900), POLICY, steps.GiveUp(), id="then it is given up"
        ),
        pytest.param(
            fresh(fingerprint="there"),
            T0,
            POLICY,
            steps.Start(),
            id="a start not yet made follows the configuration",
        ),
        pytest.param(bound(), at(30), POLICY, steps.Observe(), id="a bound row is observed"),
        pytest.param(
            bound(stop_requested_at=at(1)), at(30), POLICY, steps.Stop(), id="a wanted stop is sent"
        ),
        pytest.param(
            bound(stop_requested_at=at(1), stop_confirmed_at=at(2)),
            at(30),
            POLICY,
            steps.Observe(),
            id="a confirmed stop is not sent again",
        ),
        pytest.param(
            done(stop_requested_at=at(1)),
            at(30),
            POLICY,
            steps.Stop(),
            id="a final row's stop is sent until confirmed",
        ),
        pytest.param(
            done(), at(30), POLICY, steps.Sleep(at(3600)), id="a final row sleeps until it expires"
        ),
        pytest.param(
            done(expires_at=None), at(30), POLICY, steps.Sleep(None), id="or for ever, if unlimited"
        ),
        pytest.param(done(), at(3600), POLICY, steps.Hide(), id="an expired row is hidden"),
        pytest.param(
            done(stop_requested_at=at(1)),
            at(3600),
            POLICY,
            steps.Hide(),
            id="an expired row is hidden even if its stop is pending",
        ),
        pytest.param(
            done(hidden_at=at(3600), stop_requested_at=at(1)),
            at(3600) + timedelta(days=9),
            POLICY,
            steps.Stop(),
            id="a hidden row is not removed before its stop is confirmed",
        ),
        pytest.param(
            replace(steps.cancelled(called(), at(1)), hidden_at=at(2), expires_at=at(3601)),
            at(3) + timedelta(days=9),
            POLICY,
            steps.Find(),
            id="nor before its start is settled",
        ),
        pytest.param(
            done(hidden_at=at(10)),
            at(20),
            POLICY,
            steps.Sleep(at(10) + timedelta(days=1)),
            id="a hidden row keeps its name for the tombstone's time",
        ),
        pytest.param(
            done(hidden_at=at(10)),
            at(10) + timedelta(days=1),
            POLICY,
            steps.Remove(),
            id="then it is removed",
        ),
    ],
)
def test_the_next_step_of(task: Task, now: datetime, policy: Policy, step: steps.NextStep) -> None:
    assert next_step(task, now, policy) == step


@pytest.mark.req("A-7")
def test_only_the_moves_of_the_protocol_are_legal() -> None:
    final = {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.UNKNOWN}
    assert {status for status in Status if status.final} == final
    assert Status.SUBMITTED not in {to for moves in LEGAL_MOVES.values() for to in moves}
    assert LEGAL_MOVES[Status.SUBMITTED] >= {Status.WORKING, *final}
    assert Status.WORKING not in LEGAL_MOVES[Status.WORKING]


# --- the start -----------------------------------------------------------------------------------


def test_the_gate_notes_when_where_and_under_which_lease_the_start_was_let_through() -> None:
    gated = steps.gated(fresh(fingerprint="there"), at(5), seconds(30), POLICY)
    assert (gated.start_called_at, gated.fingerprint, gated.lease_until) == (at(5), "here", at(35))
    assert gated.start_in_doubt


@pytest.mark.case("T8")
@pytest.mark.parametrize(
    ("execution", "status"), [(Queued("later"), Status.SUBMITTED), (Running(), Status.WORKING)]
)
def test_a_confirmed_start_binds_the_row(execution: Execution, status: Status) -> None:
    task = steps.started(called(attempts=3, last_error="no"), REF, execution, at(2), POLICY)
    assert (task.ref, task.status, task.start_settled_at) == (REF, status, at(2))
    assert (task.attempts, task.last_error, task.lease_until) == (0, None, None)
    assert task.due_at == at(2) + steps.FIRST_LOOK
    assert task.settled


def test_a_first_look_comes_no_later_than_the_poll_interval() -> None:
    task = called(poll_interval=seconds(0.2))
    assert steps.started(task, REF, Running(), at(2), POLICY).due_at == at(2.2)


@pytest.mark.parametrize("end", ENDS)
def test_a_start_that_answers_with_an_end_ends_the_task(end: Ended) -> None:
    task = steps.started(called(), REF, end, at(2), POLICY)
    assert task.final
    assert task.ref == REF
    assert task.ended_at == at(60)


def test_a_ref_is_kept_even_if_the_task_was_cancelled_meanwhile() -> None:
    cancelled = steps.cancelled(called(), at(1))
    task = steps.started(cancelled, REF, Running(), at(2), POLICY)
    assert (task.status, task.ref, task.stop_pending) == (Status.CANCELLED, REF, True)
    assert next_step(task, at(2), POLICY) == steps.Stop()


def test_what_a_late_answer_says_of_a_bound_row_is_not_news() -> None:
    task = bound(status_message="third of five", last_observed_at=at(50))
    assert steps.started(task, REF, Running(), at(60), POLICY) == task
    assert steps.started(task, OTHER, FAILED, at(60), POLICY) == task


@pytest.mark.parametrize(
    "given_up",
    [
        steps.start_lost(called(), "lost", at(100)),
        steps.refused(called(), "refused", at(100)),
    ],
)
def test_an_execution_that_comes_to_light_after_its_task_was_given_up_is_stopped(
    given_up: Task,
) -> None:
    task = steps.started(given_up, REF, Running(), at(200), POLICY)
    assert (task.status, task.outcome) == (given_up.status, given_up.outcome)
    assert next_step(task, at(200), POLICY) == steps.Stop()


@pytest.mark.req("A-8")
def test_a_rejected_start_fails_the_task() -> None:
    task = steps.refused(called(), "AccessDenied: not allowed", at(2))
    assert (task.status, task.outcome) == (Status.FAILED, OutcomeKind.REJECTED)
    assert task.status_message == "AccessDenied: not allowed"
    assert task.settled
    assert next_step(task, at(2), POLICY) == steps.Sleep(task.expires_at)


def test_a_rejected_start_of_a_cancelled_task_settles_its_stop() -> None:
    task = steps.refused(steps.cancelled(called(), at(1)), "no", at(2))
    assert (task.status, task.settled) == (Status.CANCELLED, True)


def test_a_start_that_did_not_happen_is_tried_again() -> None:
    task = steps.start_unavailable(called(), None, "down", at(7), at(2))
    assert (task.start_called_at, task.due_at, task.last_error) == (None, at(7), "down")
    assert task.status is Status.SUBMITTED
    assert next_step(task, at(7), SENT_ONCE) == steps.Start()


def test_a_start_in_doubt_stays_in_doubt_when_its_repetition_did_not_happen() -> None:
    task = steps.start_unavailable(called(start_called_at=at(30)), T0, "down", at(37), at(31))
    assert task.start_in_doubt
    assert task.start_called_at == T0
    assert next_step(task, at(900), POLICY) == steps.Find()


@pytest.mark.parametrize("wish", [steps.cancelled, steps.stop_wanted])
def test_a_start_that_did_not_happen_and_is_not_wanted_is_settled_at_once(
    wish: Callable[[Task, datetime], Task],
) -> None:
    unwanted = wish(called(), at(1))
    task = steps.start_unavailable(unwanted, None, "down", at(60), at(2))
    assert task.due_at == at(2)
    assert next_step(task, at(2), POLICY) == steps.GiveUp()
    settled = steps.given_up(task, at(2), POLICY)
    assert (settled.status, settled.settled) == (Status.CANCELLED, True)


def test_a_start_whose_answer_was_lost_stays_in_doubt() -> None:
    task = steps.start_doubtful(called(), "lost", at(7))
    assert (task.start_in_doubt, task.status, task.attempts) == (True, Status.SUBMITTED, 1)


def test_a_start_that_was_never_made_within_its_time_fails_with_the_reason() -> None:
    task = steps.given_up(fresh(last_error="connection refused"), at(900), POLICY)
    assert (task.status, task.outcome) == (Status.FAILED, OutcomeKind.REJECTED)
    assert "connection refused" in str(task.status_message)


@pytest.mark.case("D1")
def test_the_earliest_execution_found_is_adopted_and_looked_at_next() -> None:
    found = [Found(REF, at(1)), Found(OTHER, at(2))]
    task = steps.found(called(), found, at(9), SENT_ONCE)
    assert (task.ref, task.start_settled_at, task.due_at) == (REF, at(9), at(9))
    assert task.status is Status.SUBMITTED
    assert next_step(task, at(9), SENT_ONCE) == steps.Observe()


def test_an_execution_found_for_a_cancelled_task_is_stopped() -> None:
    task = steps.found(steps.cancelled(called(), at(1)), [Found(REF, at(1))], at(9), POLICY)
    assert next_step(task, at(9), POLICY) == steps.Stop()


@pytest.mark.parametrize("policy", [POLICY, SENT_ONCE, replace(SENT_ONCE, idempotent=True)])
def test_finding_nothing_means_nothing_until_the_doubt_ends(policy: Policy) -> None:
    task = steps.found(called(attempts=8), [], at(79.5), policy)
    assert task.start_in_doubt
    assert not task.final
    assert task.due_at == at(80)


@pytest.mark.parametrize(
    ("policy", "status", "outcome"),
    [
        pytest.param(POLICY, Status.FAILED, OutcomeKind.REJECTED, id="a keyed start: it never was"),
        pytest.param(SENT_ONCE, Status.UNKNOWN, OutcomeKind.LOST, id="else nobody can know"),
    ],
)
@pytest.mark.req("A-8")
def test_finding_nothing_after_the_doubt_ends_the_task(
    policy: Policy, status: Status, outcome: OutcomeKind
) -> None:
    task = steps.found(called(), [], at(80), policy)
    assert (task.status, task.outcome, task.settled) == (status, outcome, True)


def test_a_lost_start_tells_what_to_look_for() -> None:
    task = steps.found(called(), [], at(80), SENT_ONCE)
    assert task.key in str(task.status_message)


def test_a_workflow_declared_idempotent_is_started_again_after_finding_nothing() -> None:
    policy = replace(SENT_ONCE, idempotent=True)
    task = steps.found(called(), [], at(80), policy)
    assert (task.status, task.due_at) == (Status.SUBMITTED, at(80))
    assert next_step(task, at(80), policy) == steps.Start()


def test_an_unwanted_start_is_not_made_again_though_declared_idempotent() -> None:
    policy = replace(SENT_ONCE, idempotent=True)
    task = steps.found(steps.stop_wanted(called(), at(1)), [], at(80), policy)
    assert (task.status, task.settled) == (Status.CANCELLED, True)


@pytest.mark.parametrize("policy", [POLICY, SENT_ONCE, replace(SENT_ONCE, idempotent=True)])
def test_a_start_made_elsewhere_is_lost_not_refused(policy: Policy) -> None:
    task = steps.given_up(called(fingerprint="there"), at(900), policy)
    assert (task.status, task.outcome) == (Status.UNKNOWN, OutcomeKind.LOST)


def test_a_start_made_elsewhere_and_not_wanted_is_not_said_never_to_have_been() -> None:
    unwanted = steps.stop_wanted(called(fingerprint="there"), at(1))
    task = steps.given_up(unwanted, at(900), POLICY)
    assert (task.status, task.outcome) == (Status.UNKNOWN, OutcomeKind.LOST)


def test_an_inline_run_whose_process_died_is_unknown() -> None:
    task = steps.given_up(called(inline=True), at(400), POLICY)
    assert (task.status, task.outcome) == (Status.UNKNOWN, OutcomeKind.LOST)


@pytest.mark.parametrize("end", ENDS)
def test_an_inline_run_ends_with_its_call(end: Ended) -> None:
    task = steps.ran(called(inline=True), end, at(2), POLICY)
    assert task.final
    assert task.settled
    assert task.ref is None


# --- observing -----------------------------------------------------------------------------------


@pytest.mark.req("A-9")
@pytest.mark.case("R12")
@pytest.mark.parametrize(
    ("execution", "status", "outcome"),
    [
        (SUCCEEDED, Status.COMPLETED, OutcomeKind.SUCCEEDED),
        (FAILED, Status.FAILED, OutcomeKind.FAILED),
        (TIMED_OUT, Status.FAILED, OutcomeKind.TIMED_OUT),
        (ABORTED, Status.CANCELLED, OutcomeKind.ABORTED),
    ],
)
def test_an_end_becomes_the_tasks_end(
    execution: Ended, status: Status, outcome: OutcomeKind
) -> None:
    task = steps.observed(bound(), execution, at(90), POLICY)
    assert (task.status, task.outcome) == (status, outcome)
    assert (task.ended_at, task.final_at) == (at(60), at(90))


@pytest.mark.req("A-10")
@pytest.mark.parametrize("execution", [FAILED, TIMED_OUT])
def test_a_failure_completes_the_task_where_the_tool_says_so(execution: Ended) -> None:
    policy = replace(POLICY, failure_completes=True)
    task = steps.observed(bound(), execution, at(90), policy)
    assert task.status is Status.COMPLETED
    assert task.outcome in {OutcomeKind.FAILED, OutcomeKind.TIMED_OUT}


@pytest.mark.case("R3", "R4", "R5")
@pytest.mark.parametrize(
    ("execution", "text"),
    [
        (FAILED, "Boom: it broke"),
        (Failed("Boom", None, None), "Boom"),
        (Failed(None, "it broke", None), "it broke"),
        (Failed(None, None, None), "the execution FAILED"),
        (TIMED_OUT, "the execution TIMED OUT"),
        (ABORTED, "the execution was ABORTED"),
    ],
)
def test_a_failure_is_told_by_name_and_cause_or_by_the_state_it_ended_in(
    execution: Ended, text: str
) -> None:
    assert steps.observed(bound(), execution, at(90), POLICY).status_message == text


@pytest.mark.case("T8")
def test_queued_never_moves_a_task_back_from_working() -> None:
    task = steps.observed(bound(), Queued("waiting for room"), at(9), POLICY)
    assert (task.status, task.status_message) == (Status.WORKING, "waiting for room")


def test_running_moves_a_task_from_submitted_to_working_once() -> None:
    submitted = bound(status=Status.SUBMITTED)
    working = steps.observed(submitted, Running(), at(9), POLICY)
    assert (working.status, working.updated_at) == (Status.WORKING, at(9))
    assert steps.observed(working, Running(), at(19), POLICY).updated_at == at(9)


def test_an_engines_message_is_cut_to_what_a_row_holds() -> None:
    task = steps.observed(bound(), Running("x\0\ud800" * MESSAGE_LIMIT), at(9), POLICY)
    assert task.status_message is not None
    assert len(task.status_message) == MESSAGE_LIMIT
    task.status_message.encode()


def test_an_outage_changes_no_status_and_says_since_when_and_why() -> None:
    before = bound(last_observed_at=at(5))
    task = steps.unavailable(before, "throttled", at(20))
    assert (task.status, task.last_error, task.last_observed_at) == (
        Status.WORKING,
        "throttled",
        at(5),
    )
    assert (task.due_at, task.attempts, task.lease_until) == (at(20), 1, None)
    healed = steps.observed(task, Running(), at(20), POLICY)
    assert (healed.last_error, healed.attempts) == (None, 0)


def test_looks_become_rarer_with_age_up_to_a_quarter_of_an_hour() -> None:
    def interval(age: float) -> timedelta:
        return steps.look_interval(bound(), at(age), POLICY)

    assert interval(0) == seconds(5)
    assert interval(600) == seconds(60)
    assert interval(86_400) == minutes(15)
    assert interval(-600) == seconds(5)


def test_a_tool_may_be_polled_more_rarely_than_that_but_never_sleeps_longer_than_allowed() -> None:
    rarely = bound(poll_interval=minutes(30))
    assert steps.look_interval(rarely, at(5), POLICY) == minutes(30)
    very_rarely = bound(poll_interval=timedelta(hours=7))
    assert steps.look_interval(very_rarely, at(5), POLICY) == MAX_SLEEP


@given(attempts=st.integers(0, 10_000), age=st.integers(0, 10**7), row=st.integers(0, 2**128 - 1))
def test_backing_off_is_bounded_whatever_the_number_of_failures(
    attempts: int, age: int, row: int
) -> None:
    task = bound(attempts=attempts, row_id=f"{row:032x}")
    delay = steps.back_off(task, at(age), POLICY)
    assert seconds(0.75) <= delay <= minutes(15)
    if age < 600:
        assert delay <= minutes(1)


# --- not found -----------------------------------------------------------------------------------


@pytest.mark.case("F13")
def test_absence_is_believed_only_after_it_lasted() -> None:
    first = steps.not_found(bound(), at(10), POLICY)
    assert (first.status, first.missing_since) == (Status.WORKING, at(10))
    assert first.last_error is not None
    later = steps.not_found(first, at(3609), POLICY)
    assert (later.status, later.missing_since) == (Status.WORKING, at(10))
    last = steps.not_found(later, at(3610), POLICY)
    assert (last.status, last.outcome) == (Status.UNKNOWN, OutcomeKind.LOST)
    assert "history expired" in str(last.status_message)


def test_an_answer_in_between_breaks_the_absence() -> None:
    seen = steps.observed(steps.not_found(bound(), at(10), POLICY), Running(), at(20), POLICY)
    assert seen.missing_since is None
    again = steps.not_found(seen, at(3700), POLICY)
    assert (again.status, again.missing_since) == (Status.WORKING, at(3700))


def test_an_outage_in_between_does_not_break_the_absence() -> None:
    missing = steps.not_found(bound(), at(10), POLICY)
    assert steps.unavailable(missing, "down", at(20)).missing_since == at(10)


def test_absence_at_another_backend_is_no_absence() -> None:
    task = bound(fingerprint="there", missing_since=T0)
    still = steps.not_found(task, at(10**6), POLICY)
    assert still.status is Status.WORKING
    assert "elsewhere" in str(still.last_error)


def test_a_lasting_absence_confirms_a_stop() -> None:
    cancelled = steps.cancelled(bound(missing_since=T0), at(3600))
    task = steps.not_found(cancelled, at(3600), POLICY)
    assert (task.status, task.settled, task.outcome) == (Status.CANCELLED, True, None)
    wanted = steps.stop_wanted(bound(missing_since=T0), at(3600))
    assert steps.not_found(wanted, at(3600), POLICY).settled


# --- cancelling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", [steps.cancelled, steps.stop_wanted])
def test_a_cancel_before_the_start_ends_it_there(wish: Callable[[Task, datetime], Task]) -> None:
    task = wish(fresh(), at(1))
    assert (task.status, task.outcome) == (Status.CANCELLED, OutcomeKind.ABORTED)
    assert task.settled
    assert next_step(task, at(1), POLICY) == steps.Sleep(task.expires_at)


@pytest.mark.parametrize("in_flight", [called(lease_until=at(30)), bound(lease_until=at(30))])
def test_a_cancel_at_once_breaks_the_lease_and_is_due_now(in_flight: Task) -> None:
    task = steps.cancelled(in_flight, at(1))
    assert (task.status, task.due_at, task.lease_until) == (Status.CANCELLED, at(1), None)
    assert task.stop_pending
    assert task.outcome is None


@pytest.mark.parametrize("in_flight", [called(lease_until=at(30)), bound(lease_until=at(30))])
def test_a_wish_to_stop_leaves_the_status_to_the_engine(in_flight: Task) -> None:
    task = steps.stop_wanted(in_flight, at(1))
    assert (task.status, task.due_at, task.lease_until) == (in_flight.status, at(1), None)
    assert task.stop_pending


@pytest.mark.case("K4")
@pytest.mark.parametrize("wish", [steps.cancelled, steps.stop_wanted])
def test_a_cancel_changes_nothing_about_a_final_task(
    wish: Callable[[Task, datetime], Task],
) -> None:
    assert wish(done(), at(1)) == done()


def test_wishing_twice_is_wishing_once() -> None:
    once = steps.stop_wanted(bound(), at(1))
    assert steps.stop_wanted(once, at(2)) == once
    assert steps.cancelled(once, at(2)).stop_requested_at == at(1)


@pytest.mark.case("K6")
def test_a_stop_the_engine_is_slow_to_heed_is_sent_again_less_and_less_often() -> None:
    task = steps.stop_wanted(bound(), T0)
    waits: list[float] = []
    now = T0
    for _ in range(14):
        task = steps.observed(task, Running(), now, POLICY)
        assert task.due_at is not None
        assert next_step(task, now, POLICY) == steps.Stop()
        waits.append((task.due_at - now).total_seconds())
        now = task.due_at
    assert waits[:6] == [1, 1, 2, 4, 8, 16]
    assert waits[-2:] == [900, 900]


def test_waiting_for_a_stop_is_no_failure_so_that_polls_may_look() -> None:
    task = steps.observed(steps.stop_wanted(bound(), T0), Running(), at(100), POLICY)
    assert (task.attempts, task.last_error) == (0, None)


@pytest.mark.parametrize("wish", [steps.cancelled, steps.stop_wanted])
@pytest.mark.parametrize("end", ENDS)
def test_any_end_confirms_a_stop(wish: Callable[[Task, datetime], Task], end: Ended) -> None:
    task = steps.observed(wish(bound(), at(1)), end, at(2), POLICY)
    assert task.settled
    assert task.final


@pytest.mark.case("F10")
def test_a_task_that_had_ended_when_its_stop_came_tells_its_own_end() -> None:
    task = steps.observed(steps.stop_wanted(bound(), at(1)), SUCCEEDED, at(2), POLICY)
    assert (task.status, task.outcome) == (Status.COMPLETED, OutcomeKind.SUCCEEDED)


@pytest.mark.case("T2")
@pytest.mark.req("A-21")
@pytest.mark.parametrize(
    ("end", "outcome", "words"),
    [
        (SUCCEEDED, OutcomeKind.SUCCEEDED, "had succeeded"),
        (FAILED, OutcomeKind.FAILED, "had failed"),
        (TIMED_OUT, OutcomeKind.TIMED_OUT, "had timed out"),
    ],
)
def test_the_real_end_of_a_task_announced_as_cancelled_is_told_beside_its_status(
    end: Ended, outcome: OutcomeKind, words: str
) -> None:
    announced = steps.cancelled(bound(), at(1))
    task = steps.observed(announced, end, at(2), POLICY)
    assert (task.status, task.outcome, task.ended_at) == (Status.CANCELLED, outcome, at(60))
    assert words in str(task.status_message)
    assert (task.final_at, task.expires_at) == (announced.final_at, announced.expires_at)


def test_a_cancel_that_worked_needs_no_afterword() -> None:
    task = steps.observed(steps.cancelled(bound(), at(1)), ABORTED, at(2), POLICY)
    assert (task.outcome, task.status_message) == (OutcomeKind.ABORTED, "cancelled")


@pytest.mark.case("D2", "F7")
@pytest.mark.parametrize("execution", [Running(), Queued(), *ENDS])
def test_a_redriven_execution_does_not_revive_or_rewrite_a_final_task(
    execution: Execution,
) -> None:
    task = steps.observed(done(), execution, at(99), POLICY)
    assert (task.status, task.outcome, task.ended_at) == (
        Status.COMPLETED,
        OutcomeKind.SUCCEEDED,
        done().ended_at,
    )
    assert task.due_at == done().expires_at


# --- expiry and deletion -------------------------------------------------------------------------


@pytest.mark.req("A-1", "A-19")
@pytest.mark.case("K3")
def test_keep_alive_is_counted_from_the_end_and_drops_nothing_that_runs() -> None:
    old = bound(keep_alive=seconds(60))
    assert not old.expired(at(10**9))
    task = steps.observed(old, SUCCEEDED, at(10_000), POLICY)
    assert task.expires_at == at(10_060)
    assert task.due_at == task.expires_at
    assert not task.expired(at(10_059))
    assert task.expired(at(10_060))
    assert not task.visible(at(10_060))


def test_an_unlimited_task_never_expires() -> None:
    task = steps.observed(bound(keep_alive=None), SUCCEEDED, at(10), POLICY)
    assert (task.expires_at, task.due_at) == (None, None)
    assert not task.expired(at(10**9))


def test_a_deleted_task_is_hidden_and_not_called_expired_later() -> None:
    task = steps.deleted(done(), at(5))
    assert not task.visible(at(5))
    assert not task.expired(at(10**6))


def test_an_expired_task_is_still_called_expired_once_hidden() -> None:
    task = steps.hidden(done(lease_until=at(3630)), at(3600))
    assert task.expired(at(3600))
    assert (task.hidden_at, task.lease_until) == (at(3600), None)


@pytest.mark.parametrize("end", ENDS)
def test_a_deleted_task_whose_stop_is_confirmed_later_stays_hidden_and_is_due(end: Ended) -> None:
    task = steps.deleted(steps.cancelled(bound(), at(1)), at(2))
    assert next_step(task, at(2), POLICY) == steps.Stop()
    task = steps.observed(task, end, at(9), POLICY)
    assert (task.hidden_at, task.settled, task.due_at) == (at(2), True, at(9))


# --- any order -----------------------------------------------------------------------------------

executions = st.sampled_from([Queued("q"), Running(), Running("r"), *ENDS])
policies = st.builds(
    Policy,
    start_is_idempotent=st.booleans(),
    start_timeout=st.just(seconds(20)),
    fingerprint=st.sampled_from(["here", "there"]),
    idempotent=st.booleans(),
    failure_completes=st.booleans(),
    start_within=st.sampled_from([seconds(1), minutes(15), timedelta(hours=30)]),
    missing_after=st.sampled_from([seconds(0), minutes(60), timedelta(days=3)]),
)
rows = st.builds(
    fresh,
    inline=st.booleans(),
    keep_alive=st.sampled_from([None, minutes(1), timedelta(days=30)]),
    poll_interval=st.sampled_from([seconds(0.1), seconds(5), timedelta(hours=9)]),
)
pauses = st.sampled_from([-4000.0, -1.0, 0.0, 0.001, 1.0, 30.0, 100.0, 1000.0, 4000.0, 90_000.0])


class Ends(Exception):
    """The row is gone."""


def take(task: Task, now: datetime, policy: Policy, draw: Callable[[Any], Any]) -> Task:
    """Take the next step with an answer of the engine that hypothesis chooses."""
    due = now + steps.back_off(task, now, policy)
    match next_step(task, now, policy):
        case steps.Start():
            before = task.start_called_at
            task = steps.gated(task, now, seconds(30), policy)
            answer = draw(st.sampled_from(["started", "rejected", "unavailable", "lost", "died"]))
            if answer == "started" and task.inline:
                return steps.ran(task, draw(st.sampled_from(ENDS)), now, policy)
            if answer == "started":
                return steps.started(task, REF, draw(executions), now, policy)
            if answer == "rejected":
                return steps.refused(task, "no", now)
            if answer == "unavailable":
                return steps.start_unavailable(task, before, "down", due, now)
            return steps.start_doubtful(task, "lost", due) if answer == "lost" else task
        case steps.Find():
            found = draw(st.sampled_from([[], [Found(REF, T0)], None]))
            if found is None:
                return steps.unavailable(task, "down", due)
            return steps.found(task, found, now, policy)
        case steps.Observe() | steps.Stop():
            answer = draw(st.sampled_from(["seen", "missing", "unavailable"]))
            if answer == "seen":
                return steps.observed(task, draw(executions), now, policy)
            if answer == "missing":
                return steps.not_found(task, now, policy)
            return steps.unavailable(task, "down", due)
        case steps.GiveUp():
            return steps.given_up(task, now, policy)
        case steps.Hide():
            return steps.hidden(task, now)
        case steps.Remove():
            assert task.final
            assert task.settled
            raise Ends
        case steps.Sleep(until):
            return steps.put_off(task, until)


def wish(task: Task, now: datetime, which: str) -> Task:
    match which:
        case "cancel at once" if not (task.inline and task.start_called_at):
            return steps.cancelled(task, now)
        case "wish to stop" if not (task.inline and task.start_called_at):
            return steps.stop_wanted(task, now)
        case "delete" if task.final and task.hidden_at is None:
            return steps.deleted(task, now)
        case _:
            return task


@given(task=rows, data=st.data())
def test_whatever_happens_in_whatever_order_the_rows_laws_hold(
    task: Task, data: st.DataObject
) -> None:
    now = T0
    moves = st.sampled_from(["step", "step", "step", "cancel at once", "wish to stop", "delete"])
    for _ in range(data.draw(st.integers(1, 25))):
        now += seconds(data.draw(pauses))
        policy = data.draw(policies)
        move = data.draw(moves)
        before = task
        if move == "step":
            try:
                task = take(task, now, policy, data.draw)
            except Ends:
                return
        else:
            task = wish(task, now, move)
        check_move(before, task)
        check_row(before, task, now)


def check_move(before: Task, after: Task) -> None:
    assert after.status is before.status or after.status in LEGAL_MOVES[before.status]
    if before.ref is not None:
        assert after.ref == before.ref
    if before.final:
        assert (after.final_at, after.expires_at) == (before.final_at, before.expires_at)
    if before.outcome is not None:
        assert (after.outcome, after.ended_at) == (before.outcome, before.ended_at)
    if before.start_settled_at is not None:
        assert after.start_settled_at == before.start_settled_at
    if before.stop_confirmed_at is not None:
        assert after.stop_confirmed_at == before.stop_confirmed_at
    if before.stop_requested_at is not None:
        assert after.stop_requested_at == before.stop_requested_at
    if before.hidden_at is not None:
        assert after.hidden_at == before.hidden_at


def check_row(before: Task, task: Task, now: datetime) -> None:
    assert task.final == (task.final_at is not None)
    if not task.final or not task.settled or task.expires_at is not None:
        assert task.due_at is not None, "a row that still needs something is stuck"
    if not task.final or not task.settled:
        assert task.due_at is not None
        if task.due_at != before.due_at:
            assert task.due_at <= now + MAX_SLEEP
    if not task.final:
        assert task.hidden_at is None
        assert task.outcome is None
        assert task.start_settled_at is None or task.ref is not None
    if task.final and task.start_settled_at is None:
        assert task.stop_requested_at is not None, "a start nobody watches"
    for text in (task.status_message, task.last_error):
        assert text is None or len(text) <= MESSAGE_LIMIT


@given(task=rows, data=st.data())
def test_a_row_left_to_a_healthy_engine_comes_to_its_end(task: Task, data: st.DataObject) -> None:
    now, policy = T0, data.draw(policies)
    for _ in range(data.draw(st.integers(0, 12))):
        now += seconds(abs(data.draw(pauses)))
        try:
            task = take(task, now, policy, data.draw)
        except Ends:
            return
        task = wish(task, now, data.draw(st.sampled_from(["", "cancel at once", "wish to stop"])))
    policy = replace(policy, fingerprint=task.fingerprint)
    for _ in range(60):
        if task.final and task.settled:
            return
        assert task.due_at is not None
        now = max(now, task.due_at, task.lease_until or T0)
        match next_step(task, now, policy):
            case steps.Start() if task.inline:
                task = steps.ran(steps.gated(task, now, seconds(1), policy), FAILED, now, policy)
            case steps.Start():
                task = steps.started(
                    steps.gated(task, now, seconds(1), policy), REF, Running(), now, policy
                )
            case steps.Find():
                task = steps.found(task, [], now, policy)
            case steps.Observe() | steps.Stop():
                task = steps.observed(task, SUCCEEDED, now, policy)
            case steps.GiveUp():
                task = steps.given_up(task, now, policy)
            case steps.Hide():
                task = steps.hidden(task, now)
            case steps.Remove():
                return
            case steps.Sleep(until):
                task = steps.put_off(task, until)
    pytest.fail(f"never came to an end: {task}")
