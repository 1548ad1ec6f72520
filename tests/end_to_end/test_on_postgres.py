"""The real command on a PostgreSQL server."""

from __future__ import annotations

import json
from collections.abc import Callable

import anyio
import pytest

from tests.end_to_end.site import Site, eventually
from tests.store.postgres_server import running

pytestmark = pytest.mark.anyio


@pytest.fixture
def empty(another_site: Callable[..., Site]) -> Site:
    """A site whose database has no schema yet."""
    pool = {"size": 4, "application_name": "bridge under test"}
    return another_site("postgres", database={"url": running().empty(), "pool": pool})


async def test_serving_an_older_schema_is_refused_until_somebody_upgrades_it(empty: Site) -> None:
    done = await empty.command("serve")
    assert (done.returncode, done.stdout) == (2, "")
    upgrade = "workflow-bridge db upgrade, or serve with --migrate"
    assert done.stderr.endswith(f"holds no tables of the bridge yet; run: {upgrade}\n")

    async def migrate() -> None:
        done = await empty.command("serve", "--migrate")  # its stdin is empty: it ends by itself
        assert (done.returncode, done.stdout) == (0, ""), done.stderr

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(migrate)
    done = await empty.command("call", "slow", '{"n": 1}', "--quiet")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"n": 1}), done.stderr
    assert (await empty.command("check")).returncode == 0


async def test_the_command_line_stops_what_a_bridge_elsewhere_started(empty: Site) -> None:
    assert (await empty.command("db", "upgrade")).returncode == 0
    machine = empty.engine.machines["long"]
    async with empty.served() as bridge:
        call = await bridge.client.start("long", {}, task_id="l")
        await eventually(lambda: empty.engine.executions(machine), lambda found: len(found) == 1)
        names = await anyio.to_thread.run_sync(
            running().execute, "SELECT DISTINCT application_name FROM pg_stat_activity"
        )
        assert ("bridge under test",) in names
        assert (await empty.command("tasks", "reconcile")).returncode == 0
        assert (await empty.command("tasks", "cancel", "l")).returncode == 0
        assert (await call.wait()).status == "cancelled"
    assert list((await empty.engine.executions(machine)).values()) == ["ABORTED"]
