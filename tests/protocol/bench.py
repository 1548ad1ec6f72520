"""A whole bridge in memory, and a client that sends what it likes."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.shared._context_streams import ContextSendStream
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from workflow_bridge.adapter import Ended, ExecutionRef, Succeeded
from workflow_bridge.core.policy import KeepAlive, Tool
from workflow_bridge.core.running import running
from workflow_bridge.core.service import TaskService
from workflow_bridge.core.store import TaskStore
from workflow_bridge.core.task import Task
from workflow_bridge.protocol.facade import Permitted
from workflow_bridge.protocol.inflight import Calls
from workflow_bridge.protocol.limits import Rates
from workflow_bridge.protocol.server import build_server
from workflow_bridge.protocol.tools import ToolSpec
from workflow_bridge.store import open_store
from workflow_bridge.testing.fake_adapter import FakeAdapter, InlineFakeAdapter
from workflow_bridge.testing.memory_store import ManualClock, MemoryTaskStore

PATIENCE = 10.0
"""Seconds after which a condition that does not come true fails its test."""
TASK = "modelcontextprotocol.io/task"
RELATED = "modelcontextprotocol.io/related-task"
ANYTHING = {"type": "object"}
ORDER = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "lines": {"type": "array"}},
    "required": ["order_id"],
}

TOOLS = {
    spec.name: spec
    for spec in (
        ToolSpec(name="run", description="Runs until told", input_schema=ANYTHING),
        ToolSpec(name="order", description="Checks its input", input_schema=ORDER),
        ToolSpec(name="never", description="No task", input_schema=ANYTHING, task="never"),
        ToolSpec(name="must", description="A task", input_schema=ANYTHING, task="required"),
        ToolSpec(name="quiet", description="Discreet", input_schema=ANYTHING, expose_cause=False),
        ToolSpec(name="lenient", description="Tool errors", input_schema=ANYTHING),
        ToolSpec(name="short", description="Little text", input_schema=ANYTHING, max_text=1000),
        ToolSpec(name="inline", description="Inline", input_schema=ANYTHING, inline=True),
        ToolSpec(
            name="typed",
            description="Says what it returns",
            input_schema=ANYTHING,
            output_schema={
                "type": "object",
                "properties": {"total": {"type": "integer"}},
                "required": ["total"],
            },
        ),
    )
}

DATABASE: ContextVar[str | None] = ContextVar("DATABASE", default=None)
"""The address of the store of tests that name none; without one it is in memory."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, at most `PATIENCE`."""
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def settle() -> None:
    """Let everything go on that can."""
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


@dataclass
class Bench:
    """The parts of a bridge, for tests to look behind the protocol."""

    clock: ManualClock
    store: TaskStore
    engine: FakeAdapter
    inline: InlineFakeAdapter
    service: TaskService
    tools: dict[str, ToolSpec]
    owner: str = "local"
    server: Server[Calls] = field(init=False)

    async def row(self, task_id: str, owner: str | None = None) -> Task | None:
        return await self.store.get(owner or self.owner, task_id)

    async def task(self, task_id: str) -> Task:
        row = await self.row(task_id)
        assert row is not None
        return row

    async def made(self, count: int = 1) -> list[Task]:
        """Wait until the owner has so many tasks; returns them, oldest first."""
        with anyio.fail_after(PATIENCE):
            while len(tasks := (await self.service.page(self.owner, None))[0]) < count:
                await anyio.lowlevel.checkpoint()
        assert len(tasks) == count
        return list(tasks)

    async def ref(self, task_id: str) -> ExecutionRef:
        """Wait until the task's execution was started."""
        with anyio.fail_after(PATIENCE):
            while (row := await self.row(task_id)) is None or row.ref is None:
                await anyio.lowlevel.checkpoint()
        return row.ref

    async def finish(self, task_id: str, outcome: Ended | None = None) -> None:
        """End the execution of a task, and have the bridge notice."""
        ref = await self.ref(task_id)
        self.engine.finish(ref, outcome or Succeeded({"done": True}, self.store.now()))
        await self.noticed(task_id)

    async def noticed(self, task_id: str) -> Task:
        """Let the poll interval pass until the task is final."""
        with anyio.fail_after(PATIENCE):
            while not (task := await self.task(task_id)).final:
                self.clock.advance(timedelta(seconds=10))
                await self.service.get(task.owner, task_id)
                await settle()
        return task

    @asynccontextmanager
    async def connected(
        self, version: str = "2025-06-18", *, handshake: bool = True
    ) -> AsyncIterator[Wire]:
        """Connect a client of raw messages."""
        async with (
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as group,
        ):
            options = self.server.create_initialization_options()
            wire = Wire(ours[1])
            tapped = Tap(theirs[1], wire.sent)
            group.start_soon(self.server.run, theirs[0], tapped, options)
            group.start_soon(wire.listen, ours[0])
            if handshake:
                await wire.shake_hands(version)
            yield wire
            await ours[1].aclose()
            await until(lambda: wire.ended)
            group.cancel_scope.cancel()


class Tap:
    """The server's way to the client; keeps the methods of what was sent, from when it was."""

    def __init__(self, stream: Any, sent: list[str | None]) -> None:
        self._stream = stream
        self._sent = sent

    async def send(self, item: SessionMessage) -> None:
        self._sent.append(getattr(item.message, "method", None))
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Tap:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


