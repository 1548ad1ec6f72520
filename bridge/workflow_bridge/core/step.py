"""What to do next with a row, and what a row becomes of what was learned. Pure; no I/O.

`next_step` decides; the other functions are the transitions, each from a `Task` to the `Task` that
the store is asked to put in its place. All of them keep a final status as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, assert_never

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
from workflow_bridge.core.policy import Policy
from workflow_bridge.core.store import MAX_SLEEP
from workflow_bridge.core.task import OutcomeKind, Status, Task, shortened

FIRST_LOOK: Final = timedelta(seconds=1)
"""The first look at a new execution comes this soon, if its poll interval is not shorter."""


@dataclass(frozen=True, slots=True)
class Start:
    """Pass the start gate, then start the execution (or run it inline)."""


@dataclass(frozen=True, slots=True)
class Find:
    """Look for the execution of a start whose answer is not known."""


@dataclass(frozen=True, slots=True)
class Observe:
    """Ask the engine how the execution is."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the engine to stop the execution, then look."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing more can be done for the start: settle it without a call."""


@dataclass(frozen=True, slots=True)
class Hide:
    """It has expired: null its payload."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Its name need not be remembered any longer."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do until then (None: until something happens)."""

    until: datetime | None


NextStep: TypeAlias = Start | Find | Observe | Stop | GiveUp | Hide | Remove | Sleep


def next_step(task: Task, now: datetime, policy: Policy) -> NextStep:
    """Say what a row whose lease one holds needs now."""
    if task.final and task.hidden_at is None and task.expired(now):
        return Hide()
    if task.start_settled_at is None:
        return _step_of_start(task, now, policy)
    if task.stop_pending:
        return Stop()
    if not task.final:
        return Observe()
    if task.hidden_at is None:
        return Sleep(task.expires_at)
    forgotten = task.hidden_at + policy.tombstone
    return Remove() if forgotten <= now else Sleep(forgotten)


def _step_of_start(task: Task, now: datetime, policy: Policy) -> NextStep:
    unwanted = task.final or task.stop_pending
    in_time = now < task.created_at + policy.start_within
    if task.start_called_at is None:
        return GiveUp() if unwanted or not in_time else Start()
    if task.inline:
        # The engine keeps no trace of an inline run: whoever called is gone, and so is the answer.
        return GiveUp()
    if task.fingerprint != policy.fingerprint:
        # Neither a start nor a look over there says anything of the start made over here. A
        # replica that still points here may come first.
        soon = now + policy.slowest_retry
        return Sleep(min(soon, task.created_at + policy.start_within)) if in_time else GiveUp()
    if policy.start_is_idempotent and in_time and not unwanted:
        return Start()
    return Find()


def doubt_ends(task: Task, policy: Policy) -> datetime:
    """When an empty `Find` is the last word on a start."""
    return (task.start_called_at or task.created_at) + policy.doubt


def look_interval(task: Task, now: datetime, policy: Policy) -> timedelta:
    """How long the loop waits between two looks: a tenth of the task's age, within bounds."""
    tenth = (now - task.created_at) / 10
    slowest = max(policy.slowest_look, task.poll_interval)
    return min(max(tenth, task.poll_interval), slowest, MAX_SLEEP)


def back_off(task: Task, now: datetime, policy: Policy) -> timedelta:
    """How long to wait after one more failed call, doubling up to a bound.

    Spread by the row's own random bits rather than a random number, so that it stays pure.
    """
    spread = 0.75 + (int(task.row_id[:4], 16) ^ task.attempts) % 1000 / 2000
    doubled: int = 2 ** min(task.attempts, 12)
    delay = max(task.poll_interval, FIRST_LOOK) * doubled * spread
    return min(delay, max(policy.slowest_retry, look_interval(task, now, policy)))


# --- transitions: the start ----------------------------------------------------------------------


def gated(task: Task, now: datetime, lease: timedelta, policy: Policy) -> Task:
    """Pass the start gate: from here on a start may have reached the engine."""
    return replace(
        task, start_called_at=now, fingerprint=policy.fingerprint, lease_until=now + lease,
        updated_at=now,
    )  # fmt: skip


