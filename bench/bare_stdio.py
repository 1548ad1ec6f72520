"""The least `mcp` server over stdio: one tool that is listed."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, PaginatedRequestParams, Tool


async def list_tools(ctx: Any, params: PaginatedRequestParams) -> ListToolsResult:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    return ListToolsResult(tools=[Tool(name="bare", description="Does it", input_schema=schema)])


async def main() -> None:
    server = Server[Any]("bare")
    server.add_request_handler("tools/list", PaginatedRequestParams, list_tools)
    async with stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
