"""Runs the protocol's tests in every setting.

Of a parametrised test the first case is enough here: the odd inputs are the same server's. And only
tests that prove a requirement are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import structlog
from mcp.shared import jsonrpc_dispatcher

from tests.everywhere.exceptions import EXCEPTIONS
from tests.everywhere.settings import SETTINGS, Setting
from tests.protocol.bench import DATABASE, Bench, Wire
from workflow_bridge.protocol import stdio

HERE = Path(__file__).parent


@pytest.fixture(autouse=True, params=SETTINGS, ids=lambda setting: setting.name)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    """Have the test's bridge on a setting's database, and its clients reach it that way."""
    chosen: Setting = request.param
    connections = 0

    def connected(bench: Bench, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Wire]:
        nonlocal connections
        connections += 1
        return chosen.connect(bench, *args, **kwargs)

    # Not the test's own, which it may undo.
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Bench, "connected", connected)
        # Requests that are open at the end get their time to be answered elsewhere.
        monkeypatch.setattr(jsonrpc_dispatcher, "_SHUTDOWN_WRITE_TIMEOUT", 0.01)
        monkeypatch.setattr(stdio, "_LAST_ANSWERS", 0.02)
        # The default draws every local variable of a traceback, which takes seconds.
        structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
        token = DATABASE.set(chosen.database(tmp_path))
        yield chosen
        DATABASE.reset(token)
        structlog.reset_defaults()
    assert connections, "a test that connects no client proves nothing of this setting"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen: set[tuple[str, str, str]] = set()
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        (kept if _wanted(item, seen) else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


def _wanted(item: pytest.Item, seen: set[tuple[str, str, str]]) -> bool:
    if HERE not in item.path.parents or not isinstance(item, pytest.Function):
        return True
    name = item.originalname
    chosen = item.callspec.params["setting"]
    assert isinstance(chosen, Setting)
    where = chosen.name
    if item.get_closest_marker("req") is None or where in EXCEPTIONS.get(name, ()):
        return False
    first = (item.path.name, name, where) not in seen
    seen.add((item.path.name, name, where))
    return first
