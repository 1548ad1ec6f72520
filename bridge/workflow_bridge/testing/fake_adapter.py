"""A workflow engine in memory, whose every weakness can be scripted.

Nothing happens by itself and no time passes: a test says when executions end (`finish`), what fails
(`fail`) and what the engine forgets (`vanish`), and reads what was asked of it (`calls`).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from workflow_bridge.adapter import (
    Aborted,
    AdapterError,
    Ended,
    Execution,
    ExecutionNotFound,
    ExecutionRef,
    Found,
    Json,
    Listed,
    Narration,
    Page,
    Problem,
    Queued,
    Rejected,
    Running,
    Started,
    StartUnknown,
    Step,
    Unavailable,
)

Clock: TypeAlias = Callable[[], datetime]
Behaviour: TypeAlias = Callable[[Json], Execution]
"""What an execution is from the moment it is started, given its arguments."""


def runs(arguments: Json) -> Execution:
    """A workflow that runs until the test finishes it."""
    del arguments
    return Running()


async def no_pause(method: str) -> None:
    """Answer at once."""
    del method


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One call that arrived, answered or not. ``subject`` is its workflow or its ref."""

    method: str
    subject: str
    key: str | None = None


@dataclass(slots=True)
class FakeExecution:
    """What the engine knows of one execution."""

    ref: ExecutionRef
    workflow: str
    key: str
    payload: bytes
    created_at: datetime
    execution: Execution
    steps: list[Step] = field(default_factory=list)
    stop_reasons: list[str] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        """True once it has an outcome."""
        return not isinstance(self.execution, Queued | Running)


@dataclass(frozen=True, slots=True)
class _Fault:
    error: AdapterError
    after_effect: bool


