"""A load generator, as a process of its own, so that what is measured is the server.

Takes one JSON object as argument and prints one. It speaks just enough HTTP to be no limit itself:
one connection and one MCP session per client, requests made up beforehand, answers searched and not
parsed.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

MODERN = "2026-07-28"
_NAMESPACE = "io.modelcontextprotocol"
_MODERN_META = {
    f"{_NAMESPACE}/protocolVersion": MODERN,
    f"{_NAMESPACE}/clientInfo": {"name": "load", "version": "1"},
    f"{_NAMESPACE}/clientCapabilities": {"extensions": {f"{_NAMESPACE}/tasks": {}}},
}


@dataclass(kw_only=True)
class Order:
    """What to do; ends after so many seconds, or so many requests."""

    url: str
    version: str = "2025-11-25"
    ids: list[str] = field(default_factory=list)
    """The tasks to ask for; without any, ``prefix`` and a number up to ``count``."""
    prefix: str = "t"
    count: int = 1
    clients: int = 16
    every: float | None = None
    """Seconds between two requests of a client; None: the next as soon as one is answered."""
    own: bool = False
    """Each client asks for one task of its own."""
    seconds: float | None = None
    requests: int | None = None


class Client:
    """One connection and, before `MODERN`, one session."""

    def __init__(self, url: str, version: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path
        self._version = version
        self._headers = {"mcp-protocol-version": version} if version == MODERN else {}

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        if self._version == MODERN:
            return
        hello = {
            "protocolVersion": self._version,
            "capabilities": {},
            "clientInfo": {"name": "load", "version": "1"},
        }
        head, _ = await self._send(
            self.made({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        )
        _, _, rest = head.partition(b"mcp-session-id: ")
        self._headers = {
            "mcp-session-id": rest.partition(b"\r\n")[0].decode(),
            "mcp-protocol-version": self._version,
        }
        await self._send(self.made({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def made(self, message: dict[str, object], **headers: str) -> bytes:
        """Return the bytes of a request."""
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = {
            "host": f"{self._host}:{self._port}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)),
            **self._headers,
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {self._path} HTTP/1.1\r\n{head}\r\n".encode() + body

    def get(self, task_id: str) -> bytes:
        """Return the bytes of a `tasks/get`."""
        params: dict[str, object] = {"taskId": task_id}
        headers = {}
        if self._version == MODERN:
            params["_meta"] = _MODERN_META
            headers = {"mcp-method": "tasks/get", "mcp-name": task_id}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params}
        return self.made(message, **headers)

    async def create(self, tool: str, arguments: dict[str, object]) -> str:
        """Have a task made, at `MODERN`; return its id."""
        params = {"name": tool, "arguments": arguments, "_meta": _MODERN_META}
        headers = {"mcp-method": "tools/call", "mcp-name": tool}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        _, body = await self._send(self.made(message, **headers))
        found = re.search(rb'"taskId": ?"([^"]+)"', body)
        if found is None:
            raise RuntimeError(f"no task: {body!r}")
        return found[1].decode()

    async def ask(self, request: bytes) -> str | None:
        """Send a request; None if its answer is a result, else what it is."""
        head, body = await self._send(request)
        if head.startswith(b"http/1.1 200") and b'"result"' in body:
            return None
        return (head + body).decode()

    async def _send(self, request: bytes) -> tuple[bytes, bytes]:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            body = await self._reader.readuntil(b"0\r\n\r\n")
            while not body.endswith(b"\r\n0\r\n\r\n"):
                body += await self._reader.readuntil(b"0\r\n\r\n")
            return lower, body
        _, _, rest = lower.partition(b"content-length: ")
        return lower, await self._reader.readexactly(int(rest.partition(b"\r\n")[0] or 0))


async def run(order: Order) -> dict[str, float]:
    """Have all clients ask; return what came of it. Times in milliseconds."""
    clients = [Client(order.url, order.version) for _ in range(order.clients)]
    for client in clients:
        await client.connect()
    took: list[float] = []
    failures: list[str] = []
    began = time.perf_counter()
    ends = None if order.seconds is None else began + order.seconds
    left = order.requests

    def more() -> bool:
        nonlocal left
        if left is not None:
            left -= 1
            return left >= 0
        return ends is None or time.perf_counter() < ends

    def task_id(n: int) -> str:
        if order.own:
            return order.ids[n % len(order.ids)] if order.ids else f"{order.prefix}{n + 1}"
        chosen = random.randrange(len(order.ids) or order.count)
        return order.ids[chosen] if order.ids else f"{order.prefix}{chosen + 1}"

    async def work(n: int, client: Client) -> None:
        if order.every is not None:
            await asyncio.sleep(order.every * n / len(clients))
        while more():
            request = client.get(task_id(n))
            asked = time.perf_counter()
            if failure := await client.ask(request):
                failures.append(failure)
            answered = time.perf_counter()
            took.append(answered - asked)
            if order.every is not None:
                await asyncio.sleep(max(0.0, asked + order.every - answered))

    await asyncio.gather(*(work(n, client) for n, client in enumerate(clients)))
    seconds = time.perf_counter() - began
    took.sort()
    at = {f"p{p}": took[min(len(took) - 1, len(took) * p // 100)] * 1000 for p in (50, 95, 99)}
    if failures:
        raise SystemExit(f"{len(failures)} of {len(took)} requests failed, as in: {failures[0]}")
    return {"per_second": len(took) / seconds, "requests": len(took), **at}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Order(**json.loads(sys.argv[1]))))))
