"""`workflow-bridge call`: a client for people and for scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from tests.end_to_end.site import Site, eventually


@contextmanager
def _calling(site: Site, *args: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "workflow_bridge", "call", *args, "-c", str(site.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=site.env,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.req("A-40")
def test_the_result_is_on_stdout_and_the_steps_are_on_stderr(site: Site) -> None:
    done = site.run("call", "slow", '{"order": "é"}', "--task-id", "mine")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"order": "é"}
    said = done.stderr.splitlines()
    assert said[0] == "task mine"
    assert any("working · First" in line for line in said)
    assert said[-1].startswith("completed in ")


def test_json_prints_the_whole_result(site: Site) -> None:
    done = site.run("call", "echo", "-", "--json", "--quiet", stdin='{"n": 1}')
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["structuredContent"] == {"n": 1}
    assert result["isError"] is False
    assert done.stderr == ""


def test_a_failure_is_an_exit_code_and_a_reason(site: Site) -> None:
    done = site.run("call", "failing")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "failed: Order.Closed: closed since May" in done.stderr


def test_a_tool_that_is_not_there(site: Site) -> None:
    done = site.run("call", "sloww")
    assert done.returncode == 1
    assert "Unknown tool: sloww" in done.stderr
    assert "Traceback" not in done.stderr


def test_detached_it_prints_the_id_and_the_execution_goes_on(site: Site) -> None:
    done = site.run("call", "slow", "--detach", "--quiet")
    assert done.returncode == 0, done.stderr
    task_id = done.stdout.strip()
    shown = json.loads(site.run("tasks", "show", task_id, "--json").stdout)
    assert shown["ref"] is not None
    assert shown["final_at"] is None


@pytest.mark.anyio
@pytest.mark.case("K6")
@pytest.mark.req("A-21")
async def test_ctrl_c_cancels_and_waits_for_the_engine(site: Site) -> None:
    machine = site.engine.machines["long"]
    with _calling(site, "long", "--task-id", "l") as process:
        await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 1)
        process.send_signal(signal.SIGINT)
        said = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=20)[1])
        assert process.returncode == 130
    assert "cancelled" in said
    await eventually(
        lambda: site.engine.executions(machine), lambda found: list(found.values()) == ["ABORTED"]
    )


@pytest.mark.anyio
async def test_ctrl_c_twice_leaves_at_once_and_says_how_to_come_back(site: Site) -> None:
    machine = site.engine.machines["long"]
    with _calling(site, "long", "--task-id", "l") as process:
        await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 1)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        for line in iter(process.stderr.readline, ""):
            if "Ctrl-C again" in line:
                break
        process.send_signal(signal.SIGINT)
        said = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=20)[1])
        assert process.returncode == 130
    assert "lives on" not in said
    if "cancelled (after" not in said:
        assert "the cancel of task l was sent, and its end not waited for" in said
        assert "workflow-bridge tasks show l" in said


def test_a_reader_that_left_does_not_make_a_failure_of_a_completed_task(site: Site) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        for args, code in ((["echo", '{"a": 1}'], 0), (["failing"], 1)):
            done = subprocess.run(
                [sys.executable, "-m", "workflow_bridge", "call", *args, "-c", str(site.config)],
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                env=site.env,
                check=False,
                timeout=60,
            )
            assert done.returncode == code, done.stderr
            assert "unexpected" not in done.stderr
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("redirection", "code"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("> /dev/full", 1)]
)
def test_streams_that_are_closed_or_full(site: Site, redirection: str, code: int) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m workflow_bridge call echo {redirection}'],
        capture_output=True,
        text=True,
        env={**site.env, "WORKFLOW_BRIDGE_CONFIG": str(site.config)},
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert "unexpected" not in done.stderr
    assert ("stdout cannot be written: No space left on device" in done.stderr) == (code == 1)


def test_arguments_are_utf_8_whatever_the_locale(site: Site) -> None:
    posix = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "workflow_bridge", "call", "echo", '{"s": "é"}'),
            *("--task-id", "ü", "-c", str(site.config)),
        ],
        capture_output=True,
        env={**site.env, **posix},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"s": "é"}
    assert "task ü" in done.stderr.decode()
