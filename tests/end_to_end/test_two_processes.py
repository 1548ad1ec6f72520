"""Two bridges and the command line on one SQLite file: a normal case, not an accident."""

from __future__ import annotations

import json
import sqlite3

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


def _upgraded_by_a_newer_build(site: Site) -> None:
    """What a migration that only expands does."""
    with sqlite3.connect(site.database, isolation_level=None) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ALTER TABLE tasks ADD COLUMN priority INTEGER")
        database.execute("CREATE INDEX ix_tasks_priority ON tasks (priority)")
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.execute("COMMIT")
    database.close()


@pytest.mark.case("Q1")
async def test_a_newer_build_upgrades_the_database_under_one_that_runs(site: Site) -> None:
    async with site.served() as bridge:
        before = await bridge.client.start("slow", {"id": "before"}, task_id="before")
        await anyio.to_thread.run_sync(_upgraded_by_a_newer_build, site)
        await _create_one(bridge, "after", "slow")
        assert (await before.wait()).succeeded
        assert (await bridge.client.result("before")).structured_content == {"id": "before"}
        await bridge.client.delete("before")
        listed = {task.task_id: task.status async for task in bridge.client.list()}
        assert listed == {"after": "completed"}
        # Whoever comes now, and does not know the schema, leaves it alone and says why.
        done = await site.command("serve")
        assert (done.returncode, done.stdout) == (2, "")
        assert "is newer than this build" in done.stderr
        (checked,) = json.loads((await site.command("check", "--json")).stdout)
        assert "is newer than this build" in checked["message"]
        await _create_one(bridge, "still", "echo")
    executions = await site.engine.executions(site.engine.machines["slow"])
    assert list(executions.values()) == ["SUCCEEDED"] * 2


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
