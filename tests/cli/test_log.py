"""The log: one JSON object per line on stderr, for machines to alert on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: the log is configured once per process.
SCRIPT = """
import logging, sys, anyio
from workflow_bridge.cli import journal
from workflow_bridge.cli.serve import resource_use
from workflow_bridge.store import open_store

journal.configure("info")

async def main():
    store = open_store(sys.argv[1])
    with anyio.move_on_after(0.5):
        await resource_use(store, every=0.2)
    await store.aclose()

anyio.run(main)
logging.getLogger("botocore.parsers").info("a response body")
logging.getLogger("sqlalchemy.engine").debug("SELECT secret")
logging.getLogger("urllib3").warning("Retrying")
try:
    raise ValueError("why")
except ValueError:
    journal.logger("x").exception("it_failed")
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    database = f"sqlite:///{tmp_path_factory.mktemp('log') / 'bridge.db'}"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, database], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.req("A-33")
def test_it_says_what_the_process_and_the_database_hold(lines: list[dict[str, object]]) -> None:
    use = next(line for line in lines if line["event"] == "resource_use")
    assert use["tasks"] == {"unsettled": 0}
    assert isinstance(use["rss_bytes"], int)
    assert use["rss_bytes"] > 10_000_000
    assert isinstance(use["open_files"], int)


def test_libraries_are_heard_from_warnings_on(lines: list[dict[str, object]]) -> None:
    events = [line["event"] for line in lines]
    assert "Retrying" in events
    assert "a response body" not in events
    assert "SELECT secret" not in events


def test_an_exception_is_one_line(lines: list[dict[str, object]]) -> None:
    failed = next(line for line in lines if line["event"] == "it_failed")
    assert "ValueError: why" in str(failed["exception"])


def test_a_closed_stderr_is_no_error(tmp_path: Path) -> None:
    script = SCRIPT.replace("anyio.run(main)", "sys.stderr.close(); anyio.run(main)")
    database = f"sqlite:///{tmp_path / 'bridge.db'}"
    done = subprocess.run([sys.executable, "-c", script, database], check=False, timeout=30)
    assert done.returncode == 0