def started(
    task: Task, ref: ExecutionRef, execution: Execution, now: datetime, policy: Policy
) -> Task:
    """Bind the row to its execution, whatever its status: a ref is a fact.

    A row that is bound already stays as it is: what is known of it is newer than this answer.
    """
    if task.ref is not None:
        return task
    task = replace(task, ref=ref, start_settled_at=now)
    if task.final and task.stop_requested_at is None:
        # Given up for lost, and the owner told so: nobody wants it any longer.
        task = replace(task, stop_requested_at=now)
    task = observed(task, execution, now, policy)
    return replace(task, due_at=now) if task.stop_pending else task


def ran(task: Task, ended: Ended, now: datetime, policy: Policy) -> Task:
    """Settle an inline run by its end."""
    return observed(replace(task, start_settled_at=now), ended, now, policy)


def refused(task: Task, message: str, now: datetime) -> Task:
    """Settle a start that was rejected, or provably never happened."""
    return _settled_without_execution(task, Status.FAILED, OutcomeKind.REJECTED, message, now)


def start_lost(task: Task, message: str, now: datetime) -> Task:
    """Settle a start that may have happened and can no longer be found."""
    return _settled_without_execution(task, Status.UNKNOWN, OutcomeKind.LOST, message, now)


def start_unavailable(
    task: Task, called_before: datetime | None, error: str, due: datetime, now: datetime
) -> Task:
    """Undo the gate: this start did not happen. An earlier one that is in doubt still is."""
    due = now if task.final or task.stop_pending else due
    return start_withdrawn(_failed(task, error, due), called_before, error, now)


def start_withdrawn(task: Task, called_before: datetime | None, error: str, now: datetime) -> Task:
    """Record that this start did not happen, and keep the lease."""
    return replace(task, start_called_at=called_before, last_error=shortened(error), updated_at=now)


def start_doubtful(task: Task, error: str, due: datetime) -> Task:
    """Keep a start whose answer was lost in doubt, to be repeated or looked for."""
    return _failed(task, error, due)


def found(task: Task, executions: Sequence[Found], now: datetime, policy: Policy) -> Task:
    """Adopt the earliest execution found, or weigh that there is none."""
    if executions:
        task = replace(
            task, ref=task.ref or executions[0].ref, start_settled_at=now, attempts=0,
            last_error=None, due_at=now, lease_until=None, updated_at=now,
        )  # fmt: skip
        return task
    if task.start_called_at is not None and task.start_called_at > now:
        task = replace(task, start_called_at=now)  # the clock was set back
    ends = doubt_ends(task, policy)
    if now < ends:
        again = min(now + max(back_off(task, now, policy), FIRST_LOOK), ends)
        return replace(task, attempts=task.attempts + 1, due_at=again, lease_until=None)
    return given_up(task, now, policy)


def given_up(task: Task, now: datetime, policy: Policy) -> Task:
    """Settle a start for which nothing more can be done."""
    if task.final:
        return _unbound(task, now)
    if task.start_called_at is None and not task.stop_pending:
        reason = f": {task.last_error}" if task.last_error else ""
        return refused(task, f"not started within {policy.start_within}{reason}", now)
    if task.inline:
        return start_lost(
            task, "the bridge stopped during the run; whether it succeeded is not known", now
        )
    here = task.fingerprint == policy.fingerprint
    if task.stop_pending and (here or task.start_called_at is None):
        return _settled_without_execution(
            task, Status.CANCELLED, OutcomeKind.ABORTED, "cancelled before it was started", now
        )
    if here and policy.start_is_idempotent:
        reason = f": {task.last_error}" if task.last_error else ""
        return refused(task, f"the engine never started it{reason}", now)
    if here and policy.idempotent:
        return replace(task, start_called_at=None, due_at=now, lease_until=None, updated_at=now)
    return start_lost(
        task,
        f"the answer to its start was lost and no execution with the key {task.key} was found; "
        "look for one at the engine before trying again",
        now,
    )


def _settled_without_execution(
    task: Task, status: Status, outcome: OutcomeKind, message: str, now: datetime
) -> Task:
    task = _unbound(task, now)
    return task if task.final else ended(task, status, outcome, message, now)


