"""The least `mcp` server over Streamable HTTP: `tasks/get` is answered with a constant.

Uvicorn is set up as the bridge sets it up.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import RequestParams
from pydantic import ConfigDict
from starlette.types import Receive, Scope, Send

ANSWER = {
    "taskId": "t1",
    "status": "completed",
    "keepAlive": 86400000,
    "pollFrequency": 5000,
    "_meta": {"modelcontextprotocol.io/related-task": {"taskId": "t1"}},
    "resultType": "complete",
}


class Params(RequestParams):
    model_config = ConfigDict(extra="allow")


async def get_task(ctx: Any, params: Params) -> dict[str, Any]:
    return ANSWER


def main(port: int) -> None:
    server = Server[Any]("bare")
    server.add_request_handler("tasks/get", Params, get_task)
    sessions = StreamableHTTPSessionManager(server)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with sessions.run():
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await sessions.handle_request(scope, receive, send)

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
