"""The port: what an adapter to a workflow engine is.

An adapter speaks to one kind of backend. It starts, finds, observes and stops executions and
translates the engine's words into the neutral ones below. It holds no policy: it neither sleeps,
polls nor retries beyond its SDK's quick retries, opens no database and logs no payload.

Errors an adapter may raise, the whole tree; nothing else may escape it::

    AdapterError
    ├── Unavailable         may succeed later; nothing is known to have changed
    ├── Rejected            never will succeed as asked
    ├── StartUnknown        the start may or may not have happened
    └── ExecutionNotFound   the engine says that it has no such execution

An adapter is found by an entry point in the group ``workflow_bridge.adapters`` whose name is what
YAML calls it and whose object is the class (see :class:`AdapterFactory`). Import heavy SDKs inside
the methods that need them: the module is imported when the configuration is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NewType, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel

ENTRY_POINT_GROUP = "workflow_bridge.adapters"

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

ExecutionRef = NewType("ExecutionRef", str)
"""The engine's own handle of an execution (ARN, resource name, run id); opaque to the bridge."""


# --- what an engine says of an execution ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queued:
    """Accepted by the engine, not begun."""

    message: str | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """Begun, not ended; also the answer to any status word the adapter does not know."""

    message: str | None = None


@dataclass(frozen=True, slots=True)
class Succeeded:
    """Ended well; ``output`` is its decoded JSON value, or the raw text where that is no JSON."""

    output: Json
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Failed:
    """Ended in an error of the workflow. ``error`` is its name, ``cause`` the full text."""

    error: str | None
    cause: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Ended by the engine because the whole execution took too long."""

    error: str | None
    cause: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Aborted:
    """Stopped before completion, by us or by somebody else."""

    error: str | None
    cause: str | None
    ended_at: datetime | None


Ended: TypeAlias = Succeeded | Failed | TimedOut | Aborted
Execution: TypeAlias = Queued | Running | Ended


@dataclass(frozen=True, slots=True)
class Started:
    """A start that the engine confirmed."""

    ref: ExecutionRef
    execution: Execution


@dataclass(frozen=True, slots=True)
class Found:
    """An execution that carries the key looked for."""

    ref: ExecutionRef
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Listed:
    """An execution in a list; ``ended`` says whether it has ended, in whatever way."""

    ref: ExecutionRef
    key: str
    created_at: datetime
    ended: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list; ``cursor`` asks for the next, and is None on the last."""

    executions: tuple[Listed, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step an execution has entered; ``ended_at`` is None while it is in it."""

    name: str
    entered_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Narration:
    """Where an execution is: its steps so far, in order of entering, and a page for people."""

    steps: tuple[Step, ...]
    console_url: str | None = None

    @property
    def current(self) -> str | None:
        """The name of the step entered last that has not ended, or of the last one."""
        for step in reversed(self.steps):
            if step.ended_at is None:
                return step.name
        return self.steps[-1].name if self.steps else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something `check` found wrong: what, where, and what to do about it."""

    subject: str
    message: str
    action: str


# --- errors --------------------------------------------------------------------------------------


class AdapterError(Exception):
    """Base of all that an adapter may raise.

    The text is for operators and clients alike: it must hold no credential, token, payload, header
    or account identifier. The vendor's exception is its ``__cause__``.
    """


class Unavailable(AdapterError):
    """The engine could not be asked or would not answer now: network, throttling, credentials.

    From `start` and `run` it promises that nothing was started. ``throttled`` says that the engine
    asked for fewer calls; ``retry_after`` is what it asked for, if it said.
    """

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, throttled: bool = False
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.throttled = throttled


class Rejected(AdapterError):
    """The engine, or the adapter on its behalf, refuses this for good; nothing was started.

    ``error`` is a short name that clients may see (the engine's own error code, say). ``clash``
    says that the key is in use by an execution that is not ours.
    """

    def __init__(self, message: str, *, error: str = "Rejected", clash: bool = False) -> None:
        super().__init__(message)
        self.error = error
        self.clash = clash


class StartUnknown(AdapterError):
    """The start (or inline run) may or may not have happened: the answer was lost."""


class ExecutionNotFound(AdapterError):
    """The engine answered, and says that it knows no such execution."""


# --- the ports -----------------------------------------------------------------------------------


class Adapter(Protocol):
    """One backend. Every call has a deadline of its own and raises only `AdapterError`s."""

    start_is_idempotent: bool
    """True if two starts with the same workflow, payload and key make one execution."""

    start_timeout: timedelta
    """The longest a `start` may take, and after which a request on the wire can no longer act."""

    fingerprint: str
    """Kind, account or project, and region: changes when the configuration points elsewhere."""

    def check_workflow(self, workflow: str, *, inline: bool) -> None:
        """Raise `ValueError`, saying what is right, for a workflow name that cannot be one.

        Called when the configuration is read: no I/O.
        """
        ...

    def prepare(self, workflow: str, arguments: Json) -> bytes:
        """Return the exact bytes to send; the same on every retry. No I/O.

        Raises `Rejected` for what the engine would refuse (its size limit in UTF-8 bytes, say).
        """
        ...

    async def start(self, workflow: str, payload: bytes, *, key: str) -> Started:
        """Start one execution under ``key``. Raises `StartUnknown` if it cannot tell."""
        ...

    async def find(self, workflow: str, *, key: str, since: datetime) -> list[Found]:
        """Return the executions that carry exactly ``key``, earliest first.

        ``since`` is a time before the start. Raises `Unavailable` where it cannot see.
        """
        ...

    async def observe(self, ref: ExecutionRef) -> Execution:
        """Ask once; changes nothing. A final answer is the answer for ever."""
        ...

    async def stop(self, ref: ExecutionRef, reason: str) -> None:
        """Ask the engine to stop it; idempotent, and no error on an ended execution."""
        ...

    async def check(self, workflows: Mapping[str, bool]) -> list[Problem]:
        """Return what is wrong: not reachable, not there, of the wrong type, not permitted.

        Each workflow comes with whether it is to run inline.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and threads. No call is made afterwards."""
        ...


@runtime_checkable
class RunsInline(Protocol):
    """Short synchronous runs: the call itself waits for the end (EXPRESS state machines)."""

    run_timeout: timedelta
    """The longest a `run` may take."""

    async def run(self, workflow: str, payload: bytes, *, key: str) -> Ended:
        """Run to the end. Raises `StartUnknown` when the answer was lost; never sent twice."""
        ...


@runtime_checkable
class Narrates(Protocol):
    """Can say which step an execution is in. Costs a second call: used while somebody listens."""

    async def narrate(self, ref: ExecutionRef) -> Narration:
        """Return the steps so far."""
        ...

    def console_url(self, ref: ExecutionRef) -> str | None:
        """Return the page of the engine's console that shows it, without I/O."""
        ...


@runtime_checkable
class Lists(Protocol):
    """Can list the executions of a workflow, so that those without a task are found."""

    pages_per_second: float
    """How many pages the engine gives without refusing other callers theirs."""

    async def list_executions(
        self, workflow: str, *, prefix: str, since: datetime, cursor: str | None = None
    ) -> Page:
        """Return one page of those created at or after ``since`` whose key begins with ``prefix``.

        In any order; a page may be empty and not be the last. Those that are not standard
        executions with a key of their own may be left out.
        """
        ...


class AdapterFactory(Protocol):
    """What an entry point names: usually the adapter class itself."""

    Settings: type[BaseModel]
    """The backend's own keys in YAML, as a pydantic model with ``extra="forbid"``."""

    def __call__(self, settings: BaseModel) -> Adapter:
        """Make the adapter. No I/O, no SDK client: those are made at the first call."""
        ...
