"""An engine that throttles, breaks down and loses answers: an outage is not an outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import pytest

from tests.end_to_end.site import Served, Site
from workflow_bridge.testing.fault_proxy import (
    Fault,
    FaultProxy,
    LostAnswer,
    Reset,
    Stale,
    Status,
    Throttle,
)

pytestmark = pytest.mark.anyio

IDS = ["one", "two", "three", "four"]


async def _complete_once(
    site: Site, proxy: FaultProxy, operation: str, faults: Sequence[Fault]
) -> None:
    for fault in faults:
        proxy.fault(operation, fault)
    async with site.served() as bridge, anyio.create_task_group() as group:
        for task_id in IDS:
            group.start_soon(_completes, bridge, task_id)
    executions = await site.engine.executions(site.engine.machines["slow"])
    assert executions == dict.fromkeys(await site.keys(), "SUCCEEDED")
    assert proxy.calls(operation) >= len(IDS) + len(faults) // 2


async def _completes(bridge: Served, task_id: str) -> None:
    call = await bridge.client.start("slow", {"id": task_id}, task_id=task_id)
    finished = await call.wait()
    assert finished.succeeded, finished
    assert finished.result is not None
    assert finished.result.structured_content == {"id": task_id}


@pytest.mark.case("F1")
async def test_trouble_while_looking_changes_no_status(
    another_site: Callable[..., Site], proxy: FaultProxy
) -> None:
    site = another_site("looking", endpoint=proxy.url)
    faults: list[Fault] = [Throttle(), Status(503), Reset(), Stale(), LostAnswer()]
    await _complete_once(site, proxy, "DescribeExecution", faults * 2)
    assert site.events("engine_unavailable")


@pytest.mark.case("D1", "D3")
async def test_trouble_while_starting_starts_exactly_one_execution_of_each(
    another_site: Callable[..., Site], proxy: FaultProxy
) -> None:
    site = another_site("starting", endpoint=proxy.url)
    await _complete_once(
        site, proxy, "StartExecution", [LostAnswer(), Throttle(), Status(500), Reset()]
    )
