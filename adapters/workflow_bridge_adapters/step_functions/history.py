"""The steps of an execution, read from its history of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from workflow_bridge.adapter import Step
from workflow_bridge_adapters.step_functions.outcomes import utc

Event: TypeAlias = dict[str, Any]

_EXECUTION_ENDED = frozenset(
    {"ExecutionSucceeded", "ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"}
)


@dataclass
class _Visit:
    """A state that was entered; a name may be entered many times, also at once (Map)."""

    name: str
    entered_at: datetime
    ended_at: datetime | None = None

    def step(self) -> Step:
        return Step(self.name, self.entered_at, self.ended_at)


def steps_from(events: Iterable[Event]) -> tuple[Step, ...]:
    """Return the states entered, in order; ``events`` may come in any order and be incomplete."""
    reading = _Reading()
    for event in sorted(events, key=lambda event: int(event["id"])):
        reading.read(event)
    return tuple(visit.step() for visit in reading.visits.values())


@dataclass
class _Reading:
    visits: dict[int, _Visit] = field(default_factory=dict)
    """By the id of the event that says it was entered."""
    _before: dict[int, int] = field(default_factory=dict)
    """The event before an event in its own branch."""
    _cut_short: list[_Visit] = field(default_factory=list)
    """Ended only because the execution did; a redrive takes them up again."""

    def read(self, event: Event) -> None:
        kind: str = event["type"]
        self._before[event["id"]] = event.get("previousEventId", 0)
        if kind.endswith("StateEntered"):
            details = event["stateEnteredEventDetails"]
            self.visits[event["id"]] = _Visit(details["name"], _moment(event))
        elif kind.endswith("StateExited"):
            self._end(event, event["stateExitedEventDetails"]["name"])
        elif kind.endswith("StateAborted"):
            self._end(event, None)
        elif kind in _EXECUTION_ENDED:
            self._cut_short = [visit for visit in self.visits.values() if visit.ended_at is None]
            for visit in self._cut_short:
                visit.ended_at = _moment(event)
        elif kind == "ExecutionRedriven":
            for visit in self._cut_short:
                visit.ended_at = None

    def _end(self, event: Event, name: str | None) -> None:
        for visit in self._candidates(event["id"]):
            if visit.ended_at is None and name in {visit.name, None}:
                visit.ended_at = _moment(event)
                return

    def _candidates(self, event_id: int) -> Iterator[_Visit]:
        """Yield what the event's own branch entered, nearest first, then everything else."""
        while event_id := self._before.get(event_id, 0):
            if event_id in self.visits:
                yield self.visits[event_id]
        yield from self.visits.values()


def _moment(event: Event) -> datetime:
    moment = utc(event["timestamp"])
    if moment is None:
        raise ValueError("an event without a timestamp")
    return moment
