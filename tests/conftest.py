"""What all tests share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "workflow_bridge.testing.adapter_contract", "workflow_bridge.testing.store_contract"
)


@pytest.fixture
def anyio_backend() -> str:
    """The bridge runs on asyncio."""
    return "asyncio"