@dataclass
class Wire:
    """A client that sends and keeps whole messages."""

    send_stream: ContextSendStream[SessionMessage | Exception]
    received: list[dict[str, Any]] = field(default_factory=list)
    sent: list[str | None] = field(default_factory=list)
    """What the server has sent so far, received or not."""
    ended: bool = False
    ids: Any = field(default_factory=lambda: itertools.count(100))

    async def listen(self, stream: Any) -> None:
        async for item in stream:
            message = item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            self.received.append(message)
        self.ended = True

    async def send(self, message: dict[str, Any]) -> None:
        parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        await self.send_stream.send(SessionMessage(parsed))

    async def shake_hands(self, version: str) -> dict[str, Any]:
        hello = {
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "wire", "version": "1"},
        }
        answer = await self.ask("initialize", hello)
        await self.notify("notifications/initialized")
        return answer

    async def begin(
        self, method: str, params: dict[str, Any] | None = None, request_id: Any = None
    ) -> Any:
        """Send a request and do not wait for the answer; returns its id."""
        request_id = next(self.ids) if request_id is None else request_id
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        await self.send(message | ({} if params is None else {"params": params}))
        return request_id

    async def ask(
        self, method: str, params: dict[str, Any] | None = None, request_id: Any = None
    ) -> dict[str, Any]:
        """Send a request; returns the whole answer."""
        return await self.answer(await self.begin(method, params, request_id))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        await self.send(message | ({} if params is None else {"params": params}))

    def answered(self, request_id: Any) -> dict[str, Any] | None:
        return next((m for m in self.received if m.get("id") == request_id), None)

    async def answer(self, request_id: Any) -> dict[str, Any]:
        await until(lambda: self.answered(request_id))
        found = self.answered(request_id)
        assert found is not None
        return found

    def notifications(self, method: str) -> list[dict[str, Any]]:
        return [m for m in self.received if m.get("method") == method]

    # --- dialect A ---

    async def call(
        self,
        tool: str = "run",
        arguments: Any = None,
        *,
        task: Any = None,
        meta: dict[str, Any] | None = None,
        request_id: Any = None,
    ) -> Any:
        """Begin a tools/call; ``task`` is a task id, or the metadata itself."""
        meta = dict(meta or {})
        if task is not None:
            meta[TASK] = {"taskId": task} if isinstance(task, str) else task
        params = {"name": tool, "arguments": {} if arguments is None else arguments}
        return await self.begin(
            "tools/call", params | ({"_meta": meta} if meta else {}), request_id
        )

    async def create(self, task_id: str, tool: str = "run", arguments: Any = None) -> Any:
        """Begin a tools/call in A and wait for its created notification."""
        request_id = await self.call(tool, arguments, task=task_id)
        await until(lambda: self.created(task_id) or self.answered(request_id))
        assert self.created(task_id), self.answered(request_id)
        return request_id

    def created(self, task_id: str) -> bool:
        notes = self.notifications("notifications/tasks/created")
        return any(note["params"]["_meta"][RELATED]["taskId"] == task_id for note in notes)

    async def task(self, method: str, task_id: Any, **more: Any) -> dict[str, Any]:
        """Ask `tasks/<method>` about a task, as dialect A does."""
        params = {"taskId": task_id, "_meta": {RELATED: {"taskId": task_id}}} | more
        return await self.ask(f"tasks/{method}", params)

    async def get(self, task_id: str) -> dict[str, Any]:
        """Return how a task stands."""
        answer = await self.task("get", task_id)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result


@asynccontextmanager
async def bench(
    *,
    rates: Rates | None = None,
    plain_max_wait: timedelta = timedelta(seconds=60),
    delete_running: bool = False,
    owner: str = "local",
    cap: int | None = None,
    keep_alive: KeepAlive | None = None,
    tools: dict[str, ToolSpec] | None = None,
    database: str | None = None,
    facade: bool = True,
    permitted: Permitted = lambda ctx, tool: True,
    **engine: Any,
) -> AsyncIterator[Bench]:
    """Start a bridge with a scripted engine and a clock that only tests move.

    ``database``: on the real store, at this address, instead of what `DATABASE` says.
    """
    clock = ManualClock()
    database = database or DATABASE.get()
    store: TaskStore = MemoryTaskStore(clock)
    if database is not None:
        store = open_store(database, clock=clock)
    fake = FakeAdapter(clock=store.now, **engine)
    inline = InlineFakeAdapter(clock=store.now, **engine)
    specs = TOOLS if tools is None else tools
    policies = {
        name: Tool(
            name=name,
            backend="inline" if spec.inline else "engine",
            workflow=name,
            inline=spec.inline,
            failure_completes=name == "lenient",
        )
        for name, spec in specs.items()
    }
    adapters = {"engine": fake, "inline": inline}
    async with running(
        store,
        adapters,
        policies,
        calls_per_second=dict.fromkeys(adapters, 1e9),
        keep_alive=keep_alive,
        concurrent_tasks=cap,
    ) as service:
        made = Bench(clock, store, fake, inline, service, dict(specs), owner)
        made.server = serve(
            made,
            rates=rates,
            plain_max_wait=plain_max_wait,
            delete_running=delete_running,
            facade=facade,
            permitted=permitted,
        )
        yield made
    await store.aclose()


def serve(
    bench: Bench,
    *,
    rates: Rates | None = None,
    plain_max_wait: timedelta = timedelta(seconds=60),
    delete_running: bool = False,
    facade: bool = True,
    permitted: Permitted = lambda ctx, tool: True,
) -> Server[Calls]:
    """Build a server on a bench's service."""
    return build_server(
        bench.service,
        bench.tools,
        owner=lambda ctx: bench.owner,
        rates=rates or Rates(),
        plain_max_wait=plain_max_wait,
        delete_running=delete_running,
        facade=facade,
        permitted=permitted,
        name="bench",
        version="1",
    )


def as_owner(bench: Bench, owner: str) -> Bench:
    """Return the same bridge as another owner meets it."""
    theirs = replace(bench, owner=owner)
    theirs.server = serve(theirs)
    return theirs
