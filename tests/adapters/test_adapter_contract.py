"""Every adapter, and the fake that stands in for them, keeps the same promises."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from workflow_bridge.adapter import Failed, Succeeded
from workflow_bridge.testing.adapter_contract import AdapterContract, Subject
from workflow_bridge.testing.fake_adapter import Behaviour, FakeAdapter, runs
from workflow_bridge.testing.moto_engine import ACCOUNT, REGION, MotoEngine
from workflow_bridge_adapters.step_functions import StepFunctions

from .conftest import FAILING, settings

_FAILURE = FAILING["States"]["Break"]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, so that nobody else gets it, and on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.case("D1", "D3", "D5", "R12", "R13")
class TestStepFunctions(AdapterContract):
    @pytest.fixture
    async def subject(
        self, moto: MotoEngine, echo: str, failing: str, long: str, closed_port: int
    ) -> AsyncIterator[Subject]:
        adapter = StepFunctions(settings(endpoint_url=moto.url))
        unreachable = StepFunctions(settings(endpoint_url=f"http://127.0.0.1:{closed_port}"))
        yield Subject(
            adapter=adapter,
            echo=echo,
            failing=failing,
            error=_FAILURE["Error"],
            cause=_FAILURE["Cause"],
            long=long,
            absent_ref=f"arn:aws:states:{REGION}:{ACCOUNT}:execution:Echo:wb-never",
            missing=f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:Missing",
            impossible="Echo",
            unreachable=unreachable,
        )
        await adapter.aclose()
        await unreachable.aclose()


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("start_is_idempotent", [True, False], ids=["idempotent", "not"])
class TestFakeAdapter(AdapterContract):
    @pytest.fixture
    def subject(self, start_is_idempotent: bool) -> Subject:
        behaviours: dict[str, Behaviour] = {
            "echo": lambda arguments: Succeeded(arguments, _now()),
            "failing": lambda _: Failed("Broken", "on purpose", _now()),
            "long": runs,
        }
        adapter = FakeAdapter(
            clock=_now, behaviours=behaviours, start_is_idempotent=start_is_idempotent
        )
        unreachable = FakeAdapter(clock=_now)
        unreachable.down = True
        return Subject(
            adapter=adapter,
            echo="echo",
            failing="failing",
            error="Broken",
            cause="on purpose",
            long="long",
            absent_ref="fake:echo:0",
            missing="missing",
            impossible="",
            unreachable=unreachable,
        )
