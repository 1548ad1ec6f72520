"""The protocol tests of the same name, on sockets."""

from __future__ import annotations

import pytest

from tests.http.wire import over_http
from tests.protocol.bench import Bench
from tests.protocol.test_reading import *  # noqa: F403


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "connected", over_http)


# Over HTTP an id that is no UTF-8 is refused with the body, and without a session there is nothing
# to ask before a handshake: see test_app and test_isolation.
del test_an_id_that_is_no_text_is_nobodys  # noqa: F821
del test_nothing_is_done_before_the_handshake  # noqa: F821
