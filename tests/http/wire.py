"""A bench's bridge behind real sockets, and the protocol tests' client over Streamable HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import anyio
import anyio.abc
import httpx2
from mcp.server.lowlevel import Server
from uvicorn.config import Config
from uvicorn.server import ServerState

from tests.protocol.bench import Bench, Wire, until
from workflow_bridge.http.app import HttpApp
from workflow_bridge.http.connection import connection_of
from workflow_bridge.http.options import HttpOptions
from workflow_bridge.http.owner import owner_by
from workflow_bridge.http.serving import open_sockets, url_of
from workflow_bridge.protocol.limits import Rates
from workflow_bridge.protocol.plain import HandOver
from workflow_bridge.protocol.server import build_server

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
ENVELOPE = {
    VERSION_KEY: MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
NO_ANSWER = -32800
"""With this the SDK ends the stream of a cancelled request: on HTTP one must end somehow."""


async def well() -> None:
    """Nothing keeps the bridge from working."""


@dataclass
class Site:
    """A bridge that listens."""

    url: str
    app: HttpApp
    state: ServerState
    hand_over: HandOver

    @property
    def base(self) -> str:
        return self.url.removesuffix("/mcp")

    @property
    def open(self) -> int:
        """How many requests the app has open."""
        return len(self.app._streams._open)

    @asynccontextmanager
    async def connected(
        self, version: str = "2025-06-18", *, handshake: bool = True
    ) -> AsyncIterator[HttpWire]:
        async with connected(self.url, version, handshake=handshake) as wire:
            yield wire


def serve_bench(
    bench: Bench, options: HttpOptions, hand_over: HandOver, plain_max_wait: timedelta
) -> Server[Any]:
    """Build a server on a bench's service whose owners are those of HTTP."""
    return build_server(
        bench.service,
        bench.tools,
        owner=owner_by(options.isolation),
        rates=Rates(),
        plain_max_wait=plain_max_wait,
        delete_running=False,
        name="bench",
        version="1",
        hand_over=hand_over,
    )


@asynccontextmanager
async def listening(
    server: Server[Any],
    options: HttpOptions,
    *,
    hand_over: HandOver | None = None,
    ready: Callable[[], Awaitable[None]] = well,
) -> AsyncIterator[Site]:
    """Serve on a socket of this process, as `serving` does but for signals and the ending."""
    hand_over = hand_over or HandOver()
    app = HttpApp(server, options, ready=ready, hand_over=hand_over.begin)
    (socket,) = open_sockets(options)
    state = ServerState()
    config = Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    kind = connection_of(options)
    loop = asyncio.get_running_loop()
    async with app.running():
        url = url_of(socket)
        listener = await loop.create_server(lambda: kind(config, state, {}), sock=socket)
        try:
            yield Site(url, app, state, hand_over)
        finally:
            listener.close()
            with anyio.CancelScope(shield=True):
                for connection in list(state.connections):
                    connection.transport.abort()
                await until(lambda: not state.connections and not state.tasks)


@asynccontextmanager
async def site(
    bench: Bench,
    *,
    ready: Callable[[], Awaitable[None]] = well,
    plain_max_wait: timedelta = timedelta(seconds=60),
    **options: Any,
) -> AsyncIterator[Site]:
    """A bench behind HTTP, with the owners that HTTP has."""
    chosen = HttpOptions(**{"port": 0, "drain": 0.3, **options})
    hand_over = HandOver()
    server = serve_bench(bench, chosen, hand_over, plain_max_wait)
    async with listening(server, chosen, hand_over=hand_over, ready=ready) as made:
        yield made


@asynccontextmanager
async def over_http(
    bench: Bench, version: str = "2025-06-18", *, handshake: bool = True
) -> AsyncIterator[HttpWire]:
    """`Bench.connected`, over HTTP: a bridge of the bench's own server, and a client of it."""
    async with (
        listening(bench.server, HttpOptions(port=0)) as made,
        made.connected(version, handshake=handshake) as wire,
    ):
        yield wire


@asynccontextmanager
async def connected(
    url: str, version: str = "2025-06-18", *, handshake: bool = True
) -> AsyncIterator[HttpWire]:
    async with (
        httpx2.AsyncClient(timeout=30, limits=httpx2.Limits(max_connections=None)) as client,
        anyio.create_task_group() as group,
    ):
        wire = HttpWire(url, client, group)
        if handshake:
            await wire.shake_hands(version)
        yield wire
        await wire.hang_up()


@dataclass
class _Line:
    """What the protocol tests close to hang up."""

    wire: HttpWire

    async def aclose(self) -> None:
        await self.wire.hang_up()


class HttpWire(Wire):
    """Sends each message in a POST of its own, and keeps whatever comes on any stream."""

    def __init__(self, url: str, client: httpx2.AsyncClient, group: anyio.abc.TaskGroup) -> None:
        self.url = url
        self.client = client
        self.group = group
        self.headers = dict(ACCEPT)
        self.received: list[dict[str, Any]] = []
        self.sent: list[str | None] = []
        self.ended = False
        self.ids = itertools.count(100)
        self.send_stream = _Line(self)  # type: ignore[assignment]
        self.statuses: list[int] = []
        self.scopes: dict[Any, anyio.CancelScope] = {}

    async def send(self, message: dict[str, Any]) -> None:
        """Send, and return once the server has begun to answer, which from `MODERN` on may last."""
        if self._headers(message).get("mcp-protocol-version") == MODERN:
            self.group.start_soon(self._exchange, message)
        else:
            await self.group.start(self._exchange, message)

    async def _exchange(
        self,
        message: dict[str, Any],
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        content = json.dumps(message).encode()
        with anyio.CancelScope() as scope:
            self.scopes[message.get("id")] = scope
            async with self.client.stream(
                "POST", self.url, content=content, headers=self._headers(message)
            ) as response:
                self.statuses.append(response.status_code)
                if session := response.headers.get("mcp-session-id"):
                    self.headers["mcp-session-id"] = session
                task_status.started()
                await self._listen(response)

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        params: Any = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if not isinstance(meta, dict) or meta.get(VERSION_KEY) != MODERN:
            return self.headers
        headers = self.headers | {"mcp-protocol-version": MODERN, "mcp-method": message["method"]}
        if isinstance(params.get("name"), str):
            headers["mcp-name"] = params["name"]
        return headers

    async def _listen(self, response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    self._take(json.loads(line.removeprefix("data: ")))
        elif content := await response.aread():
            self._take(json.loads(content))

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("error", {}).get("code") == NO_ANSWER:
            return
        self.sent.append(message.get("method"))
        self.received.append(message)

    async def shake_hands(self, version: str) -> dict[str, Any]:
        answer = await super().shake_hands(version)
        self.headers["mcp-protocol-version"] = version
        return answer

    async def open_stream(self) -> None:
        """Open the session's own stream, as hosts do."""
        await self.group.start(self._get)

    async def _get(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.CancelScope() as scope:
            self.scopes["GET"] = scope
            async with self.client.stream("GET", self.url, headers=self.headers) as response:
                self.statuses.append(response.status_code)
                task_status.started()
                await self._listen(response)

    async def drop(self, request_id: Any) -> None:
        """Close the connection of a request under way."""
        self.scopes[request_id].cancel()

    async def hang_up(self) -> None:
        """Close all connections; the session lives on."""
        for scope in self.scopes.values():
            scope.cancel()
        self.ended = True
