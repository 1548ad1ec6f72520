"""Shell completion, asked as the shells ask."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Told

YAML = """
include: [more/*.yaml]
backends:
  orders:
    adapter: step-functions
    tools: {settle_order: {}, cancel_order: {}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bridge.yaml").write_text(YAML)
    (tmp_path / "more").mkdir()
    more = "backends: {bills: {tools: {settle_bill: {poll: '${UNSET}'}}}}"
    (tmp_path / "more/bills.yaml").write_text(more)
    (tmp_path / "broken.yaml").write_text("backends: [")
    return tmp_path


def completed(folder: Path, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "workflow_bridge"],
        cwd=folder,
        env={
            **os.environ,
            "_WORKFLOW_BRIDGE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["workflow-bridge", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["ta"], ["tasks"]),
        (["tasks", "re"], ["reconcile"]),
        (["serve", "--mig"], ["--migrate"]),
        (["call", "sett"], ["settle_bill", "settle_order"]),
        (["call", "-c", "more/bills.yaml", "sett"], ["settle_bill"]),
        (["call", "-c", "broken.yaml", "sett"], []),
        (["call", "-c", "nowhere.yaml", "sett"], []),
        (["call", "--url", "http://127.0.0.1", "sett"], []),
        (["completion", "f"], ["fish"]),
    ],
)
def test_what_can_follow_is_named(folder: Path, words: list[str], names: list[str]) -> None:
    assert completed(folder, *words) == names


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(told: Told, shell: str) -> None:
    code, out, err = told("completion", shell)
    assert (code, err) == (0, "")
    assert f"_WORKFLOW_BRIDGE_COMPLETE={shell}_complete" in out


def test_the_script_is_one_that_bash_reads(told: Told) -> None:
    script = told("completion", "bash")[1]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
