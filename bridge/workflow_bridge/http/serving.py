"""Listens, serves, and ends in order."""

from __future__ import annotations

import logging
import re
import resource
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio
import structlog
import uvicorn

from workflow_bridge.http.app import HttpApp
from workflow_bridge.http.connection import connection_of, connections_of
from workflow_bridge.http.options import HttpOptions

log = structlog.get_logger(__name__)

BACKLOG: Final = 1024
_PEER_SILENT: Final = 60
"""Seconds after which the kernel asks an idle connection whether its peer is still there."""
_ASK_EVERY: Final = 15
_ASK_TIMES: Final = 4
_OTHER_FILES: Final = 256
"""Database, engines, log, and some to spare."""
_SESSION_ID: Final = re.compile(r"\b[0-9a-f]{32}\b")


def open_sockets(options: HttpOptions) -> list[socket.socket]:
    """Take the address, so that nobody else can; answering begins later. Raises `OSError`."""
    host = "127.0.0.1" if options.host == "localhost" else options.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server(
        (host, options.port), family=family, backlog=BACKLOG, dualstack_ipv6=both
    )
    listening.setblocking(False)
    # Inherited by connections. asyncio forgets it on sockets made elsewhere, and then the second
    # write of an answer waits 40 ms for the client to acknowledge the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _notice_dead_peers(listening)
    return [listening]


def url_of(listening: socket.socket) -> str:
    """Return where clients find the server."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


async def serve_http(app: HttpApp, sockets: Sequence[socket.socket], options: HttpOptions) -> None:
    """Serve until cancelled; then end in order, which takes about ``options.drain`` at most."""
    ending = anyio.Event()

    async def note_cancellation() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ending.set()

    async with anyio.create_task_group() as group:
        group.start_soon(note_cancellation)
        with anyio.CancelScope(shield=True):
            await _serve(app, sockets, options, ending)
        group.cancel_scope.cancel()


def _allow_files(wanted: int) -> None:
    """Raise this process's limit on open files as far as we may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft != resource.RLIM_INFINITY and soft < wanted:
        log.warning("few_open_files", allowed=soft, wanted=wanted)


async def _serve(
    app: HttpApp, sockets: Sequence[socket.socket], options: HttpOptions, ending: anyio.Event
) -> None:
    server = _Server(
        uvicorn.Config(
            app,
            http=connection_of(options),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=int(options.keep_alive),
        )
    )
    _allow_files(connections_of(options) + _OTHER_FILES)
    with _sdk_discreet():
        async with app.running(), anyio.create_task_group() as group:
            group.start_soon(server.serve, list(sockets))
            await ending.wait()
            # From here on uvicorn accepts nothing, and waits until nothing is open.
            server.should_exit = True
            await app.drain()
            for connection in list(server.server_state.connections):
                connection.transport.abort()


class _Server(uvicorn.Server):
    """Leaves signals to us, and says where it listens."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            log.info("listening", url=url_of(listening))


def _notice_dead_peers(listening: socket.socket) -> None:
    """Have the kernel end connections whose peer has vanished; accepted ones inherit it."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PEER_SILENT),
        ("TCP_KEEPINTVL", _ASK_EVERY),
        ("TCP_KEEPCNT", _ASK_TIMES),
        # What was sent and never confirmed: the same, where probes are not sent.
        ("TCP_USER_TIMEOUT", (_PEER_SILENT + _ASK_EVERY * _ASK_TIMES) * 1000),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class _Hide(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = _SESSION_ID.sub("…", record.getMessage())
        record.args = ()
        return True


@contextmanager
def _sdk_discreet() -> Generator[None, None, None]:
    """Keep session ids out of what the SDK logs: whoever has the id has the session."""
    hide = _Hide()
    loggers = [
        logging.getLogger(f"mcp.server.{name}")
        for name in ("streamable_http", "streamable_http_manager")
    ]
    for logger in loggers:
        logger.addFilter(hide)
    # It warns of each call that waits when its session ends, which is nobody's fault.
    logging.getLogger("mcp.shared.jsonrpc_dispatcher").setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(hide)