def _unbound(task: Task, now: datetime) -> Task:
    confirmed = task.stop_confirmed_at or (now if task.stop_requested_at else None)
    return replace(
        task, start_settled_at=now, stop_confirmed_at=confirmed, updated_at=now, lease_until=None,
        due_at=_due_when_final(task, now),
    )  # fmt: skip


# --- transitions: the execution ------------------------------------------------------------------


def observed(task: Task, execution: Execution, now: datetime, policy: Policy) -> Task:
    """Record one answer of the engine."""
    task = replace(
        task, last_observed_at=now, last_error=None, attempts=0, missing_since=None,
        lease_until=None,
    )  # fmt: skip
    match execution:
        case Queued() | Running():
            return _observed_open(task, execution, now, policy)
        case Succeeded() | Failed() | TimedOut() | Aborted():
            return _observed_end(task, execution, now, policy)
        case _:
            assert_never(execution)


def _observed_open(task: Task, execution: Queued | Running, now: datetime, policy: Policy) -> Task:
    if task.final:
        status, message = task.status, task.status_message
    else:
        running = isinstance(execution, Running) and task.status is Status.SUBMITTED
        status = Status.WORKING if running else task.status
        message = shortened(execution.message) if execution.message else None
    if task.stop_requested_at is not None and task.stop_confirmed_at is None:
        # The engine takes a stop, and says so a little later: look again soon, then less often.
        wait = min(max(now - task.stop_requested_at, FIRST_LOOK), policy.slowest_look)
    else:
        wait = look_interval(task, now, policy)
        if task.last_observed_at == task.start_settled_at:
            wait = min(FIRST_LOOK, wait)
    due = _due_when_final(task, now) if task.final and not task.stop_pending else now + wait
    changed = status is not task.status or message != task.status_message
    updated_at = now if changed else task.updated_at
    return replace(task, status=status, status_message=message, due_at=due, updated_at=updated_at)


def _observed_end(task: Task, execution: Ended, now: datetime, policy: Policy) -> Task:
    kind, status = _rendered(execution, policy)
    if task.stop_requested_at is not None and task.stop_confirmed_at is None:
        task = replace(task, stop_confirmed_at=now)
    if task.final:
        # Announced before (a cancel in A or B, most likely): the status stays, and the truth is
        # told beside it.
        if task.outcome is None:
            message = _afterword(task, kind)
            task = replace(
                task, outcome=kind, ended_at=execution.ended_at, status_message=message,
                updated_at=now,
            )  # fmt: skip
        return replace(task, due_at=_due_when_final(task, now))
    task = replace(task, ended_at=execution.ended_at, start_settled_at=task.start_settled_at or now)
    return ended(task, status, kind, _message(execution), now)


def not_found(task: Task, now: datetime, policy: Policy) -> Task:
    """Weigh that the engine says it knows no such execution; absence must last to be believed."""
    since = min(task.missing_since or now, now)  # the clock may have been set back
    elsewhere = task.fingerprint != policy.fingerprint
    absent = now - since >= policy.missing_after and not elsewhere
    if absent:
        task = replace(task, lease_until=None, missing_since=since, last_observed_at=now)
        if task.stop_pending:
            task = replace(task, stop_confirmed_at=now)
        if task.final:
            return replace(task, due_at=_due_when_final(task, now), updated_at=now)
        return ended(
            task, Status.UNKNOWN, OutcomeKind.LOST,
            "history expired: the engine no longer knows this execution", now,
        )  # fmt: skip
    error = "the engine knows no such execution"
    if elsewhere:
        error += "; the backend now points elsewhere than where it was started"
    due = now + min(back_off(task, now, policy), policy.missing_after)
    return replace(_failed(task, error, due), missing_since=since, last_observed_at=now)


def unavailable(task: Task, error: str, due: datetime) -> Task:
    """Keep what is known: an outage is not an outcome."""
    return _failed(task, error, due)


def narrated(task: Task, step: str | None) -> Task:
    """Record the step an execution is in."""
    return task if step is None else replace(task, step=shortened(step))


