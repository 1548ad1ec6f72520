"""The requests that are open: how many there may be, and how they end when the server does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from mcp_types import RequestId

from workflow_bridge.http.answers import busy

RETRY_AFTER = 1.0
"""Seconds after which a client that finds all places taken is asked to try again."""


class Streams:
    """Counts open requests, in the process and in each session."""

    def __init__(self, most: int, most_per_session: int) -> None:
        self._most = most
        self._most_per_session = most_per_session
        self._open: dict[anyio.CancelScope, bool] = {}
        self._by_session: Counter[str] = Counter()
        self._none = anyio.Event()
        self.draining = False

    @contextmanager
    def opened(self, *, endless: bool) -> Iterator[None]:
        """Hold a place in the process; the block may be cancelled once the server is to end.

        ``endless``: nothing is asked on it, so that it ends as soon as the server is to. Raises
        `Refusal`.
        """
        if self.draining:
            raise busy(
                "ending", 503, "The server is ending", retry_after=RETRY_AFTER, request_id=None
            )
        if len(self._open) >= self._most:
            message = "Too many requests are open"
            raise busy("streams", 503, message, retry_after=RETRY_AFTER, request_id=None)
        with anyio.CancelScope() as scope:
            self._open[scope] = endless
            try:
                yield
            finally:
                del self._open[scope]
                if not self._open:
                    self._none.set()

    @contextmanager
    def in_session(self, session: str | None, request_id: RequestId | None) -> Iterator[None]:
        """Hold a place in a session, if there is one. Raises `Refusal`."""
        if session is None:
            yield
            return
        if self._by_session[session] >= self._most_per_session:
            message = "Too many requests of this session are open; wait for one to end"
            raise busy(
                "session_streams", 429, message, retry_after=RETRY_AFTER, request_id=request_id
            )
        self._by_session[session] += 1
        try:
            yield
        finally:
            self._by_session[session] -= 1
            if not self._by_session[session]:
                del self._by_session[session]

    async def drain(self, within: float) -> None:
        """Open no more, and let those that are open end; cancel the ones that do not in time."""
        self.draining = True
        for scope in [scope for scope, endless in self._open.items() if endless]:
            scope.cancel()
        with anyio.move_on_after(within):
            await self._closed()
        for scope in list(self._open):
            scope.cancel()
        with anyio.move_on_after(within):
            await self._closed()

    async def _closed(self) -> None:
        while self._open:
            self._none = anyio.Event()
            await self._none.wait()
