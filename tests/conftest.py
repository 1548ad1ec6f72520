"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workflow_bridge.testing.moto_engine import MotoEngine

pytest.register_assert_rewrite(
    "workflow_bridge.testing.adapter_contract", "workflow_bridge.testing.store_contract"
)


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoEngine]:
    """The one emulator of a run: its state is global to the process, and it forgets nothing."""
    with MotoEngine() as engine:
        yield engine


@pytest.fixture
def anyio_backend() -> str:
    """The bridge runs on asyncio."""
    return "asyncio"
