"""`kill -9` at bad moments: after a restart every task converges to what its execution says."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest

from tests.end_to_end.site import Served, Site, eventually
from workflow_bridge.testing.fault_proxy import FaultProxy, Hold, Status

pytestmark = pytest.mark.anyio

IDS = ["one", "two", "three"]
SLOW = ("created", "starting", "running", "ended")
"""Each moment counts the executions of a machine of its own."""


@pytest.mark.case("D1", "D3", "S6", "T1")
async def test_killed_at_any_moment_nothing_is_lost_and_nothing_is_started_twice(
    another_site: Callable[..., Site], proxy: FaultProxy
) -> None:
    # Side by side, since what takes long is waiting for leases to lapse.
    async with anyio.create_task_group() as group:
        for moment in (_created, _running, _ended):
            group.start_soon(moment, another_site(moment.__name__))
        group.start_soon(_starting, another_site("starting", endpoint=proxy.url), proxy)


async def _created(site: Site) -> None:
    """The moment the tasks are created."""
    async with site.served() as bridge:
        await _start_all(bridge, "created")
        bridge.kill()
    await _converges(site, "created")


async def _starting(site: Site, proxy: FaultProxy) -> None:
    """The engine has started them, and its answers are still on their way."""
    release = threading.Event()
    proxy.fault("StartExecution", Hold(release), times=len(IDS))
    async with site.served() as bridge:
        await _start_all(bridge, "starting")
        await _there(site, "starting")
        bridge.kill()
    release.set()
    await _converges(site, "starting")


async def _running(site: Site) -> None:
    """The executions run."""
    async with site.served() as bridge:
        await _start_all(bridge, "running")
        await _there(site, "running")
        bridge.kill()
    await _converges(site, "running")


async def _ended(site: Site) -> None:
    """The executions run, and end while no bridge is there to see it."""
    async with site.served() as bridge:
        await _start_all(bridge, "ended")
        await _there(site, "ended")
        bridge.kill()
    await eventually(
        lambda: site.engine.executions(site.engine.machines["ended"]),
        lambda found: set(found.values()) == {"SUCCEEDED"},
    )
    await _converges(site, "ended")


async def _start_all(bridge: Served, tool: str) -> None:
    async with anyio.create_task_group() as group:
        for task_id in IDS:
            group.start_soon(_start, bridge, tool, task_id)


async def _start(bridge: Served, tool: str, task_id: str) -> None:
    await bridge.client.start(tool, {"id": task_id}, task_id=task_id)


async def _there(site: Site, tool: str) -> None:
    await eventually(
        lambda: site.engine.executions(site.engine.machines[tool]),
        lambda found: len(found) == len(IDS),
    )


async def _converges(site: Site, tool: str) -> None:
    """Restart, and compare the tasks with the executions, name by name."""
    async with site.served() as bridge:
        async with anyio.create_task_group() as group:
            for task_id in IDS:
                group.start_soon(_completes, bridge, task_id)
        listed = {task.task_id: task.status async for task in bridge.client.list()}
    assert listed == dict.fromkeys(IDS, "completed")
    executions = await site.engine.executions(site.engine.machines[tool])
    assert executions == dict.fromkeys(await site.keys(), "SUCCEEDED")


async def _completes(bridge: Served, task_id: str) -> None:
    assert (await bridge.client.wait(task_id)).status == "completed"
    assert (await bridge.client.result(task_id)).structured_content == {"id": task_id}


@pytest.mark.case("K6")
async def test_a_cancel_outlives_the_bridge_that_took_it(
    another_site: Callable[..., Site], proxy: FaultProxy
) -> None:
    site = another_site("stopping", endpoint=proxy.url)
    machine = site.engine.machines["long"]
    async with site.served() as bridge:
        call = await bridge.client.start("long", {}, task_id="l")
        await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 1)
        proxy.fault("StopExecution", Status(503), times=None)
        await call.cancel()
        await bridge.client.wait("l")
        await eventually(_returning(lambda: proxy.calls("StopExecution")), lambda calls: calls > 0)
        bridge.kill()
    assert list((await site.engine.executions(machine)).values()) == ["RUNNING"]
    proxy.clear()
    async with site.served() as bridge:
        assert (await bridge.client.get("l")).status == "cancelled"
        await eventually(
            lambda: site.engine.executions(machine),
            lambda found: list(found.values()) == ["ABORTED"],
        )


def _returning(read: Callable[[], int]) -> Callable[[], Awaitable[int]]:
    async def returning() -> int:
        return read()

    return returning
