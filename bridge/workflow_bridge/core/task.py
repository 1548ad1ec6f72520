"""The task: one row, its words and its legal moves. Pure; no I/O."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from workflow_bridge.adapter import ExecutionRef


class Status(StrEnum):
    """The stored status: dialect A's words, the richest (SEP-1686 §4.3)."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """True for the four that a task never leaves."""
        return not LEGAL_MOVES[self]


_ENDS: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.UNKNOWN})

LEGAL_MOVES: Final[dict[Status, frozenset[Status]]] = {
    Status.SUBMITTED: _ENDS | {Status.WORKING, Status.INPUT_REQUIRED},
    Status.WORKING: _ENDS | {Status.INPUT_REQUIRED},
    Status.INPUT_REQUIRED: _ENDS | {Status.WORKING},
    **dict.fromkeys(_ENDS, frozenset()),
}
"""SEP-1686 §4.3."""


class OutcomeKind(StrEnum):
    """How an execution ended, in neutral terms; each dialect renders it its own way."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    ABORTED = "aborted"
    REJECTED = "rejected"
    """The start was refused, or provably never happened."""
    LOST = "lost"
    """It may have succeeded, and what became of it can no longer be learned."""


class Dialect(StrEnum):
    """Which wire dialect created the task."""

    A = "a"
    B = "b"
    C = "c"
    PLAIN = "plain"


MESSAGE_LIMIT: Final = 1000
"""Characters kept in `Task.status_message` and `Task.last_error`; full texts are in the payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task and all that is known of its execution. Times are aware, in UTC."""

    row_id: str
    """128 random bits in hex, minted at insertion and never reused."""
    owner: str
    task_id: str
    dialect: Dialect
    tool: str
    backend: str
    fingerprint: str
    """The backend's fingerprint when the row was made."""
    workflow: str
    key: str
    """The name or label the execution gets at the engine; the same on every retry."""
    arguments_digest: str
    """SHA-256 of the exact bytes sent, in hex."""
    inline: bool = False
    client_key: str | None = None

    ref: ExecutionRef | None = None
    status: Status = Status.SUBMITTED
    status_message: str | None = None
    step: str | None = None
    outcome: OutcomeKind | None = None

    keep_alive: timedelta | None
    """How long the task is kept after it became final; None is for ever."""
    ttl: timedelta | None = None
    poll_interval: timedelta

    created_at: datetime
    updated_at: datetime
    final_at: datetime | None = None
    """When the status became final here."""
    ended_at: datetime | None = None
    """When the execution ended, in the engine's words."""
    expires_at: datetime | None = None

    start_called_at: datetime | None = None
    """When the last start that may have reached the engine was let through the gate."""
    start_settled_at: datetime | None = None
    """Since when it is known whether the execution exists."""
    stop_requested_at: datetime | None = None
    stop_confirmed_at: datetime | None = None

    due_at: datetime | None = None
    """When the loop next has something to do with the row; None is never."""
    lease_until: datetime | None = None
    attempts: int = 0
    """Failed calls in a row."""
    last_error: str | None = None
    """Why the last call failed; None after one that did not."""
    last_observed_at: datetime | None = None
    """When the engine last answered."""
    missing_since: datetime | None = None
    """Since when the engine has said, without a break, that it knows no such execution."""
    hidden_at: datetime | None = None
    version: int = field(default=1)

    @property
    def final(self) -> bool:
        return self.status.final

    @property
    def start_in_doubt(self) -> bool:
        """A start was let through and it is not known what became of it."""
        return self.start_called_at is not None and self.start_settled_at is None

    @property
    def stop_pending(self) -> bool:
        """A stop is wanted and not yet confirmed."""
        return self.stop_requested_at is not None and self.stop_confirmed_at is None

    @property
    def settled(self) -> bool:
        """It is known whether the execution exists, and a wanted stop is confirmed."""
        return self.start_settled_at is not None and not self.stop_pending

    def expired(self, now: datetime) -> bool:
        """True once its keepAlive has passed; reads follow this, not the clean-up."""
        return self.expires_at is not None and self.expires_at <= (self.hidden_at or now)

    def visible(self, now: datetime) -> bool:
        """True while reads may show it: neither deleted nor expired."""
        return self.hidden_at is None and not self.expired(now)


@dataclass(frozen=True, slots=True)
class Payload:
    """The large parts of a task, kept apart from its row."""

    arguments: bytes | None = None
    """The exact bytes to send; dropped once the start is settled."""
    output: str | None = None
    """JSON text of what the execution returned."""
    error: str | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One change of state, written in the same transaction as the change (SEP-1686 §8.3)."""

    kind: str
    status: Status
    detail: str | None = None


def new_row_id() -> str:
    """Mint a row id: 128 random bits in hex."""
    return secrets.token_hex(16)


KEY_PREFIX: Final = "wb-"
"""How every key begins."""


def execution_key(row_id: str) -> str:
    """Return the key of a row: legal as a name or label at every engine we know."""
    return KEY_PREFIX + row_id


def digest(payload: bytes) -> str:
    """Return the arguments digest of the exact bytes sent."""
    return hashlib.sha256(payload).hexdigest()


def storable(text: str) -> str:
    """Replace what no database column of text holds: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")


def shortened(text: str) -> str:
    """Cut a text to what a row holds, marked where it was cut."""
    text = storable(text)
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def events_between(before: Task | None, after: Task) -> list[Event]:
    """Name what changed between two versions of a row, for the event log."""

    def event(kind: str, detail: str | None = None) -> Event:
        return Event(kind, after.status, detail)

    if before is None:
        return [event("created")]
    events: list[Event] = []
    if after.start_called_at != before.start_called_at and after.start_called_at is not None:
        events.append(event("start_called"))
    if after.ref != before.ref:
        events.append(event("bound", after.ref))
    if after.status is not before.status:
        events.append(event("status", after.status_message))
    elif after.outcome != before.outcome:
        events.append(event("outcome", after.outcome))
    if before.stop_requested_at is None and after.stop_requested_at is not None:
        events.append(event("stop_requested"))
    if before.stop_confirmed_at is None and after.stop_confirmed_at is not None:
        events.append(event("stop_confirmed"))
    if before.hidden_at is None and after.hidden_at is not None:
        events.append(event("hidden"))
    return events
