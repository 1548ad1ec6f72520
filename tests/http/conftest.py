"""What the tests of HTTP share."""

from __future__ import annotations

import pytest
from mcp.shared import jsonrpc_dispatcher


@pytest.fixture(autouse=True)
def _no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends tries for a second to answer calls on streams that are gone."""
    monkeypatch.setattr(jsonrpc_dispatcher, "_SHUTDOWN_WRITE_TIMEOUT", 0.01)