# --- transitions: wishes of the owner, and the end -----------------------------------------------


def stop_wanted(task: Task, now: datetime) -> Task:
    """Record the wish to stop; the status follows the engine (C, plain, command line)."""
    if task.final or task.stop_requested_at is not None:
        return task
    if task.start_called_at is None and task.start_settled_at is None:
        return cancelled(task, now)
    # The lease of a call in flight is broken: its answer is dropped, or recorded as a bare fact.
    return replace(
        task, stop_requested_at=now, due_at=now, lease_until=None, attempts=0, updated_at=now
    )


def cancelled(task: Task, now: datetime) -> Task:
    """Make it cancelled at once, to be stopped behind (A-21, B-3)."""
    if task.final:
        return task
    never_called = task.start_called_at is None and task.start_settled_at is None
    task = ended(task, Status.CANCELLED, None, "cancelled", now)
    if never_called:
        return replace(
            task, stop_requested_at=now, stop_confirmed_at=now, start_settled_at=now,
            outcome=OutcomeKind.ABORTED, status_message="cancelled before it was started",
        )  # fmt: skip
    requested = task.stop_requested_at or now
    return replace(task, stop_requested_at=requested, due_at=now, attempts=0)


def deleted(task: Task, now: datetime) -> Task:
    """Hide a final row at once; its name stays taken for the tombstone's time."""
    return replace(task, hidden_at=now, step=None, due_at=now, updated_at=now)


def hidden(task: Task, now: datetime) -> Task:
    """Hide an expired row."""
    return replace(deleted(task, now), lease_until=None)


def put_off(task: Task, until: datetime | None) -> Task:
    """Release a lease with nothing done."""
    return replace(task, due_at=until, lease_until=None)


def ended(
    task: Task, status: Status, outcome: OutcomeKind | None, message: str | None, now: datetime
) -> Task:
    """Move to a final status; keepAlive counts from now."""
    expires = None if task.keep_alive is None else now + task.keep_alive
    return replace(
        task, status=status, outcome=outcome, final_at=now, expires_at=expires, due_at=expires,
        status_message=shortened(message) if message else None, lease_until=None, updated_at=now,
    )  # fmt: skip


# --- words ---------------------------------------------------------------------------------------


def _failed(task: Task, error: str, due: datetime) -> Task:
    return replace(
        task, attempts=task.attempts + 1, last_error=shortened(error), due_at=due, lease_until=None
    )


def _due_when_final(task: Task, now: datetime) -> datetime | None:
    return task.expires_at if task.hidden_at is None else now


def _rendered(execution: Ended, policy: Policy) -> tuple[OutcomeKind, Status]:
    failed = Status.COMPLETED if policy.failure_completes else Status.FAILED
    match execution:
        case Succeeded():
            return OutcomeKind.SUCCEEDED, Status.COMPLETED
        case Failed():
            return OutcomeKind.FAILED, failed
        case TimedOut():
            return OutcomeKind.TIMED_OUT, failed
        case Aborted():
            return OutcomeKind.ABORTED, Status.CANCELLED
        case _:
            assert_never(execution)


def _message(execution: Ended) -> str | None:
    match execution:
        case Succeeded():
            return None
        case Failed():
            return failure_text(execution.error, execution.cause, "the execution FAILED")
        case TimedOut():
            return failure_text(execution.error, execution.cause, "the execution TIMED OUT")
        case Aborted():
            return failure_text(execution.error, execution.cause, "the execution was ABORTED")
        case _:
            assert_never(execution)


def failure_text(error: str | None, cause: str | None, otherwise: str) -> str:
    """Name and full cause; where the engine gave neither, the state it ended in (R3)."""
    return ": ".join(part for part in (error, cause) if part) or otherwise


def _afterword(task: Task, kind: OutcomeKind) -> str:
    said = task.status_message or task.status.value
    match kind:
        case OutcomeKind.ABORTED:
            return said
        case OutcomeKind.SUCCEEDED:
            truth = "had succeeded"
        case OutcomeKind.TIMED_OUT:
            truth = "had timed out"
        case _:
            truth = "had failed"
    return shortened(f"{said}; the execution {truth} before it could be stopped")
