"""The ASGI app: `/mcp`, `/healthz`, `/readyz`, and what keeps each request within bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import structlog
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import JSONRPCRequest
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workflow_bridge.http.answers import Refusal, internal, refused, says
from workflow_bridge.http.body import message_in, read_body, replayed
from workflow_bridge.http.names import Names
from workflow_bridge.http.options import HttpOptions
from workflow_bridge.http.readiness import Readiness
from workflow_bridge.http.streams import Streams

log = structlog.get_logger(__name__)

METHODS: Final = ("GET", "POST", "DELETE")
STATELESS_METHODS: Final = ("POST",)
"""Without sessions there is none to end, and no stream that belongs to one."""
ABORT: Final = "abort"
"""In a request's state: cuts its connection off, unsent data and all."""
_LAST_WORDS: Final = 1.0
"""Seconds that the end of a cut-off answer gets to be written."""


class HttpApp:
    """One MCP server over Streamable HTTP.

    ``ready`` raises what keeps the bridge from working. ``hand_over`` is called once when the
    server is to end: requests that can be answered without waiting on should be.
    """

    def __init__(
        self,
        server: Server[Any],
        options: HttpOptions,
        *,
        ready: Callable[[], Awaitable[None]],
        hand_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._methods = STATELESS_METHODS if options.stateless else METHODS
        self._names = Names(options.host, options.allowed_hosts, options.allowed_origins)
        self._streams = Streams(options.max_streams, options.max_session_streams)
        self._readiness = Readiness(ready)
        self._hand_over = hand_over
        # Always SSE: with JSON answers a client would not be told of its task while it waits.
        self._sessions = StreamableHTTPSessionManager(
            server,
            stateless=options.stateless,
            max_sessions=options.max_sessions,
            session_idle_timeout=options.session_idle,
            max_request_body_size=options.max_body,
        )
        # What the manager itself adds is a limit on the body. Ours is stricter, and its frame would
        # hold a second copy of the body for as long as the request is open.
        self._mcp: ASGIApp = self._sessions.asgi_app.app
        self._routed: ASGIApp = self._route
        if options.allowed_origins:
            self._routed = CORSMiddleware(
                self._route,
                allow_origins=options.allowed_origins,
                allow_methods=self._methods,
                allow_headers=["*"],
                expose_headers=[MCP_SESSION_ID_HEADER],
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve sessions until the block is left; leaving ends them all, and no task."""
        async with self._sessions.run():
            yield

    async def drain(self) -> None:
        """Take no more requests, and have those that are open end."""
        self._hand_over()
        await self._streams.drain(self._options.drain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        sending = _Sending(scope, send)
        try:
            await self._routed(scope, receive, sending)
        except Refusal as exc:
            log.info("http_refused", reason=exc.reason, status=exc.response.status_code)
            await exc.response(scope, receive, sending)
        except ClientDisconnect:
            return
        except Exception:
            log.exception("http_request_failed")
            await sending.fail()
        await sending.finish()

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path == "/mcp":
            await self._guard(scope, receive, send)
            return
        if path not in ("/healthz", "/readyz"):
            raise refused("no_path", 404, "Not found; the server is at /mcp")
        if method not in ("GET", "HEAD"):
            raise refused("method", 405, "Method not allowed", allow="GET, HEAD")
        answer = says(200, {"status": "alive"}) if path == "/healthz" else await self._readyz()
        await answer(scope, receive, send)

    async def _readyz(self) -> Response:
        if self._streams.draining:
            return says(503, {"status": "ending"})
        ready = await self._readiness.ready()
        return says(200, {"status": "ready"}) if ready else says(503, {"status": "not ready"})

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through to the SDK if nothing is wrong with its HTTP."""
        headers, method = Headers(scope=scope), scope["method"]
        if not self._names.host_allowed(headers.getlist("host")):
            what = "Host is not a name of this server; see allowed_hosts"
            raise refused("host", 421, what)
        if not self._names.origins_allowed(headers.getlist("origin")):
            raise refused("origin", 403, "Origin is not allowed; see allowed_origins")
        if method not in self._methods:
            raise refused("method", 405, "Method not allowed", allow=", ".join(self._methods))
        if self._options.stateless:
            # Whatever a client sends there, it is nothing that we gave it.
            del MutableHeaders(scope=scope)[MCP_SESSION_ID_HEADER]
            headers = Headers(scope=scope)
        session = headers.get(MCP_SESSION_ID_HEADER)
        with self._streams.opened(endless=method == "GET"):
            if method != "POST":
                with self._streams.in_session(session if method == "GET" else None, None):
                    await self._mcp(scope, receive, send)
                return
            options = self._options
            body = await read_body(
                headers, receive, limit=options.max_body, within=options.body_within
            )
            message = message_in(body)
            asks = isinstance(message, JSONRPCRequest)
            receive = replayed(body, receive)
            # A waiting request may be open for hours.
            del body
            request_id = message.id if isinstance(message, JSONRPCRequest) else None
            del message
            # What cancels is let through however much is open.
            with self._streams.in_session(session if asks else None, request_id):
                await self._mcp(scope, receive, send)


class _Sending:
    """The way to the client, which keeps failures of ours and of the SDK to itself."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._begun = False
        self._ended = False
        self._failed = False

    async def __call__(self, message: Message) -> None:
        if self._failed:
            return
        if message["type"] == "http.response.start":
            if message["status"] == 500:
                await self.fail()
                return
            if message["status"] == 503:
                MutableHeaders(scope=message).setdefault("retry-after", "1")
            self._begun = True
        elif message["type"] == "http.response.body":
            self._ended = not message.get("more_body", False)
        await self._send(message)

    async def fail(self) -> None:
        """Answer that it did not work, if nothing has been answered yet."""
        self._failed = True
        if not self._begun:
            self._begun = self._ended = True
            await internal()(self._scope, _nothing, self._send)

    async def finish(self) -> None:
        """End an answer that was left without an end."""
        if not self._begun:
            await self.fail()
        if self._ended:
            return
        with anyio.move_on_after(_LAST_WORDS):
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._ended = True
        if not self._ended and (abort := self._scope.get("state", {}).get(ABORT)):
            abort()


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
