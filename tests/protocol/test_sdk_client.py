"""The SDK's own client, as hosts use it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from tests.protocol.bench import RELATED, TASK, Bench, bench, settle, until
from workflow_bridge.adapter import Failed, Succeeded
from workflow_bridge.protocol.facade_tools import TOOLS as FACADE

pytestmark = pytest.mark.anyio


async def end(b: Bench, outcome: Any) -> None:
    await until(lambda: b.engine.executions)
    await settle()
    (row,) = (await b.service.page("local", None))[0]
    await b.finish(row.task_id, outcome)


@pytest.mark.req("P-1")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_host_calls_a_tool_and_gets_its_result(mode: Any) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with bench() as b, Client(b.server, mode=mode) as client, anyio.create_task_group() as g:
        assert {tool.name for tool in (await client.list_tools()).tools} == {*b.tools, *FACADE}
        g.start_soon(end, b, Succeeded({"total": 3}, None))
        result = await client.call_tool("typed", {}, progress_callback=hear)
        assert result.structured_content == {"total": 3}
        # In one process the SDK's modern path passes no token on.
        assert mode != "legacy" or heard[-1] == "completed"


@pytest.mark.parametrize(
    "outcome", [Failed("Boom", "it broke", None), Succeeded({"total": "three"}, None)]
)
async def test_no_host_throws_away_what_is_not_as_the_output_schema_says(outcome: Any) -> None:
    async with bench() as b, Client(b.server) as client, anyio.create_task_group() as group:
        group.start_soon(end, b, outcome)
        result = await client.call_tool("typed", {})
        assert result.is_error
        assert "it broke" in str(result) or "three" in str(result)


@pytest.mark.req("P-2")
async def test_no_host_throws_away_where_the_work_can_be_found() -> None:
    async with bench(plain_max_wait=timedelta(0)) as b, Client(b.server) as client:
        for tool in ("typed", "run"):
            assert "call task_result" in str(await client.call_tool(tool, {}))


@pytest.mark.req("A-1", "A-3", "A-5")
async def test_a_client_that_sends_the_metadata_has_a_task() -> None:
    meta: Any = {TASK: {"taskId": "mine"}}
    async with bench() as b, Client(b.server, mode="legacy") as client:
        async with anyio.create_task_group() as group:
            group.start_soon(end, b, Succeeded([1], None))
            result = await client.call_tool("run", {}, meta=meta)
        assert result.meta == {RELATED: {"taskId": "mine"}}
        with pytest.raises(MCPError, match="Task ID already exists: mine"):
            await client.call_tool("run", {}, meta=meta)
