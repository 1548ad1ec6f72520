"""A `fastmcp-tasks` server with its default backend, in memory; run by its own Python.

Uvicorn is set up as the bridge sets it up.
"""

from __future__ import annotations

import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

if __name__ == "__main__":
    server = FastMCP("peer")
    server.add_extension(TasksExtension())

    @server.tool(task=True)  # type: ignore[untyped-decorator]
    async def echo(text: str) -> str:
        return text

    uvicorn.run(
        server.http_app(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
    )
