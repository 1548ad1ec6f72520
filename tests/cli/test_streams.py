"""stdout and stderr that are closed, full or left by their reader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workflow_bridge.store import schema

ME = f"{sys.executable} -m workflow_bridge"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:None"

needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


def _shell(
    command: str, folder: Path, stdin: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        cwd=folder,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(configured: Callable[..., Path], tmp_path: Path) -> Path:
    configured(f"sqlite:///{tmp_path / 'bridge.db'}", nothing=MACHINE)
    schema.upgrade(f"sqlite:///{tmp_path / 'bridge.db'}")
    return tmp_path


QUERIES = ["tasks list", "config schema", "db check", "--help", "--version", "tasks list --json"]


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_closed_stream_is_as_good_as_dev_null(folder: Path, query: str, closing: str) -> None:
    done = _shell(f"{ME} {query} {closing}", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (closing == "2>&-")


@needs_dev_full
@pytest.mark.parametrize("query", QUERIES)
def test_a_full_device_is_said_in_a_sentence(folder: Path, query: str) -> None:
    done = _shell(f"{ME} {query} > /dev/full", folder)
    assert done.returncode == 1
    assert done.stderr == "workflow-bridge: stdout cannot be written: No space left on device\n"


@needs_dev_full
def test_a_full_stderr_leaves_the_exit_code_alone(folder: Path) -> None:
    assert _shell(f"{ME} tasks show nobodys 2> /dev/full", folder).returncode == 1
    assert _shell(f"{ME} tasks show 2> /dev/full", folder).returncode == 2
    assert _shell(f"{ME} config schema 2> /dev/full", folder).returncode == 0


@pytest.mark.parametrize(
    ("query", "code"), [("config schema", 0), ("--help", 0), ("db check -c no.yaml", 2)]
)
def test_a_reader_that_left_leaves_the_exit_code_alone(folder: Path, query: str, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*ME.split(), *query.split()],
            stdout=writer,
            stderr=subprocess.PIPE if code == 0 else writer,
            cwd=folder,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr or b"") == (code, b"")


def test_to_serve_over_stdio_takes_a_stdout(folder: Path) -> None:
    done = _shell(f"{ME} serve >&-", folder)
    assert done.returncode == 2
    assert done.stderr.startswith("workflow-bridge: stdout is closed")
    assert len(done.stderr.splitlines()) == 1


def test_to_serve_takes_no_stderr(folder: Path) -> None:
    hello = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
        '"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}\n'
    )
    done = _shell(f"{ME} serve 2>&-", folder, stdin=hello)
    assert done.returncode == 0
    assert '"serverInfo"' in done.stdout


POSIX = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "args",
    [
        "call \"$(printf 't\\351')\"",
        "tasks show \"$(printf 't\\351')\"",
        'call nothing "$(printf \'{"s":"\\351"}\')"',
        "call nothing --task-id \"$(printf '\\351')\"",
    ],
)
@pytest.mark.parametrize("env", [POSIX, {"PYTHONUTF8": "1"}])
def test_an_argument_that_is_no_utf_8_is_refused(
    folder: Path, args: str, env: dict[str, str]
) -> None:
    done = _shell(f"{ME} {args}", folder, **env)
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr


def test_an_argument_is_utf_8_whatever_the_locale(folder: Path) -> None:
    done = _shell(f"{ME} tasks show é", folder, **POSIX)
    assert done.returncode == 1
    assert "there is no task é;" in done.stderr


def test_stdin_that_is_no_utf_8_is_refused(folder: Path) -> None:
    done = _shell(f"printf '\\351' | {ME} call nothing -", folder)
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr
