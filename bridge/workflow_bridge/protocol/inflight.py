"""The tool calls in flight, so that a cancelled request is told apart from a dropped one.

The SDK cancels a request's handler in both cases. Only a cancelled one is followed by
`notifications/cancelled`, which is handled after the handler has unwound: so a call is remembered
for a few seconds longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
        self._calls: dict[tuple[str | None, RequestId], Call] = {}
        self._leaving: list[tuple[float, tuple[str | None, RequestId], Call]] = []
        self._spoke_a: dict[str | None, None] = {}

    def begin(self, session: str | None, request_id: RequestId) -> Call:
        """Register a call, before anything else is done with it."""
        self._forget()
        call = self._calls[session, coerce_request_id(request_id)] = Call()
        return call

    def find(self, session: str | None, request_id: RequestId) -> Call | None:
        """Return the call with this id ("7" is 7), for as long as it is remembered."""
        return self._calls.get((session, coerce_request_id(request_id)))

    def answered(self, session: str | None, request_id: RequestId, call: Call) -> None:
        """Forget a call that was answered: cancelling it now means nothing."""
        call.settled.set()
        self._drop((session, coerce_request_id(request_id)), call)

    def abandoned(self, session: str | None, request_id: RequestId, call: Call) -> None:
        """Remember for a while a call whose handler was cancelled."""
        call.settled.set()
        key = (session, coerce_request_id(request_id))
        self._leaving.append((self._clock() + REMEMBERED, key, call))

    def spoke_a(self, session: str | None) -> bool:
        """Whether this connection used dialect A before."""
        return session in self._spoke_a

    def speaks_a(self, session: str | None) -> None:
        """Learn that this connection uses dialect A."""
        self._spoke_a[session] = None
        if len(self._spoke_a) > MAX_SESSIONS:
            del self._spoke_a[next(iter(self._spoke_a))]

    def _forget(self) -> None:
        now = self._clock()
        while self._leaving and self._leaving[0][0] <= now:
            _, key, call = self._leaving.pop(0)
            self._drop(key, call)

    def _drop(self, key: tuple[str | None, RequestId], call: Call) -> None:
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
