"""The protocol tests of the same name, on sockets."""

from __future__ import annotations

import pytest

from tests.http.wire import over_http
from tests.protocol.bench import Bench
from tests.protocol.test_creating import *  # noqa: F403


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "connected", over_http)


# On a socket, what was sent is seen by whoever reads it, and when is not ours to say. That the
# announcement precedes the engine's call is shown on the streams behind it.
del test_the_task_is_announced_as_submitted_before_the_engine_is_called  # noqa: F821
