"""One loop over the rows that are due: start, find, observe, stop, hide, remove."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

import anyio
import anyio.abc
import structlog

from workflow_bridge.adapter import (
    Aborted,
    Adapter,
    AdapterError,
    Execution,
    ExecutionNotFound,
    ExecutionRef,
    Failed,
    Narrates,
    Queued,
    Rejected,
    Running,
    RunsInline,
    StartUnknown,
    Succeeded,
    TimedOut,
    Unavailable,
)
from workflow_bridge.core import step as steps
from workflow_bridge.core.budget import Budget
from workflow_bridge.core.policy import Policy, Tool
from workflow_bridge.core.store import MAX_SLEEP, TaskStore
from workflow_bridge.core.task import Event, Payload, Task, storable
from workflow_bridge.core.waiters import Waiters

log = structlog.get_logger(__name__)

LEASE: Final = timedelta(seconds=30)
"""Longer than any call but a start's or an inline run's, which have their own."""
LEASE_MARGIN: Final = timedelta(seconds=10)
CLOCKS_DIFFER: Final = timedelta(hours=1)
"""How far our clock may be ahead of an engine's."""
TICK: Final = 1.0
"""Seconds between two looks into the database for what other processes changed."""
BREATH: Final = 0.05
"""Seconds between two looks at least, unless there is more to be claimed at once."""
STOP_REASON: Final = "cancelled by the owner of the MCP task"


@dataclass(slots=True, kw_only=True)
class Backend:
    """An open backend, and how much of it is in use."""

    adapter: Adapter
    budget: Budget
    concurrency: int = 32
    """Rows of this backend worked on at a time; a backend that hangs holds up no other."""
    busy: set[str] = field(default_factory=set)
    looks: int = 0
    """Looks begun that have not come as far as to take their call from the budget."""

    @property
    def free(self) -> int:
        return self.concurrency - len(self.busy)


