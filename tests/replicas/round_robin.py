"""A load balancer: each request to the next replica that takes it, whoever sends it.

One request per connection on either side, so that nothing sticks. Answers are passed on as they
come; whoever hangs up first ends the other side too.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketStream

_CHUNK: Final = 65_536
_HOP: Final = re.compile(rb"(?im)^(connection|keep-alive):[^\r\n]*\r\n")
_LENGTH: Final = re.compile(rb"(?im)^content-length: *(\d+)")
_GONE: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


@dataclass
class RoundRobin:
    """Where it listens, what it stands before, and who got how many requests."""

    replicas: Sequence[int]
    """Their ports on this machine."""
    port: int = 0
    served: Counter[int] = field(default_factory=Counter)
    _turn: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, client: SocketStream) -> None:
        async with client:
            with suppress(*_GONE):
                request = await _request(client)
                async with await self._next() as replica:
                    await replica.send(request)
                    async with anyio.create_task_group() as group:
                        group.start_soon(_hung_up, client, group.cancel_scope)
                        await _pass_on(replica, client)
                        group.cancel_scope.cancel()

    async def _next(self) -> SocketStream:
        for _ in self.replicas:
            port = self.replicas[next(self._turn) % len(self.replicas)]
            with suppress(OSError):
                replica = await anyio.connect_tcp("127.0.0.1", port)
                self.served[port] += 1
                return replica
        raise ConnectionRefusedError("no replica is there")


async def _request(client: SocketStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await client.receive(_CHUNK)
    head, _, body = data.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    while length is not None and len(body) < int(length[1]):
        body += await client.receive(_CHUNK)
    return _HOP.sub(b"", head + b"\r\n") + b"connection: close\r\n\r\n" + body


async def _pass_on(replica: SocketStream, client: SocketStream) -> None:
    with suppress(*_GONE):
        while True:
            await client.send(await replica.receive(_CHUNK))


async def _hung_up(client: SocketStream, scope: anyio.CancelScope) -> None:
    with suppress(*_GONE):
        while True:
            await client.receive(_CHUNK)
    scope.cancel()


@asynccontextmanager
async def round_robin(replicas: Sequence[int]) -> AsyncIterator[RoundRobin]:
    """Balance requests over these ports until the block is left."""
    made = RoundRobin(replicas)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    made.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, made.serve)
        yield made
        group.cancel_scope.cancel()
