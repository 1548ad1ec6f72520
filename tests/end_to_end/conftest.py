"""One emulator for all end-to-end tests; each test has state machines and a folder of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.site import Engine, Site
from workflow_bridge.store import schema
from workflow_bridge.testing.fault_proxy import FaultProxy
from workflow_bridge.testing.moto_engine import MotoEngine


def _wait(seconds: int, following: str) -> dict[str, Any]:
    return {"Type": "Wait", "Seconds": seconds, "Next": following}


DONE: dict[str, Any] = {"Type": "Pass", "End": True}

MACHINES: dict[str, dict[str, Any]] = {
    "echo": {"StartAt": "Say", "States": {"Say": DONE}},
    "slow": {
        "StartAt": "First",
        "States": {"First": _wait(1, "Second"), "Second": _wait(1, "Say"), "Say": DONE},
    },
    "failing": {
        "StartAt": "Break",
        "States": {"Break": {"Type": "Fail", "Error": "Order.Closed", "Cause": "closed since May"}},
    },
    "long": {"StartAt": "Sleep", "States": {"Sleep": _wait(600, "Say"), "Say": DONE}},
}

_numbers = itertools.count(1)


@pytest.fixture
def engine(moto: MotoEngine, request: pytest.FixtureRequest) -> Engine:
    """Machines of the test's own; a module may name more that are slow in ``SLOW``."""
    number = next(_numbers)
    more = dict.fromkeys(getattr(request.module, "SLOW", ()), MACHINES["slow"])
    machines = {
        name: moto.create_state_machine(f"{name}-{number}", definition)
        for name, definition in {**MACHINES, **more}.items()
    }
    return Engine(moto, machines)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that is up to date: making one takes longer than most of the tests."""
    file = tmp_path_factory.mktemp("migrated") / "bridge.db"
    schema.upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture
def site(tmp_path: Path, engine: Engine, migrated: Path) -> Site:
    return Site(tmp_path, engine, migrated)


@pytest.fixture
def proxy(moto: MotoEngine) -> Iterator[FaultProxy]:
    with FaultProxy(moto.url) as proxy:
        yield proxy


@pytest.fixture
def another_site(tmp_path: Path, engine: Engine, migrated: Path) -> Callable[..., Site]:
    """Make further folders, before the same engine."""

    def make(name: str, **keys: Any) -> Site:
        folder = tmp_path / name
        folder.mkdir()
        return Site(folder, engine, migrated, **keys)

    return make
