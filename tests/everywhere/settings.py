"""The ways to reach the bridge, and the databases behind it, on which every promise is kept."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from tests.http.wire import over_http
from tests.protocol.bench import Bench, Wire, until
from tests.store.postgres_server import running
from workflow_bridge.protocol.stdio import serve_pipe
from workflow_bridge.store import open_store

Connect = Callable[..., AbstractAsyncContextManager[Wire]]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a test's clients reach the bridge, and where that keeps its tasks."""

    name: str
    connect: Connect
    database: Callable[[Path], str]


# --- databases -----------------------------------------------------------------------------------


def sqlite(folder: Path) -> str:
    """Make a database file, with the schema and no rows."""
    made = folder / "bridge.db"
    shutil.copy(_empty() / "empty.db", made)
    return f"sqlite:///{made}"


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="wb-everywhere-")


@cache
def _empty() -> Path:
    """Return the folder of a database that was made once, which is quicker."""
    folder = Path(_folder().name)
    anyio.run(open_store(f"sqlite:///{folder / 'empty.db'}").aclose)
    return folder


def postgresql(folder: Path) -> str:
    """Return the address of a database with the schema and no rows."""
    return running().emptied()


# --- pipes ---------------------------------------------------------------------------------------


class PipeWire(Wire):
    """Sends and receives lines of JSON."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.received: list[dict[str, Any]] = []
        self.sent: list[str | None] = []
        self.ended = False
        self.ids = itertools.count(100)
        self.send_stream = self  # type: ignore[assignment]
        self._closed = False

    async def send(self, message: dict[str, Any]) -> None:
        rest = memoryview(json.dumps(message).encode() + b"\n")
        while rest:
            await anyio.wait_writable(self.sink)
            rest = rest[os.write(self.sink, rest[:4096]) :]

    async def listen(self, stream: Any = None) -> None:
        buffer = b""
        while True:
            await anyio.wait_readable(self.source)
            if not (data := os.read(self.source, 65_536)):
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.sent.append(message.get("method"))
                self.received.append(message)
        self.ended = True

    async def aclose(self) -> None:
        """Hang up."""
        if not self._closed:
            self._closed = True
            os.close(self.sink)


@asynccontextmanager
async def over_pipes(
    bench: Bench, version: str = "2025-06-18", *, handshake: bool = True
) -> AsyncIterator[Wire]:
    """`Bench.connected`, over pipes as `serve` has them on stdio."""
    theirs, our_sink = os.pipe()
    our_source, their_sink = os.pipe()

    async def serve() -> None:
        try:
            await serve_pipe(bench.server, theirs, their_sink)
        finally:
            os.close(their_sink)
            os.close(theirs)

    wire = PipeWire(our_source, our_sink)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            group.start_soon(wire.listen)
            if handshake:
                await wire.shake_hands(version)
            yield wire
            await wire.aclose()
            await until(lambda: wire.ended)
    finally:
        await wire.aclose()
        os.close(our_source)


# -------------------------------------------------------------------------------------------------

SETTINGS: Final = (
    Setting("stdio", over_pipes, sqlite),
    Setting("http-sqlite", over_http, sqlite),
    Setting("http-postgresql", over_http, postgresql),
)
