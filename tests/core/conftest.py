"""Core tests run on virtual time, and fail if the bridge logged a fault of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from tests.core.virtual_time import VirtualTimeLoop
from workflow_bridge.core.store import TaskStore
from workflow_bridge.store import open_store
from workflow_bridge.testing.memory_store import MemoryTaskStore

OWN_FAULTS = {
    "step_failed",
    "worker_round_failed",
    "watch_round_failed",
    "claim_failed",
    "release_failed",
}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualTimeLoop}


@pytest.fixture(autouse=True)
def entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row ids spread delays: let every run of a test have the same ones."""
    chance = random.Random(0)
    monkeypatch.setattr("secrets.token_hex", lambda n: chance.randbytes(n).hex())


@pytest.fixture(autouse=True)
def faults() -> Iterator[list[str]]:
    """The faults of its own that the bridge logged; a test that expects some clears the list."""
    seen: list[str] = []

    def note(_logger: object, _method: str, entry: structlog.typing.EventDict) -> Any:
        if entry["event"] in OWN_FAULTS:
            seen.append(f"{entry['event']}: {entry.get('exc_info')}")
        raise structlog.DropEvent

    before = structlog.get_config()["processors"]
    structlog.configure(processors=[note])
    yield seen
    structlog.configure(processors=before)
    assert seen == []


@pytest.fixture(params=["memory", "sql"])
def stores(request: pytest.FixtureRequest) -> Callable[[Callable[[], float]], TaskStore]:
    """Make a store on a clock."""
    if request.param == "memory":
        return MemoryTaskStore
    return lambda clock: open_store("sqlite://", clock=clock)
