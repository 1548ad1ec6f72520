"""One connection: uvicorn's, with an end to waiting for clients that do not go on."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from workflow_bridge.http.app import ABORT
from workflow_bridge.http.options import HttpOptions


def connections_of(options: HttpOptions) -> int:
    """Return how many connections there may be: a session may keep an idle one too."""
    return options.max_streams + options.max_sessions


def connection_of(options: HttpOptions) -> type[H11Protocol]:
    """Return the class of the server's connections."""
    most = connections_of(options)

    class Connection(H11Protocol):
        """Cut off when a request's head, or room for an answer, is too long in coming.

        What is left of a body that was refused is read and thrown away, within the same time:
        closing on a client that still sends would take the answer from it.
        """

        _head: asyncio.TimerHandle | None = None
        _stall: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.app_state = {**self.app_state, ABORT: transport.abort}
            if len(self.connections) > most:
                transport.abort()
            else:
                self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head = _cancelled(self._head)
            self._stall = _cancelled(self._stall)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE and self.conn.our_state is not h11.DONE:
                self._head = _cancelled(self._head)
            elif self.timeout_keep_alive_task is None and not self.transport.is_closing():
                self._await_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
                self._await_head()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._stall is None:
                self._stall = self.loop.call_later(options.taken_within, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stall = _cancelled(self._stall)

        def _await_head(self) -> None:
            # From the first byte on, whatever trickles in: not renewed.
            if self._head is None:
                self._head = self.loop.call_later(options.headers_within, self.transport.abort)

    return Connection


def _cancelled(timer: asyncio.TimerHandle | None) -> Any:
    if timer is not None:
        timer.cancel()
    return None
