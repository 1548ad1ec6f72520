"""A task from its creation to its deletion, through the real command and a real engine."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError

from tests.end_to_end.site import Site, eventually
from workflow_bridge.client import TaskState

pytestmark = pytest.mark.anyio


@pytest.mark.req("A-40", "A-14", "A-15", "A-16", "A-18", "A-26", "A-34")
async def test_a_task_is_created_polled_listed_read_and_deleted(site: Site) -> None:
    odd = "client/abc:123 ✓"
    states: list[TaskState] = []
    async with site.served() as bridge:
        client = bridge.client
        call = await client.start("slow", {"n": [1, {"deep": "é"}]}, task_id=odd)
        finished = await call.wait(on_state=states.append)
        assert finished.succeeded
        assert finished.result is not None
        assert finished.result.structured_content == {"n": [1, {"deep": "é"}]}
        assert [task.task_id async for task in client.list()] == [odd]
        assert await client.result(odd) == finished.result == await client.result(odd)
        shown = await site.shown(odd)
        await client.delete(odd)
        with pytest.raises(MCPError, match="Task not found"):
            await client.get(odd)
        assert [task.task_id async for task in client.list()] == []
    assert states[0].status in ("submitted", "working")
    executions = await site.engine.executions(site.engine.machines["slow"])
    assert executions == {shown["key"]: "SUCCEEDED"}
    assert shown["ref"].endswith(f":{shown['key']}")


@pytest.mark.req("A-9", "A-14")
@pytest.mark.case("R1", "R3")
async def test_a_failure_arrives_with_its_name_and_its_whole_cause(site: Site) -> None:
    async with site.served() as bridge:
        finished = await (await bridge.client.start("failing", {}, task_id="f")).wait()
        assert finished.status == "failed"
        assert finished.state is not None
        assert finished.state.error == "Order.Closed: closed since May"
        with pytest.raises(MCPError, match="Task status is 'failed', not 'completed'"):
            await bridge.client.result("f")


@pytest.mark.req("A-21")
@pytest.mark.case("K6")
async def test_cancelling_the_call_stops_the_execution_at_the_engine(site: Site) -> None:
    machine = site.engine.machines["long"]
    async with site.served() as bridge:
        call = await bridge.client.start("long", {}, task_id="l")
        await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 1)
        await call.cancel()
        assert (await call.wait()).status == "cancelled"
        await eventually(
            lambda: site.engine.executions(machine),
            lambda found: list(found.values()) == ["ABORTED"],
        )


@pytest.mark.req("A-3")
async def test_an_id_used_before_is_refused_and_starts_nothing(site: Site) -> None:
    async with site.served() as bridge:
        await (await bridge.client.start("echo", {"n": 1}, task_id="same")).wait()
        with pytest.raises(MCPError, match="Task ID already exists: same"):
            await bridge.client.start("echo", {"n": 2}, task_id="same")
    assert len(await site.engine.executions(site.engine.machines["echo"])) == 1


@pytest.mark.req("A-22")
@pytest.mark.case("T1")
async def test_a_client_that_leaves_cancels_nothing_and_fetches_the_result_later(
    site: Site,
) -> None:
    async with site.served() as bridge:
        await bridge.client.start("slow", {"order": 7}, task_id="left")
    async with site.served() as bridge:
        assert (await bridge.client.wait("left")).status == "completed"
        result = await bridge.client.result("left")
    assert result.structured_content == {"order": 7}
    assert len(await site.engine.executions(site.engine.machines["slow"])) == 1
