"""The protocol tests of the same name, on sockets."""

from __future__ import annotations

import pytest

from tests.http.wire import over_http
from tests.protocol.bench import Bench
from tests.protocol.test_limits import *  # noqa: F403


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "connected", over_http)
