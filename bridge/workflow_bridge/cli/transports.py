"""How clients reach `serve`: over its stdin and stdout, or over HTTP."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from workflow_bridge.cli import composing
from workflow_bridge.cli.exits import Stop

if TYPE_CHECKING:
    from workflow_bridge.config import Config
    from workflow_bridge.core.service import TaskService
    from workflow_bridge.http.options import HttpOptions
    from workflow_bridge.store.sql import SqlTaskStore


def open_sockets(config: Config) -> list[socket.socket]:
    """Take the address that is to be served; none over stdio."""
    if config.server.transport == "stdio":
        return []
    from workflow_bridge.http import serving

    options = _http_options(config)
    try:
        return serving.open_sockets(options)
    except OSError as exc:
        raise Stop(
            f"cannot listen on {options.host}, port {options.port}: {exc.strerror or exc}; name"
            " another in server.host and server.port"
        ) from exc


async def serve(
    config: Config, service: TaskService, store: SqlTaskStore, sockets: list[socket.socket]
) -> None:
    """Serve until the client on the pipe leaves, or, over HTTP, until cancelled."""
    if not sockets:
        from workflow_bridge.protocol.stdio import serve_stdio

        await serve_stdio(composing.mcp_server(config, service))
        return
    from workflow_bridge.http.app import HttpApp
    from workflow_bridge.http.owner import owner_by
    from workflow_bridge.http.serving import serve_http
    from workflow_bridge.protocol.plain import HandOver

    options, hand_over = _http_options(config), HandOver()
    server = composing.mcp_server(
        config, service, owner=owner_by(options.isolation), hand_over=hand_over
    )
    app = HttpApp(server, options, ready=store.ready, hand_over=hand_over.begin)
    await serve_http(app, sockets, options)


def _http_options(config: Config) -> HttpOptions:
    from workflow_bridge.http.options import HttpOptions

    server = config.server
    return HttpOptions(
        host=server.host,
        port=server.port,
        isolation=server.isolation,
        stateless=server.sessions == "stateless",
        allowed_hosts=server.allowed_hosts,
        allowed_origins=server.allowed_origins,
        max_body=server.max_body,
        max_streams=server.max_streams,
        max_session_streams=server.max_session_streams,
        max_sessions=server.max_sessions,
        session_idle=server.session_idle.total_seconds(),
    )