class Worker:
    """Takes one step at a time on each row that is due, as `next_step` says.

    Any number of workers may run on one database: a lease is held for a step, and its result is
    applied only to the version that was claimed.
    """

    def __init__(
        self,
        store: TaskStore,
        backends: Mapping[str, Backend],
        tools: Mapping[str, Tool],
        waiters: Waiters,
        *,
        tombstone: timedelta = timedelta(days=1),
        settling: timedelta = timedelta(minutes=1),
    ) -> None:
        self._store = store
        self._backends = backends
        self._tools = tools
        self._waiters = waiters
        self._tombstone = tombstone
        self._settling = settling
        self._kicked = anyio.Event()
        self._closing = False
        self._group: anyio.abc.TaskGroup | None = None
        self._active: dict[str, anyio.Event] = {}
        self._queued: dict[str, Task] = {}
        self._undelayable: set[str] = set()
        """Rows with a start or stop in flight: shutting down waits for these."""

    # --- the loop --------------------------------------------------------------------------------

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Work until cancelled or closed."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                group.start_soon(self._watch_over)
                task_status.started()
                while not self._closing:
                    self._kicked = anyio.Event()
                    wait = await self._round()
                    # One look into the database serves all who kick meanwhile.
                    await anyio.sleep(min(wait, BREATH))
                    with anyio.move_on_after(max(wait - BREATH, 0)):
                        await self._kicked.wait()
        finally:
            self._group = None

    def kick(self) -> None:
        """Have the loop look for due rows now."""
        self._kicked.set()

    async def close(self, grace: float = 5.0) -> None:
        """Take no new work; give starts and stops in flight their time, then release the leases."""
        self._closing = True
        self.kick()
        group = self._group
        if group is None:
            return
        with anyio.move_on_after(grace):
            while self._undelayable:
                await self._active[next(iter(self._undelayable))].wait()
        group.cancel_scope.cancel()

    async def _round(self) -> float:
        """Claim what is due and free; return how long there is nothing to do."""
        try:
            open_to: list[str] = []
            full = False
            for name, backend in self._backends.items():
                if backend.free <= 0:
                    continue
                claimed = await self._store.claim([name], limit=backend.free, lease=LEASE)
                for task in claimed:
                    self.adopt(task)
                full = full or (len(claimed) > 0 and backend.free > 0)
                if backend.free > 0:
                    open_to.append(name)
            if full:
                return 0.0
            due = await self._store.next_due(open_to)
        except Exception:
            log.exception("worker_round_failed")
            return TICK
        if due is None:
            return TICK
        return min(max((due - self._store.now()).total_seconds(), 0.01), TICK)

    async def _watch_over(self) -> None:
        """Look once a second after all rows that somebody here waits for."""
        while True:
            await anyio.sleep(TICK)
            waited = self._waiters.rows()
            if not waited:
                continue
            try:
                versions = await self._store.versions(waited.keys())
                for row_id, task in waited.items():
                    if row_id not in versions:
                        self._waiters.gone(row_id)
                    elif task is None or versions[row_id] > task.version:
                        fresh = await self._store.row(row_id)
                        if fresh is not None:
                            self._waiters.publish(fresh)
                    elif self.may_look(task):
                        self._look(task)
            except Exception:
                log.exception("watch_round_failed")

    # --- looks asked for by polls and waiters ----------------------------------------------------

    def poll_interval(self, task: Task) -> timedelta:
        """How often this task is worth asking for, given how its engine fares."""
        backend = self._backends.get(task.backend)
        return task.poll_interval * (backend.budget.stretch if backend else 1.0)

    def may_look(self, task: Task) -> bool:
        """Whether the last look is older than the poll interval, and a look may help."""
        now = self._store.now()
        backend = self._backends.get(task.backend)
        if task.final or task.ref is None or backend is None:
            return False
        if not backend.budget.ready(spoken_for=backend.looks):
            return False
        if task.attempts and task.due_at is not None and task.due_at > now:
            return False
        seen = task.last_observed_at
        # A last look that is ahead of the clock is no reason to wait for long either.
        return seen is None or abs(now - seen) >= self.poll_interval(task)

    async def look(self, task: Task, patience: float, *, anyway: bool = False) -> None:
        """Have the engine asked, and wait a little (seconds) for the answer.

        ``anyway``: even if the last look is younger than the poll interval.
        """
        done = self._look(task, anyway=anyway)
        if done is not None:
            with anyio.move_on_after(patience):
                await done.wait()

    def _look(self, task: Task, *, anyway: bool = False) -> anyio.Event | None:
        done = self._active.get(task.row_id)
        mine = task.backend in self._backends
        if done is None and mine and self._group is not None and not self._closing:
            done = self._begin(task)
            self._backends[task.backend].looks += 1
            self._group.start_soon(self._claim_and_take, task, anyway)
        return done

    async def _claim_and_take(self, task: Task, anyway: bool) -> None:
        claimed = None
        try:
            claimed = await self._store.claim_row(task.row_id, unseen=not anyway, lease=LEASE)
        except Exception:
            log.exception("claim_failed", row_id=task.row_id)
        finally:
            self._backends[task.backend].looks -= 1
        if claimed is None:
            self._end(task)
        else:
            await self._take(claimed, None)

    # --- one step on one row ---------------------------------------------------------------------

    def adopt(self, task: Task, arguments: bytes | None = None) -> None:
        """Work on a row whose lease the caller took: one just inserted, or just claimed."""
        if self._group is None:
            return
        if task.row_id in self._active:
            # Its lease was broken while a call of ours is in flight (a stop, say).
            self._queued[task.row_id] = task
            return
        self._begin(task)
        self._group.start_soon(self._take, task, arguments)

    async def _take_queued(self, task: Task) -> None:
        current = None
        try:
            current = await self._store.row(task.row_id)
        except Exception:
            log.exception("claim_failed", row_id=task.row_id)
        finally:
            stale = current is None or current.version != task.version
            if stale:
                self._end(task)
        if not stale:
            await self._take(task, None)

    def _begin(self, task: Task) -> anyio.Event:
        self._backends[task.backend].busy.add(task.row_id)
        done = self._active[task.row_id] = anyio.Event()
        return done

    def _end(self, task: Task) -> None:
        self._backends[task.backend].busy.discard(task.row_id)
        self._undelayable.discard(task.row_id)
        self._active.pop(task.row_id).set()
        queued = self._queued.pop(task.row_id, None)
        if queued is not None and self._group is not None:
            # At once, so that nobody begins with the row while its lease is held for this.
            self._begin(queued)
            self._group.start_soon(self._take_queued, queued)
        self.kick()

    async def _take(self, task: Task, arguments: bytes | None) -> None:
        held = _Held(task)
        try:
            if self._closing:
                await self._release(held)
            else:
                await self._step(held, arguments)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(1, shield=True):
                await self._release(held)
            raise
        except Exception:
            log.exception("step_failed", row_id=task.row_id, backend=task.backend)
            await self._release(held, failed=True)
        finally:
            self._end(task)

    async def _release(self, held: _Held, *, failed: bool = False) -> None:
        """Give the lease back; what cannot be written now lapses with the lease."""
        try:
            task, now = held.task, self._store.now()
            after = steps.put_off(task, now)
            if failed:
                due = now + steps.back_off(task, now, self._policy(task))
                after = steps.unavailable(task, "internal error of the bridge", due)
            await self._store.apply(task, after)
        except Exception:
            log.exception("release_failed", row_id=held.task.row_id)

    async def _step(self, held: _Held, arguments: bytes | None) -> None:
        task, now = held.task, self._store.now()
        policy = self._policy(task)
        match steps.next_step(task, now, policy):
            case steps.Start():
                self._undelayable.add(task.row_id)
                await self._start(held, policy, arguments)
            case steps.Find():
                await self._find(task, policy)
            case steps.Observe():
                await self._observe(task, policy)
            case steps.Stop():
                self._undelayable.add(task.row_id)
                await self._stop(task, policy)
            case steps.GiveUp():
                await self._apply(task, steps.given_up(task, now, policy))
            case steps.Hide():
                await self._apply(task, steps.hidden(task, now), Payload())
            case steps.Remove():
                if await self._store.remove(task):
                    self._waiters.gone(task.row_id)
            case steps.Sleep(until):
                await self._apply(task, steps.put_off(task, until))
            case unreachable:
                assert_never(unreachable)

    # --- the start -------------------------------------------------------------------------------

    async def _start(self, held: _Held, policy: Policy, arguments: bytes | None) -> None:
        task = held.task
        adapter = self._backends[task.backend].adapter
        timeout = policy.run_timeout if task.inline else policy.start_timeout
        if arguments is None:
            arguments = (await self._store.payload(task.row_id)).arguments
        if arguments is None:
            raise LookupError("a start without its stored arguments")
        gate = steps.gated(task, self._store.now(), timeout + LEASE_MARGIN, policy)
        passed = await self._store.apply(task, gate)
        if passed is None:
            return
        held.task = passed
        if self._store.now() - gate.updated_at >= LEASE_MARGIN:
            # Others count the time that a start may take from the gate on.
            await self._start_unavailable(held, task, Unavailable("the database is slow"), policy)
            return
        try:
            if task.inline:
                await self._run_inline(held, adapter, arguments, policy)
                return
            started = await adapter.start(task.workflow, arguments, key=task.key)
        except Rejected as exc:
            await self._start_rejected(held, task, exc, policy)
        except Unavailable as exc:
            await self._start_unavailable(held, task, exc, policy)
        except AdapterError as exc:
            reason = str(exc)
            log.warning("start_unknown", row_id=task.row_id, reason=reason)
            await self._settle(
                held,
                lambda t, now: steps.start_doubtful(t, reason, now + _delay(t, now, policy, None)),
            )
        else:
            bound = await self._settle(
                held,
                lambda t, now: steps.started(t, started.ref, started.execution, now, policy),
                _payload(started.execution),
                learned=True,
            )
            if bound is not None and bound.ref not in (None, started.ref):
                await _stop_extra(task, adapter, started.ref)

    async def _run_inline(
        self, held: _Held, adapter: Adapter, arguments: bytes, policy: Policy
    ) -> None:
        if not isinstance(adapter, RunsInline):
            raise Rejected("this backend cannot run a workflow inline", error="NotInline")
        task = held.task
        try:
            ended = await adapter.run(task.workflow, arguments, key=task.key)
        except StartUnknown as exc:
            message = f"the answer to the run was lost; whether it succeeded is not known: {exc}"
            await self._settle(held, lambda t, now: steps.start_lost(t, message, now))
        else:
            await self._settle(
                held,
                lambda t, now: steps.ran(t, ended, now, policy),
                _payload(ended),
                learned=True,
            )

    async def _start_rejected(self, held: _Held, task: Task, exc: Rejected, policy: Policy) -> None:
        message = f"{exc.error}: {exc}"
        log.warning("start_rejected", row_id=task.row_id, tool=task.tool, reason=message)
        if task.start_called_at is not None and not task.inline and not exc.clash:
            # This call started nothing, but one before it is still in doubt.
            after = steps.start_withdrawn(
                held.task, task.start_called_at, message, self._store.now()
            )
            undone = await self._store.apply(held.task, after)
            if undone is not None:
                held.task = undone
                await self._find(undone, policy)
            return
        await self._settle(held, lambda t, now: steps.refused(t, message, now))

    async def _start_unavailable(
        self, held: _Held, task: Task, exc: Unavailable, policy: Policy
    ) -> None:
        log.warning("start_unavailable", row_id=task.row_id, backend=task.backend, reason=str(exc))
        before = task.start_called_at

        def undone(current: Task, now: datetime) -> Task:
            due = now + _delay(current, now, policy, exc)
            due = min(due, max(current.created_at + policy.start_within, now))
            return steps.start_unavailable(current, before, str(exc), due, now)

        await self._settle(held, undone)

    async def _settle(
        self,
        held: _Held,
        learn: Callable[[Task, datetime], Task],
        payload: Payload | None = None,
        *,
        learned: bool = False,
    ) -> Task | None:
        """Record what a start came to, whatever happened to the row meanwhile; return the row.

        ``learned``: a fact about an execution; anything else gives way to a start that another
        worker has let through or settled since.
        """
        gate = held.task.start_called_at
        current: Task | None = held.task
        while current is not None:
            overtaken = current.start_settled_at is not None or current.start_called_at != gate
            if overtaken and not learned:
                break
            after = learn(current, self._store.now())
            if after == current:
                break
            kept = None if after.hidden_at or after.outcome is current.outcome else payload
            written = await self._store.apply(current, after, payload=kept)
            if written is not None:
                held.task = written
                self._waiters.publish(written)
                return written
            current = await self._store.row(current.row_id)
        return current

    async def _find(self, task: Task, policy: Policy) -> None:
        """Look for the execution of a start in doubt; adopt the earliest, stop all others."""
        adapter = self._backends[task.backend].adapter
        try:
            since = task.created_at - CLOCKS_DIFFER
            executions = await adapter.find(task.workflow, key=task.key, since=since)
            extras = [found.ref for found in executions[1:]]
            for extra in extras:
                await _stop_extra(task, adapter, extra)
        except AdapterError as exc:
            log.warning(
                "engine_unavailable", row_id=task.row_id, backend=task.backend, reason=str(exc)
            )
            now = self._store.now()
            await self._apply(
                task, steps.unavailable(task, str(exc), now + _delay(task, now, policy, exc))
            )
            return
        after = steps.found(task, executions, self._store.now(), policy)
        await self._apply(
            task, after, events=[Event("extra_stopped", after.status, extra) for extra in extras]
        )

    # --- the execution ---------------------------------------------------------------------------

    async def _observe(self, task: Task, policy: Policy) -> None:
        wait = self._backends[task.backend].budget.take()
        if wait is not None:
            until = self._store.now() + min(wait, MAX_SLEEP)
            await self._apply(task, steps.put_off(task, until))
            return
        await self._ask(task, policy)

    async def _stop(self, task: Task, policy: Policy) -> None:
        await self._ask(task, policy, stop=True)

    async def _ask(self, task: Task, policy: Policy, *, stop: bool = False) -> None:
        backend = self._backends[task.backend]
        if task.ref is None:
            raise LookupError("an observation without a ref")
        payload = None
        try:
            if stop:
                await backend.adapter.stop(task.ref, STOP_REASON)
            execution = await backend.adapter.observe(task.ref)
        except ExecutionNotFound:
            after = steps.not_found(task, self._store.now(), policy)
        except AdapterError as exc:
            if isinstance(exc, Unavailable) and exc.throttled:
                backend.budget.throttled()
            log.warning(
                "engine_unavailable", row_id=task.row_id, backend=task.backend, reason=str(exc)
            )
            now = self._store.now()
            after = steps.unavailable(task, str(exc), now + _delay(task, now, policy, exc))
        else:
            backend.budget.succeeded()
            after = steps.observed(task, execution, self._store.now(), policy)
            payload = None if after.hidden_at else _payload(execution)
            if not after.final:
                after = await self._with_step(after, backend)
        await self._apply(task, after, payload)

    async def _with_step(self, task: Task, backend: Backend) -> Task:
        """Add the step it is in, while somebody listens and the backend bears one more call."""
        adapter = backend.adapter
        if not isinstance(adapter, Narrates) or not self._waiters.want_steps(task.row_id):
            return task
        if task.ref is None or backend.budget.take() is not None:
            return task
        try:
            narration = await adapter.narrate(task.ref)
        except AdapterError as exc:
            log.info("narration_unavailable", row_id=task.row_id, reason=str(exc))
            return task
        return steps.narrated(task, narration.current)

    # --- writing ---------------------------------------------------------------------------------

    async def _apply(
        self,
        before: Task,
        after: Task,
        payload: Payload | None = None,
        events: Sequence[Event] = (),
    ) -> None:
        """Write a result, unless the row changed since it was claimed: then it is due anyway."""
        written = await self._store.apply(before, after, payload=payload, events=events)
        if written is not None:
            self._waiters.publish(written)

    def _policy(self, task: Task) -> Policy:
        adapter = self._backends[task.backend].adapter
        tool = self._tools.get(task.tool)
        if tool is None or tool.backend != task.backend:
            tool = Tool(name=task.tool, backend=task.backend, workflow=task.workflow)
        return Policy(
            start_is_idempotent=adapter.start_is_idempotent,
            start_timeout=adapter.start_timeout,
            run_timeout=adapter.run_timeout if isinstance(adapter, RunsInline) else timedelta(0),
            fingerprint=adapter.fingerprint,
            idempotent=tool.idempotent,
            failure_completes=tool.failure_completes,
            start_within=tool.start_within,
            missing_after=tool.missing_after,
            settling=self._settling,
            tombstone=self._tombstone,
        )


@dataclass(slots=True)
class _Held:
    """The version of a row that this worker holds the lease of."""

    task: Task


def _delay(task: Task, now: datetime, policy: Policy, error: AdapterError | None) -> timedelta:
    asked = error.retry_after if isinstance(error, Unavailable) else None
    return min(max(steps.back_off(task, now, policy), asked or timedelta(0)), MAX_SLEEP)


async def _stop_extra(task: Task, adapter: Adapter, ref: ExecutionRef) -> None:
    log.error("extra_execution", row_id=task.row_id, key=task.key, ref=ref)
    with contextlib.suppress(ExecutionNotFound):
        await adapter.stop(ref, "started twice by a lost answer")


def _payload(execution: Execution) -> Payload | None:
    match execution:
        case Queued() | Running():
            return None
        case Succeeded(output):
            # ASCII, so that no database's text column minds what the engine let through.
            return Payload(output=json.dumps(output, separators=(",", ":")))
        case Failed(error, cause) | TimedOut(error, cause) | Aborted(error, cause):
            return Payload(error=error and storable(error), cause=cause and storable(cause))
        case _:
            assert_never(execution)
