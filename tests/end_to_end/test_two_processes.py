"""Two bridges and the command line on one SQLite file: a normal case, not an accident."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.end_to_end.site import Served, Site, eventually

pytestmark = pytest.mark.anyio

EACH = 8


async def _create(bridge: Served, prefix: str, tool: str) -> None:
    async with anyio.create_task_group() as group:
        for number in range(EACH):
            group.start_soon(_create_one, bridge, f"{prefix}-{number}", tool)


async def _create_one(bridge: Served, task_id: str, tool: str) -> None:
    call = await bridge.client.start(tool, {"id": task_id}, task_id=task_id)
    assert (await call.wait()).succeeded


@pytest.mark.case("Q1", "D1")
async def test_two_bridges_and_the_command_line_share_a_database(site: Site) -> None:
    async with site.served() as first, site.served() as second:
        async with anyio.create_task_group() as group:
            group.start_soon(_create, first, "first", "slow")
            group.start_soon(_create, second, "second", "slow")
            listed = await site.command("tasks", "list", "--json")
            assert listed.returncode == 0, listed.stderr
        mine = {task.task_id: task.status async for task in first.client.list()}
        theirs = {task.task_id: task.status async for task in second.client.list()}
    ids = [f"{prefix}-{number}" for prefix in ("first", "second") for number in range(EACH)]
    assert mine == theirs == dict.fromkeys(ids, "completed")
    done = await site.command("tasks", "list", "--json")
    keys = [task["key"] for task in json.loads(done.stdout)]
    executions = await site.engine.executions(site.engine.machines["slow"])
    assert executions == dict.fromkeys(keys, "SUCCEEDED")
    assert "locked" not in site.log.read_text()


async def test_a_task_started_by_one_bridge_is_cancelled_from_the_command_line(site: Site) -> None:
    machine = site.engine.machines["long"]
    async with site.served() as bridge:
        call = await bridge.client.start("long", {}, task_id="l")
        await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 1)
        done = await site.command("tasks", "cancel", "l")
        assert done.returncode == 0, done.stderr
        assert (await call.wait()).status == "cancelled"
    assert list((await site.engine.executions(machine)).values()) == ["ABORTED"]


async def test_a_cancel_with_wait_needs_no_running_bridge(site: Site) -> None:
    machine = site.engine.machines["long"]
    async with site.served() as bridge:
        await bridge.client.start("long", {}, task_id="l")
        await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 1)
    done = await site.command("tasks", "cancel", "l", "--wait", "--json")
    assert done.returncode == 0, done.stderr
    task = json.loads(done.stdout)
    assert task["status"] == "cancelled"
    assert task["stop_confirmed_at"] is not None
    assert list((await site.engine.executions(machine)).values()) == ["ABORTED"]
