"""`/readyz` says how the database is, cheaply."""

from __future__ import annotations

import anyio
import pytest
from structlog.testing import capture_logs

from tests.http.wire import site
from tests.protocol.bench import bench
from workflow_bridge.adapter import Unavailable
from workflow_bridge.http import readiness
from workflow_bridge.http.readiness import Readiness

pytestmark = pytest.mark.anyio


class Database:
    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.fault: Exception | None = None
        self.slow = False

    async def probe(self) -> None:
        self.asked += 1
        if self.slow:
            await anyio.sleep_forever()
        if self.fault is not None:
            raise self.fault

    def readiness(self) -> Readiness:
        return Readiness(self.probe, clock=lambda: self.now)


async def test_an_answer_is_good_for_a_second_however_many_ask() -> None:
    database = Database()
    asked = database.readiness()
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(asked.ready)
    assert database.asked == 1
    database.fault = RuntimeError("password=hunter2")
    assert await asked.ready()
    database.now += 1.1
    with capture_logs() as log:
        assert not await asked.ready()
        assert not await asked.ready()
        database.now += 1.1
        assert not await asked.ready()
    assert database.asked == 3
    assert [line["error"] for line in log] == ["RuntimeError"]


async def test_a_database_that_does_not_answer_in_time_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "WITHIN", 0.01)
    database = Database()
    database.slow = True
    asked = database.readiness()
    assert not await asked.ready()
    database.slow = False
    database.now += 1.1
    assert await asked.ready()


async def test_probes_see_life_and_readiness_and_nothing_of_the_fault() -> None:
    database = Database()
    async with (
        bench() as b,
        site(b, ready=database.probe) as made,
        made.connected(handshake=False) as wire,
    ):
        client, base = wire.client, made.base
        # Kubernetes asks by address, whatever names are allowed.
        stranger = {"host": "10.1.2.3:8080", "origin": "http://evil.example"}
        assert (await client.get(f"{base}/healthz", headers=stranger)).status_code == 200
        assert (await client.get(f"{base}/readyz", headers=stranger)).status_code == 200
        made.app._readiness = database.readiness()
        database.fault = RuntimeError("password=hunter2")
        answer = await client.get(f"{base}/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "not ready"})
        assert (await client.get(f"{base}/healthz")).status_code == 200
        assert (await client.head(f"{base}/healthz")).content == b""
        assert (await client.post(f"{base}/readyz")).status_code == 405


async def test_an_engine_that_is_down_takes_no_replica_out_of_service() -> None:
    database = Database()
    async with (
        bench() as b,
        site(b, ready=database.probe) as made,
        made.connected() as wire,
    ):
        for method in ("start", "observe", "find"):
            b.engine.fail(method, Unavailable("down"), times=99)
        await wire.create("t")
        assert (await wire.client.get(f"{made.base}/readyz")).status_code == 200
