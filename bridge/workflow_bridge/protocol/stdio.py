"""The server on this process's stdin and stdout.

The SDK's own transport drops lines it cannot parse, reads lines of any length, and cannot be
cancelled while it waits for input; this one answers, bounds and can.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.to_thread
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

from workflow_bridge.protocol.frames import Lines, Unreadable, parse, too_long, written

log = structlog.get_logger(__name__)

CHUNK: Final = 65_536
_SURELY_WRITABLE: Final = 4096
"""What a pipe takes without blocking once it is writable (PIPE_BUF)."""
_LAST_ANSWERS: Final = 0.25
"""Seconds that requests under way get to be answered after the client hung up."""
_LAST_WORDS: Final = 2.0
"""Seconds that answers get to be written after that."""


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our stdin, or no longer reads our stdout.

    Meanwhile nothing else can write to the client: file descriptor 1 is stderr, 0 is empty.
    """
    with _wire() as (source, sink):
        await serve_pipe(server, source, sink)


async def serve_pipe(server: Server[Any], source: int, sink: int) -> None:
    """Serve one client on two file descriptors, which stay the caller's."""
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    asked, written_all = _Asked(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(_read, source, to_server, to_client.clone(), asked)
        group.start_soon(_write, sink, from_server, asked, group.cancel_scope, written_all)
        await server.run(from_client, to_client, server.create_initialization_options())
        with anyio.move_on_after(_LAST_WORDS):
            await written_all.wait()
        group.cancel_scope.cancel()


class _Asked:
    """The requests not yet answered, so that a client that asks and hangs up gets its answer."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._none = anyio.Event()

    def saw(self, message: JSONRPCMessage) -> None:
        """Take note of a message of either side."""
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._ids.discard(message.id)
            if not self._ids:
                self._none.set()

    async def answered(self) -> None:
        """Wait until no request is open."""
        while self._ids:
            self._none = anyio.Event()
            await self._none.wait()


async def _read(
    source: int,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
    asked: _Asked,
) -> None:
    lines = Lines()
    async with to_server, to_client:
        try:
            while data := await _receive(source):
                for line in lines.feed(data):
                    await _take(line, to_server, to_client, asked)
            for line in lines.end():
                await _take(line, to_server, to_client, asked)
            with anyio.move_on_after(_LAST_ANSWERS):
                await asked.answered()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        except OSError as exc:
            log.info("client_gone", error=type(exc).__name__)


async def _take(
    line: bytes | None,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
    asked: _Asked,
) -> None:
    message = too_long() if line is None else parse(line)
    if isinstance(message, Unreadable):
        error = message.error.error
        log.warning("message_unreadable", code=error.code, reason=error.message)
        await to_client.send(SessionMessage(message.error))
    elif message is not None:
        asked.saw(message)
        await to_server.send(SessionMessage(message))


async def _write(
    sink: int,
    from_server: MemoryObjectReceiveStream[SessionMessage],
    asked: _Asked,
    served: anyio.CancelScope,
    done: anyio.Event,
) -> None:
    async with from_server:
        try:
            async for item in from_server:
                await _send(sink, written(item.message))
                # A request of the server's own is answered by the client: not one of these.
                if not isinstance(item.message, JSONRPCRequest):
                    asked.saw(item.message)
        except OSError as exc:
            # Nobody reads any more: the same as hanging up.
            log.info("client_gone", error=type(exc).__name__)
            served.cancel()
        finally:
            done.set()


# --- file descriptors ----------------------------------------------------------------------------


async def _receive(source: int) -> bytes:
    try:
        await anyio.wait_readable(source)
    except (OSError, NotImplementedError, ValueError):
        # A regular file, which never blocks; or a platform that cannot wait for pipes.
        return await anyio.to_thread.run_sync(os.read, source, CHUNK, abandon_on_cancel=True)
    return os.read(source, CHUNK)


async def _send(sink: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            await anyio.wait_writable(sink)
        except (PermissionError, NotImplementedError, ValueError):
            rest = rest[await anyio.to_thread.run_sync(os.write, sink, rest) :]
        else:
            rest = rest[os.write(sink, rest[:_SURELY_WRITABLE]) :]


@contextmanager
def _wire() -> Iterator[tuple[int, int]]:
    """Take stdin and stdout for the protocol alone, and give them back in the end."""
    source, sink = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    # What was printed before and not yet written is no message either.
    sys.stdout.flush()
    try:
        yield source, sink
    finally:
        sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        os.close(source)
        os.close(sink)
