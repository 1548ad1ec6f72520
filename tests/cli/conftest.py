"""Running commands in this process, and a configuration for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from workflow_bridge.cli.running import run
from workflow_bridge.testing.moto_engine import CREDENTIALS, REGION, MotoEngine

Told: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a command; returns its exit code, and what it said on stdout and stderr."""

    def tell(*args: str) -> tuple[int, str, str]:
        code = run(list(args))
        out, err = capsys.readouterr()
        return code, out, err

    return tell


@pytest.fixture
def configured(
    moto: MotoEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Write a configuration of state machines, by the names of their tools."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))

    def write(database: str = "sqlite:///bridge.db", **machines: str) -> Path:
        tools: dict[str, Any] = {
            name: {"workflow": arn, "description": name, "input_schema": {"type": "object"}}
            for name, arn in machines.items()
        }
        backend = {
            "adapter": "step-functions",
            "region": REGION,
            "endpoint_url": moto.url,
            "tools": tools,
        }
        file = tmp_path / "bridge.yaml"
        file.write_text(json.dumps({"database": database, "backends": {"orders": backend}}))
        monkeypatch.setenv("WORKFLOW_BRIDGE_CONFIG", str(file))
        return file

    return write
