"""Hosts wait while we start: nothing is imported that the command does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workflow_bridge import __version__

HEAVY = ("mcp", "sqlalchemy", "boto3", "botocore", "pydantic", "rich", "structlog", "alembic")


def _imported(*args: str, stdin: str = "") -> tuple[set[str], subprocess.CompletedProcess[str]]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "workflow_bridge", *args],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}, done


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["-h"]])
def test_version_and_help_import_nothing_heavy(args: list[str]) -> None:
    modules, done = _imported(*args)
    assert done.returncode == 0
    assert modules.isdisjoint(HEAVY)


def test_the_version_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workflow_bridge", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"workflow-bridge {__version__}\n"


def test_serving_imports_neither_an_sdk_nor_what_only_other_commands_need(tmp_path: Path) -> None:
    config = tmp_path / "bridge.yaml"
    config.write_text(
        f"""
        database: sqlite:///{tmp_path / "bridge.db"}
        backends:
          orders:
            adapter: step-functions
            region: eu-west-1
            tools:
              settle_order:
                workflow: arn:aws:states:eu-west-1:123456789012:stateMachine:SettleOrder
                description: Settle an order
                input_schema: {{type: object}}
        """
    )
    subprocess.run(
        [sys.executable, "-m", "workflow_bridge", "db", "upgrade", "-c", str(config)],
        check=True,
        capture_output=True,
    )
    modules, done = _imported("serve", "-c", str(config))
    assert done.returncode == 0
    assert "mcp.server.lowlevel" in modules
    unwanted = {
        "alembic",
        "boto3",
        "botocore",
        "moto",
        "psycopg",
        "rich.console",
        "sqlalchemy.dialects.postgresql",
        "sqlalchemy.orm",
        "workflow_bridge.client",
        "workflow_bridge.http",
    }
    assert modules.isdisjoint(unwanted)
