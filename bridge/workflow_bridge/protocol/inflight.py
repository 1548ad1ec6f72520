"""The tool calls in flight, so that a cancelled request is told apart from a dropped one.

The SDK cancels a request's handler in both cases. Only a cancelled one is followed by
`notifications/cancelled`, which is handled after the handler has unwound: so a call is remembered
for a few seconds longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId

from workflow_bridge.core.task import Task
from workflow_bridge.protocol.dialects import MODERN

REMEMBERED: Final = 10.0
"""Seconds that a call is remembered after its handler was cancelled."""
MAX_SESSIONS: Final = 10_000
"""Connections whose dialect is remembered; stdio has one."""

Context: TypeAlias = ServerRequestContext["Calls", Any]
Owner: TypeAlias = Callable[[Context], str]
"""Says whom a request's tasks belong to."""
Connection: TypeAlias = Hashable
"""What requests of one client have in common; see `connection_of`."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a call made: the task that its cancellation cancels, and how."""

    owner: str
    task: Task
    at_once: bool


class Call:
    """One `tools/call` in flight."""

    def __init__(self) -> None:
        self.binding: Binding | None = None
        self.settled = anyio.Event()
        """Set once it is known whether this call makes a task."""

    def bind(self, binding: Binding) -> None:
        """Learn which task this call made."""
        self.binding = binding
        self.settled.set()


class Calls:
    """The calls of all connections of one transport, and which connections spoke dialect A."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[tuple[Connection, RequestId], Call] = {}
        self._leaving: list[tuple[float, tuple[Connection, RequestId], Call]] = []
        self._spoke_a: dict[Connection, None] = {}

    def begin(self, connection: Connection, request_id: RequestId) -> Call:
        """Register a call, before anything else is done with it."""
        self._forget()
        call = self._calls[connection, coerce_request_id(request_id)] = Call()
        return call

    def find(self, connection: Connection, request_id: RequestId) -> Call | None:
        """Return the call with this id ("7" is 7), for as long as it is remembered."""
        return self._calls.get((connection, coerce_request_id(request_id)))

    def answered(self, connection: Connection, request_id: RequestId, call: Call) -> None:
        """Forget a call that was answered: cancelling it now means nothing."""
        call.settled.set()
        self._drop((connection, coerce_request_id(request_id)), call)

    def abandoned(self, connection: Connection, request_id: RequestId, call: Call) -> None:
        """Remember for a while a call whose handler was cancelled."""
        call.settled.set()
        key = (connection, coerce_request_id(request_id))
        if stands_alone(connection):
            self._drop(key, call)
            return
        self._leaving.append((self._clock() + REMEMBERED, key, call))

    def spoke_a(self, connection: Connection) -> bool:
        """Whether this connection used dialect A before."""
        return connection in self._spoke_a

    def speaks_a(self, connection: Connection) -> None:
        """Learn that this connection uses dialect A."""
        if stands_alone(connection):
            return
        self._spoke_a[connection] = None
        if len(self._spoke_a) > MAX_SESSIONS:
            del self._spoke_a[next(iter(self._spoke_a))]

    def _forget(self) -> None:
        now = self._clock()
        while self._leaving and self._leaving[0][0] <= now:
            _, key, call = self._leaving.pop(0)
            self._drop(key, call)

    def _drop(self, key: tuple[Connection, RequestId], call: Call) -> None:
        # A client that uses an id twice has registered another call by now.
        if self._calls.get(key) is call:
            del self._calls[key]


def session_of(ctx: Context) -> str | None:
    """Return the id of the session that the transport keeps; None on a pipe, which is one itself.

    From `MODERN` on there are no sessions: the header is then whatever the client likes.
    """
    if ctx.protocol_version >= MODERN:
        return None
    headers = getattr(ctx.request, "headers", None)
    session: str | None = headers.get("mcp-session-id") if headers is not None else None
    return session


def connection_of(ctx: Context) -> Connection:
    """Return what tells the requests of one client from those of all others.

    That is its session's id, or None on a pipe. Without either, on HTTP, nothing does: JSON-RPC
    ids of all clients look alike, and the request stands for itself alone.
    """
    return session_of(ctx) or ctx.request


def stands_alone(connection: Connection) -> bool:
    """Whether nothing that comes later can be known to be of the same client."""
    return connection is not None and not isinstance(connection, str)
