"""One database, some engines, and processes that work on them and die, freeze and answer late."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import anyio

from tests.core.virtual_time import WallClock
from workflow_bridge.adapter import (
    Ended,
    Execution,
    ExecutionRef,
    Found,
    Json,
    Narration,
    Problem,
    Started,
)
from workflow_bridge.core.budget import Budget
from workflow_bridge.core.policy import KeepAlive, Tool
from workflow_bridge.core.service import NewTask, TaskService
from workflow_bridge.core.store import TaskStore
from workflow_bridge.core.task import Dialect, Task
from workflow_bridge.core.waiters import Waiters
from workflow_bridge.core.worker import Backend, Worker
from workflow_bridge.testing.fake_adapter import FakeAdapter, FakeExecution, InlineFakeAdapter
from workflow_bridge.testing.memory_store import MemoryTaskStore

T = TypeVar("T")

STORE_CALLS = frozenset(
    {"insert", "get", "row", "page", "payload", "apply", "remove", "claim", "claim_row"}
    | {"next_due", "versions", "census", "events"}
)


class Died(Exception):
    """The process that was asked is no more."""


class Process:
    """One running bridge. Whatever it does goes over a line that can be cut at any point."""

    def __init__(self, world: World, *, rate: float = 1000.0) -> None:
        self.world = world
        self.dead = False
        self.crossed = 0
        """Points passed so far: before and after each call to the store and the engines."""
        self.dies_at: int | None = None
        self.trace: list[str] = []
        self._melted = anyio.Event()
        self._melted.set()
        self._over = asyncio.Event()
        store = cast(TaskStore, _StoreLine(self, world.store))
        adapters = {
            name: (_InlineLine if isinstance(engine, InlineFakeAdapter) else _Line)(self, engine)
            for name, engine in world.engines.items()
        }
        self.backends = {
            name: Backend(adapter=adapter, budget=Budget(rate, clock=world.elapsed))
            for name, adapter in adapters.items()
        }
        self.waiters = Waiters(store.row)
        self.worker = Worker(store, self.backends, world.tools, self.waiters)
        self.service = TaskService(
            store,
            self.worker,
            self.waiters,
            adapters,
            world.tools,
            keep_alive=KeepAlive(),
            concurrent_tasks=world.cap,
        )
        self._main = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.worker.run()
        except asyncio.CancelledError:
            if not self.dead:
                raise

    @property
    def running(self) -> bool:
        """False once the worker's loop has ended, for whatever reason."""
        return not self._main.done()

    async def ask(self, question: Coroutine[Any, Any, T]) -> T:
        """Have the service do something, as a client of this process. Raises `Died`."""
        asked = asyncio.ensure_future(question)
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({asked, over}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and not self.dead:
                return asked.result()
            raise Died
        finally:
            asked.cancel()
            over.cancel()

    def kill(self) -> None:
        """`kill -9`: nothing that it was about to do is done."""
        if not self.dead:
            self.dead = True
            self._over.set()
            self._main.cancel()

    def freeze(self) -> None:
        """Stop it in the middle of whatever it does."""
        if self._melted.is_set():
            self._melted = anyio.Event()

    def thaw(self) -> None:
        self._melted.set()

    @property
    def frozen(self) -> bool:
        return not self._melted.is_set()

    async def close(self) -> None:
        """An orderly end."""
        await self.worker.close()
        await self._main

    async def point(self, where: str, *, may_freeze: bool = True) -> None:
        """A point at which the process may end or be held up."""
        if not self.dead:
            self.crossed += 1
            self.trace.append(where)
            if self.crossed == self.dies_at:
                self.kill()
        if self.dead:
            raise asyncio.CancelledError
        await asyncio.sleep(0)
        while may_freeze and not self._melted.is_set():
            await self._melted.wait()
        if self.dead:
            raise asyncio.CancelledError

    async def commit(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """A call to the database: done whole or not at all, and then answered."""
        await self.point(f"{name}?")
        answer = await work()
        await self.point(f"{name}!")
        return answer

    async def send(self, name: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """A call to an engine: once sent it arrives, whatever becomes of the process."""
        await self.point(f"{name}?", may_freeze=name != "start")
        request = asyncio.get_running_loop().create_task(work())
        request.add_done_callback(lambda sent: sent.cancelled() or sent.exception())
        self.world.on_the_wire.add(request)
        request.add_done_callback(self.world.on_the_wire.discard)
        try:
            return await asyncio.shield(request)
        finally:
            if request.done():
                await self.point(f"{name}!")


class _StoreLine:
    def __init__(self, process: Process, store: TaskStore) -> None:
        self._process = process
        self._store = store

    def now(self) -> datetime:
        return self._store.now()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in STORE_CALLS:
            raise AttributeError(name)
        call = getattr(self._store, name)
        self_ = self._process
        return lambda *args, **kwargs: self_.commit(name, lambda: call(*args, **kwargs))


class _Line:
    """An engine as one process sees it."""

    def __init__(self, process: Process, engine: FakeAdapter) -> None:
        self._process = process
        self._engine = engine
        self.start_is_idempotent = engine.start_is_idempotent
        self.start_timeout = engine.start_timeout
        self.fingerprint = engine.fingerprint

    def check_workflow(self, workflow: str, *, inline: bool) -> None:
        self._engine.check_workflow(workflow, inline=inline)

    def prepare(self, workflow: str, arguments: Json) -> bytes:
        return self._engine.prepare(workflow, arguments)

    async def start(self, workflow: str, payload: bytes, *, key: str) -> Started:
        call = self._engine.start
        return await self._process.send("start", lambda: call(workflow, payload, key=key))

    async def find(self, workflow: str, *, key: str, since: datetime) -> list[Found]:
        call = self._engine.find
        return await self._process.send("find", lambda: call(workflow, key=key, since=since))

    async def observe(self, ref: ExecutionRef) -> Execution:
        return await self._process.send("observe", lambda: self._engine.observe(ref))

    async def stop(self, ref: ExecutionRef, reason: str) -> None:
        await self._process.send("stop", lambda: self._engine.stop(ref, reason))

    async def narrate(self, ref: ExecutionRef) -> Narration:
        return await self._process.send("narrate", lambda: self._engine.narrate(ref))

    def console_url(self, ref: ExecutionRef) -> str | None:
        return self._engine.console_url(ref)

    async def check(self, workflows: Any) -> list[Problem]:
        return await self._engine.check(workflows)

    async def aclose(self) -> None:
        await self._engine.aclose()


class _InlineLine(_Line):
    run_timeout = InlineFakeAdapter.run_timeout

    async def run(self, workflow: str, payload: bytes, *, key: str) -> Ended:
        assert isinstance(self._engine, InlineFakeAdapter)
        call = self._engine.run
        return await self._process.send("run", lambda: call(workflow, payload, key=key))


TOOL = Tool(name="tool", backend="engine", workflow="workflow")


@dataclass(kw_only=True)
class World:
    """What outlives every process."""

    clock: WallClock
    store: TaskStore
    engines: Mapping[str, FakeAdapter]
    tools: Mapping[str, Tool]
    cap: int | None = None
    elapsed: Callable[[], float] = time.monotonic
    on_the_wire: set[asyncio.Task[Any]] = field(default_factory=set)
    processes: list[Process] = field(default_factory=list)

    @property
    def engine(self) -> FakeAdapter:
        return self.engines["engine"]

    def process(self, *, rate: float = 1000.0) -> Process:
        """Let one more bridge run."""
        self.processes.append(Process(self, rate=rate))
        return self.processes[-1]

    async def task(self, task_id: str = "t", owner: str = "me") -> Task:
        """Return the row as it is stored."""
        task = await self.store.get(owner, task_id)
        assert task is not None
        return task

    def executions(self, task: Task) -> list[FakeExecution]:
        """Return what the engine made of a task."""
        made = self.engines[task.backend].executions.values()
        return [execution for execution in made if execution.key == task.key]

    async def end(self) -> None:
        for process in self.processes:
            process.kill()
        await asyncio.sleep(2)


def new(task_id: str = "t", **changes: Any) -> NewTask:
    return NewTask(
        **{
            "owner": "me",
            "task_id": task_id,
            "dialect": Dialect.A,
            "tool": "tool",
            "arguments": {"n": 1},
            **changes,
        }
    )


def a_world(
    *,
    tool: Tool = TOOL,
    engine: FakeAdapter | None = None,
    others: Mapping[str, FakeAdapter] | None = None,
    tools: Mapping[str, Tool] | None = None,
    store: Callable[[Callable[[], float]], TaskStore] = MemoryTaskStore,
    cap: int | None = None,
    **settings: Any,
) -> World:
    """Make a world on the running loop's time, with one engine made with these ``settings``."""
    loop = asyncio.get_running_loop()
    clock = WallClock(loop.time)
    stored = store(clock)
    engine = engine or FakeAdapter(clock=clock.right, **settings)
    return World(
        clock=clock,
        store=stored,
        engines={"engine": engine, **(others or {})},
        tools={tool.name: tool, **(tools or {})},
        cap=cap,
        elapsed=loop.time,
    )


@asynccontextmanager
async def living(world: World) -> AsyncIterator[World]:
    try:
        yield world
    finally:
        await world.end()


async def passes(seconds: float) -> None:
    """Let time pass, and everything happen that falls into it."""
    await asyncio.sleep(seconds)


async def eventually(holds: Callable[[], Awaitable[bool]], *, within: timedelta) -> None:
    """Wait until something holds, a second at a time."""
    deadline = asyncio.get_running_loop().time() + within.total_seconds()
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came to that"
        await asyncio.sleep(0.5)
