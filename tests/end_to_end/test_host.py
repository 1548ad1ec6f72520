"""As a host starts us: a command, its arguments, and next to nothing in its environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.end_to_end.site import Site
from workflow_bridge.config import RESERVED_TOOLS
from workflow_bridge.testing.moto_engine import CREDENTIALS

pytestmark = pytest.mark.anyio


async def test_a_host_with_an_ordinary_client_gets_tools_and_results(site: Site) -> None:
    command = Path(sys.executable).with_name("workflow-bridge")
    server = StdioServerParameters(
        command=str(command), args=["serve", "-c", str(site.config)], env=dict(CREDENTIALS)
    )
    async with (
        stdio_client(server) as (read, write),
        ClientSession(read, write) as session,
    ):
        hello = await session.initialize()
        assert hello.server_info.name == "workflow-bridge"
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) == {*site.engine.machines, *RESERVED_TOOLS}
        assert tools["echo"].input_schema == {"type": "object"}
        result = await session.call_tool("echo", {"n": 1})
    assert result.structured_content == {"n": 1}
    assert len(await site.engine.executions(site.engine.machines["echo"])) == 1
