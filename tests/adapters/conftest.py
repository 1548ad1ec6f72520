"""One moto for all tests of the Step Functions adapter, and adapters connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from workflow_bridge.testing.fault_proxy import FaultProxy
from workflow_bridge.testing.moto_engine import CREDENTIALS, REGION, MotoEngine
from workflow_bridge_adapters.step_functions import StepFunctions, StepFunctionsSettings

ECHO = {"StartAt": "Say", "States": {"Say": {"Type": "Pass", "End": True}}}
FAILING: dict[str, Any] = {
    "StartAt": "Break",
    "States": {"Break": {"Type": "Fail", "Error": "Order.Closed", "Cause": "schon geöffnet"}},
}
LONG = {"StartAt": "Sleep", "States": {"Sleep": {"Type": "Wait", "Seconds": 3600, "End": True}}}


@pytest.fixture(autouse=True)
def aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test may use real credentials, files or the metadata service."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def echo(moto: MotoEngine) -> str:
    return moto.create_state_machine("Echo", ECHO)


@pytest.fixture(scope="session")
def failing(moto: MotoEngine) -> str:
    return moto.create_state_machine("Failing", FAILING)


@pytest.fixture(scope="session")
def long(moto: MotoEngine) -> str:
    return moto.create_state_machine("Long", LONG)


@pytest.fixture
def proxy(moto: MotoEngine) -> Iterator[FaultProxy]:
    with FaultProxy(moto.url) as proxy:
        yield proxy


def settings(**keys: Any) -> StepFunctionsSettings:
    """Settings for moto's region, as YAML would give them."""
    return StepFunctionsSettings.model_validate({"region": REGION} | keys)


@pytest.fixture
async def adapter(proxy: FaultProxy) -> AsyncIterator[StepFunctions]:
    """An adapter that reaches moto through the proxy."""
    adapter = StepFunctions(settings(endpoint_url=proxy.url))
    yield adapter
    await adapter.aclose()
