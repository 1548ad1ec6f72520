"""Steps are told right, also where states run side by side or end badly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from workflow_bridge.adapter import Step
from workflow_bridge_adapters.step_functions.history import steps_from


def at(second: int) -> datetime:
    return datetime(2026, 11, 30, 9, 0, second, tzinfo=UTC)


def event(number: int, before: int, kind: str, name: str | None = None) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if kind.endswith("Entered"):
        details = {"stateEnteredEventDetails": {"name": name}}
    elif kind.endswith("Exited"):
        details = {"stateExitedEventDetails": {"name": name}}
    told = {"id": number, "previousEventId": before, "type": kind, "timestamp": at(number)}
    return told | details


def test_a_step_ends_when_it_is_left() -> None:
    events = [
        event(1, 0, "ExecutionStarted"),
        event(2, 0, "PassStateEntered", "A"),
        event(3, 2, "PassStateExited", "A"),
        event(4, 3, "WaitStateEntered", "B"),
    ]
    assert steps_from(events) == (Step("A", at(2), at(3)), Step("B", at(4)))
    assert steps_from(reversed(events)) == steps_from(events)


def test_iterations_of_the_same_name_are_kept_apart() -> None:
    events = [
        event(1, 0, "ExecutionStarted"),
        event(2, 0, "MapStateEntered", "Each"),
        event(3, 2, "MapStateStarted"),
        event(4, 3, "MapIterationStarted"),
        event(5, 4, "TaskStateEntered", "Work"),
        event(6, 3, "MapIterationStarted"),
        event(7, 6, "TaskStateEntered", "Work"),
        event(8, 7, "TaskStateExited", "Work"),
    ]
    assert steps_from(events) == (
        Step("Each", at(2)),
        Step("Work", at(5)),
        Step("Work", at(7), at(8)),
    )


def test_a_parallel_state_is_left_after_its_branches() -> None:
    events = [
        event(1, 0, "ExecutionStarted"),
        event(2, 0, "ParallelStateEntered", "Both"),
        event(3, 2, "ParallelStateStarted"),
        event(4, 3, "PassStateEntered", "Left"),
        event(5, 3, "PassStateEntered", "Right"),
        event(6, 5, "PassStateExited", "Right"),
        event(7, 4, "PassStateExited", "Left"),
        event(8, 7, "ParallelStateSucceeded"),
        event(9, 8, "ParallelStateExited", "Both"),
    ]
    assert steps_from(events) == (
        Step("Both", at(2), at(9)),
        Step("Left", at(4), at(7)),
        Step("Right", at(5), at(6)),
    )


def test_an_aborted_state_and_a_failed_execution_end_their_steps() -> None:
    events = [
        event(1, 0, "ExecutionStarted"),
        event(2, 0, "ParallelStateEntered", "Both"),
        event(3, 2, "ParallelStateStarted"),
        event(4, 3, "WaitStateEntered", "Wait"),
        event(5, 3, "FailStateEntered", "Break"),
        event(6, 4, "WaitStateAborted"),
        event(7, 5, "ExecutionFailed"),
    ]
    assert steps_from(events) == (
        Step("Both", at(2), at(7)),
        Step("Wait", at(4), at(6)),
        Step("Break", at(5), at(7)),
    )


def test_a_redrive_takes_up_the_step_that_had_failed() -> None:
    events = [
        event(1, 0, "ExecutionStarted"),
        event(2, 0, "TaskStateEntered", "Work"),
        event(3, 2, "TaskFailed"),
        event(4, 3, "ExecutionFailed"),
        event(5, 4, "ExecutionRedriven"),
    ]
    assert steps_from(events[:4]) == (Step("Work", at(2), at(4)),)
    assert steps_from(events) == (Step("Work", at(2)),)


def test_a_history_without_its_beginning_is_read_as_far_as_it_goes() -> None:
    events = [
        event(8, 7, "PassStateExited", "Unseen"),
        event(9, 8, "PassStateEntered", "Seen"),
        event(12, 11, "PassStateExited", "Seen"),
    ]
    assert steps_from(events) == (Step("Seen", at(9), at(12)),)
