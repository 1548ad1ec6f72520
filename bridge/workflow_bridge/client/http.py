"""Streamable HTTP that survives outages: what cannot be sent is that request's failure alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

from workflow_bridge.client.connecting import connect
from workflow_bridge.client.tasks import TaskClient

_TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
"""Seconds. A waiting answer's stream is never silent for long: servers send comments on it."""
_SESSION: Final = "mcp-session-id"


class HttpConnection(httpx2.AsyncClient):
    """The HTTP below one or more sessions.

    Where the server cannot be reached, or wants other credentials, requests are answered here, by a
    JSON-RPC error. The SDK's transport would end the whole session over the first of them.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers=headers, timeout=_TIMEOUT)
        self.endpoint = url
        self._session_id: str | None = None

    @property
    def session_owner(self) -> str | None:
        """The owner that a workflow bridge gives to the tasks of the latest session."""
        if self._session_id is None:
            return None
        return f"session:{hashlib.sha256(self._session_id.encode()).hexdigest()}"

    async def send(self, request: httpx2.Request, **keys: Any) -> httpx2.Response:
        """Send it; never raises for a server out of reach."""
        try:
            response = await super().send(request, **keys)
        except httpx2.TransportError as exc:
            reason = str(exc) or type(exc).__name__
            return _error(request, 503, f"{_place(request)} cannot be reached: {reason}")
        if response.status_code in (401, 403) and not _says_why(response):
            await response.aclose()
            message = f"{_place(request)} does not let us in (HTTP {response.status_code})"
            return _error(request, response.status_code, message, code=NOT_LET_IN)
        if _SESSION in response.headers:
            self._session_id = response.headers[_SESSION]
        return response


NOT_LET_IN: Final = -32003
"""The JSON-RPC error code of a request that the server refused for its credentials."""


@asynccontextmanager
async def connect_http(
    connection: HttpConnection,
    *,
    name: str = "workflow-bridge",
    created_within: float = 10.0,
) -> AsyncIterator[TaskClient]:
    """Begin a session on a connection, yield a client of it, and end the session afterwards.

    A request that is lost with the network is an `MCPError` (`CONNECTION_CLOSED`), and the session
    can be used again when the network is back. One that the server has ended answers -32600.
    """
    async with (
        streamable_http_client(
            connection.endpoint,
            http_client=connection,
            # Results are as large as the tool's; what bounds them is the server's `max_text`.
            max_sse_event_size=None,
        ) as (read, write),
        connect(read, write, name=name, created_within=created_within) as client,
    ):
        yield client


def _says_why(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("application/json")


def _place(request: httpx2.Request) -> str:
    """The server, without what may be secret in a URL."""
    url = request.url
    return f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}"


def _error(
    request: httpx2.Request, status: int, message: str, *, code: int = CONNECTION_CLOSED
) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(
        status,
        headers={"content-type": "application/json"},
        content=json.dumps(error).encode(),
        request=request,
    )
