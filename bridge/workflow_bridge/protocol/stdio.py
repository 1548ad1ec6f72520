"""The server on this process's stdin and stdout.

The SDK's own transport drops lines it cannot parse, reads lines of any length, and cannot be
cancelled while it waits for input; this one answers, bounds and can. Nor does it read on for ever
from a client that does not read what it is answered.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

from workflow_bridge.protocol.frames import Lines, TooLong, Unreadable, parse, too_long, written

log = structlog.get_logger(__name__)

CHUNK: Final = 65_536
_SURELY_WRITABLE: Final = 4096
"""What a pipe takes without blocking once it is writable (PIPE_BUF)."""
MAX_WAITING: Final = 256
"""Messages that wait for the client to read; with more, nothing is read from it either."""
_LOOK_UP: Final = 1.0
"""Seconds after which a client that is not read from is looked at, whether it hung up."""
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
    unread = _Unread(from_server)
    async with anyio.create_task_group() as group:
        group.start_soon(_read, source, to_server, to_client.clone(), asked, unread, group)
        group.start_soon(_write, sink, from_server, asked, unread, group.cancel_scope, written_all)
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


class _Unread:
    """The messages that cannot be written because the client does not read.

    Each is a sender that waits. A call that waits for its task is none: such may be many, for
    long, and their client must be able to cancel them. A call that was cancelled is none either,
    although it is never answered.
    """

    def __init__(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        self._from_server = from_server
        self._fewer = anyio.Event()
        self._hung_up = False

    def taken(self) -> None:
        """Take note that a message was written."""
        self._fewer.set()

    async def few(self, source: int) -> None:
        """Wait until not too many wait, or the client has hung up.

        What a client leaves behind in the pipe is little, and after it comes the end.
        """
        while not self._hung_up and (
            self._from_server.statistics().tasks_waiting_send > MAX_WAITING
        ):
            self._fewer = anyio.Event()
            with anyio.move_on_after(_LOOK_UP) as scope:
                await self._fewer.wait()
            if scope.cancelled_caught:
                self._hung_up = _hung_up(source)


async def _read(
    source: int,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
    asked: _Asked,
    unread: _Unread,
    group: TaskGroup,
) -> None:
    lines = Lines()
    async with to_server, to_client:
        try:
            while data := await _receive(source):
                for line in lines.feed(data):
                    await unread.few(source)
                    await _take(line, to_server, to_client, asked, group)
            for line in lines.end():
                await _take(line, to_server, to_client, asked, group)
            with anyio.move_on_after(_LAST_ANSWERS):
                await asked.answered()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        except OSError as exc:
            log.info("client_gone", error=type(exc).__name__)


async def _take(
    line: bytes | TooLong,
    to_server: MemoryObjectSendStream[SessionMessage | Exception],
    to_client: MemoryObjectSendStream[SessionMessage],
    asked: _Asked,
    group: TaskGroup,
) -> None:
    message = too_long(line) if isinstance(line, TooLong) else parse(line)
    if isinstance(message, Unreadable):
        error = message.error.error
        log.warning("message_unreadable", code=error.code, reason=error.message)
        # Not from here, which would wait for a client that may have hung up.
        group.start_soon(_tell, to_client.clone(), message.error)
        await anyio.lowlevel.checkpoint()
    elif message is not None:
        asked.saw(message)
        await to_server.send(SessionMessage(message))


async def _tell(to_client: MemoryObjectSendStream[SessionMessage], error: JSONRPCError) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with to_client:
            await to_client.send(SessionMessage(error))


async def _write(
    sink: int,
    from_server: MemoryObjectReceiveStream[SessionMessage],
    asked: _Asked,
    unread: _Unread,
    served: anyio.CancelScope,
    done: anyio.Event,
) -> None:
    async with from_server:
        try:
            async for item in from_server:
                await _send(sink, written(item.message))
                unread.taken()
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


def _hung_up(source: int) -> bool:
    """Whether the other end is closed, be there something left to read or not."""
    if not hasattr(select, "poll"):
        return False
    ends = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
    poll = select.poll()
    poll.register(source, ends)
    return any(event & ends for _, event in poll.poll(0))


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