class FakeAdapter:
    """Implements `Adapter`, `Narrates` and `Lists`.

    ``behaviours`` are the workflows there are; with none given, any name is one that `runs`.
    ``pause`` is awaited inside every call, after it was recorded and before it has an effect.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        behaviours: Mapping[str, Behaviour] | None = None,
        start_is_idempotent: bool = True,
        start_timeout: timedelta = timedelta(seconds=20),
        max_payload_bytes: int = 262_144,
        pause: Callable[[str], Awaitable[None]] = no_pause,
        fingerprint: str = "fake",
    ) -> None:
        self.start_is_idempotent = start_is_idempotent
        self.start_timeout = start_timeout
        self.fingerprint = fingerprint
        self.calls: list[FakeCall] = []
        self.executions: dict[ExecutionRef, FakeExecution] = {}
        self.down = False
        """While true every call is `Unavailable` and has no effect."""
        self.stop_works = True
        """While false a stop is accepted and recorded, and the execution runs on."""
        self.find_lag = timedelta(0)
        """How long a new execution is missing from what `find` lists."""
        self.closed = False
        self._clock = clock
        self._behaviours = behaviours
        self._max_payload_bytes = max_payload_bytes
        self._pause = pause
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)
        self._made = 0

        self.pages_per_second = 100.0

    # --- scripting ---

    def fail(
        self, method: str, error: AdapterError, *, after_effect: bool = False, times: int = 1
    ) -> None:
        """Let the next calls of ``method`` raise ``error``, before or after they have an effect."""
        self._faults[method].extend([_Fault(error, after_effect)] * times)

    def lose_reply(self, method: str = "start", *, times: int = 1) -> None:
        """Let calls have their effect, and lose the answer."""
        lost: AdapterError = Unavailable("reply lost")
        if method in {"start", "run"}:
            lost = StartUnknown("reply lost")
        self.fail(method, lost, after_effect=True, times=times)

    def finish(self, ref: ExecutionRef, outcome: Ended) -> None:
        """End an execution."""
        self.become(ref, outcome)

    def become(self, ref: ExecutionRef, execution: Execution) -> None:
        """Put an execution into any state, be it one that no engine would move to (redrive)."""
        self.executions[ref].execution = execution

    def enter(self, ref: ExecutionRef, name: str) -> None:
        """Let an execution leave the step it is in and enter the next."""
        steps, now = self.executions[ref].steps, self._clock()
        if steps and steps[-1].ended_at is None:
            steps[-1] = replace(steps[-1], ended_at=now)
        steps.append(Step(name, now))

    def vanish(self, ref: ExecutionRef) -> None:
        """Let the engine forget an execution."""
        del self.executions[ref]

    def duplicate(self, ref: ExecutionRef) -> ExecutionRef:
        """Make another execution with the same key, as an engine that retries inside may."""
        known = self.executions[ref]
        return self._create(known.workflow, known.payload, known.key).ref

    def called(self, method: str) -> list[FakeCall]:
        """Return the calls of one method that arrived so far."""
        return [call for call in self.calls if call.method == method]

    # --- Adapter ---

    def check_workflow(self, workflow: str, *, inline: bool) -> None:
        """Raise `ValueError` for an empty name."""
        del inline
        if not workflow:
            raise ValueError("a workflow's name is not empty")

    def prepare(self, workflow: str, arguments: Json) -> bytes:
        """Return compact JSON."""
        del workflow
        try:
            payload = json.dumps(
                arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False
            ).encode()
        except ValueError as exc:
            raise Rejected("not JSON") from exc
        if len(payload) > self._max_payload_bytes:
            raise Rejected(f"{len(payload)} bytes are more than {self._max_payload_bytes}")
        return payload

    async def start(self, workflow: str, payload: bytes, *, key: str) -> Started:
        """Make an execution, or return the one that has the key where starts are idempotent."""
        async with self._call("start", workflow, key):
            if self.start_is_idempotent:
                for known in self._with_key(workflow, key):
                    if known.payload != payload:
                        raise Rejected("another payload has the key", clash=True)
                    return Started(known.ref, known.execution)
            made = self._create(workflow, payload, key)
            return Started(made.ref, made.execution)

    async def find(self, workflow: str, *, key: str, since: datetime) -> list[Found]:
        """List what has the key, except what is younger than `find_lag`."""
        async with self._call("find", workflow, key):
            listed_until = self._clock() - self.find_lag
            return [
                Found(known.ref, known.created_at)
                for known in self._with_key(workflow, key)
                if since <= known.created_at <= listed_until
            ]

    async def observe(self, ref: ExecutionRef) -> Execution:
        """Return what the test last made of it."""
        async with self._call("observe", ref):
            return self._known(ref).execution

    async def stop(self, ref: ExecutionRef, reason: str) -> None:
        """Record the reason, and abort the execution unless it has ended or `stop_works` is off."""
        async with self._call("stop", ref):
            known = self._known(ref)
            known.stop_reasons.append(reason)
            if self.stop_works and not known.has_ended:
                known.execution = Aborted("Cancelled", reason, self._clock())

    async def check(self, workflows: Mapping[str, bool]) -> list[Problem]:
        """Name the workflows that do not exist."""
        try:
            async with self._call("check", ",".join(workflows)):
                return [
                    Problem(workflow, "There is no such workflow.", "Correct its name.")
                    for workflow in workflows
                    if self._behaviours is not None and workflow not in self._behaviours
                ]
        except Unavailable as exc:
            return [Problem("engine", str(exc), "Start it.")]

    async def aclose(self) -> None:
        """Remember that it was called."""
        self.closed = True

    # --- Narrates ---

    async def narrate(self, ref: ExecutionRef) -> Narration:
        """Return the steps that the test let it enter."""
        async with self._call("narrate", ref):
            return Narration(tuple(self._known(ref).steps), self.console_url(ref))

    def console_url(self, ref: ExecutionRef) -> str | None:
        """Return an address that leads nowhere."""
        return f"https://engine.invalid/{ref}"

    # --- Lists ---

    async def list_executions(
        self, workflow: str, *, prefix: str, since: datetime, cursor: str | None = None
    ) -> Page:
        """List two at a time, whatever `find_lag` says."""
        async with self._call("list_executions", workflow):
            of_workflow = [e for e in self.executions.values() if e.workflow == workflow]
            begin = int(cursor or 0)
            end = begin + 2
            return Page(
                tuple(
                    Listed(e.ref, e.key, e.created_at, e.has_ended)
                    for e in of_workflow[begin:end]
                    if e.key.startswith(prefix) and e.created_at >= since
                ),
                str(end) if end < len(of_workflow) else None,
            )

    # --- the engine ---

    @asynccontextmanager
    async def _call(self, method: str, subject: str, key: str | None = None) -> AsyncIterator[None]:
        self.calls.append(FakeCall(method, subject, key))
        await self._pause(method)
        if self.down:
            raise Unavailable("the engine is down")
        fault = self._faults[method].popleft() if self._faults[method] else None
        if fault is not None and not fault.after_effect:
            raise fault.error
        yield
        if fault is not None:
            raise fault.error

    def _create(self, workflow: str, payload: bytes, key: str) -> FakeExecution:
        execution = self._behaviour(workflow)(json.loads(payload))
        self._made += 1
        ref = ExecutionRef(f"fake:{workflow}:{self._made}")
        made = FakeExecution(ref, workflow, key, payload, self._clock(), execution)
        self.executions[ref] = made
        return made

    def _behaviour(self, workflow: str) -> Behaviour:
        if self._behaviours is None:
            return runs
        if workflow not in self._behaviours:
            raise Rejected("there is no such workflow")
        return self._behaviours[workflow]

    def _with_key(self, workflow: str, key: str) -> list[FakeExecution]:
        found = [e for e in self.executions.values() if (e.workflow, e.key) == (workflow, key)]
        return sorted(found, key=lambda execution: execution.created_at)

    def _known(self, ref: ExecutionRef) -> FakeExecution:
        if ref not in self.executions:
            raise ExecutionNotFound("there is no such execution")
        return self.executions[ref]


class InlineFakeAdapter(FakeAdapter):
    """A `FakeAdapter` that implements `RunsInline` as well; a behaviour must end at once."""

    run_timeout = timedelta(seconds=330)

    async def run(self, workflow: str, payload: bytes, *, key: str) -> Ended:
        """Run to the end. Nothing can be found, observed or stopped of it."""
        async with self._call("run", workflow, key):
            outcome = self._behaviour(workflow)(json.loads(payload))
            if isinstance(outcome, Queued | Running):
                raise Rejected("the workflow does not end at once")
            return outcome
