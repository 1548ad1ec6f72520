"""Put the core together and keep it running."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio

from workflow_bridge.adapter import Adapter
from workflow_bridge.core.budget import Budget
from workflow_bridge.core.policy import KeepAlive, Tool
from workflow_bridge.core.service import TaskService
from workflow_bridge.core.store import TaskStore
from workflow_bridge.core.waiters import Waiters
from workflow_bridge.core.worker import Backend, Worker

CALLS_PER_SECOND = 10.0
"""A backend's budget of observations where none is configured: what AWS refills per second."""


@asynccontextmanager
async def running(
    store: TaskStore,
    adapters: Mapping[str, Adapter],
    tools: Mapping[str, Tool],
    *,
    calls_per_second: Mapping[str, float] | None = None,
    keep_alive: KeepAlive | None = None,
    concurrent_tasks: int | None = None,
    tombstone: timedelta = timedelta(days=1),
    settling: timedelta = timedelta(minutes=1),
    grace: float = 5.0,
) -> AsyncIterator[TaskService]:
    """Yield a service whose worker runs until the block is left.

    Leaving gives starts and stops in flight ``grace`` seconds, then releases all leases. The
    store and the adapters stay open: they are the caller's.
    """
    rates = calls_per_second or {}
    backends = {
        name: Backend(
            adapter=adapter,
            budget=Budget(rates.get(name, CALLS_PER_SECOND), clock=time.monotonic),
        )
        for name, adapter in adapters.items()
    }
    waiters = Waiters(store.row)
    worker = Worker(store, backends, tools, waiters, tombstone=tombstone, settling=settling)
    service = TaskService(
        store,
        worker,
        waiters,
        adapters,
        tools,
        keep_alive=keep_alive or KeepAlive(),
        concurrent_tasks=concurrent_tasks,
    )
    async with anyio.create_task_group() as group:
        await group.start(worker.run)
        try:
            yield service
        finally:
            with anyio.CancelScope(shield=True):
                await worker.close(grace)
