"""The store contract, over every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from workflow_bridge.store import PoolOptions, open_store
from workflow_bridge.store.sql import SqlTaskStore
from workflow_bridge.testing.memory_store import ManualClock, MemoryTaskStore
from workflow_bridge.testing.store_contract import StoreContract


class TestMemoryTaskStore(StoreContract):
    @pytest.fixture
    def store(self, clock: ManualClock) -> MemoryTaskStore:
        return MemoryTaskStore(clock)


@pytest.mark.case("D2", "K4")
class TestSqlTaskStoreOnAFile(StoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqlTaskStore]:
        store = open_store(f"sqlite:///{tmp_path}/bridge.db", clock=clock)
        yield store
        await store.aclose()


class TestSqlTaskStoreInMemory(StoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[SqlTaskStore]:
        store = open_store("sqlite://", clock=clock)
        yield store
        await store.aclose()


@pytest.mark.case("D2", "K4")
class TestSqlTaskStoreOnPostgres(StoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock, database_url: str) -> AsyncIterator[SqlTaskStore]:
        store = open_store(database_url, clock=clock, pool=PoolOptions(size=6))
        yield store
        await store.aclose()
