"""`workflow-bridge call`: a client for people and for scripts."""

from __future__ import annotations

import json
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
    assert "cancelled" in said or "workflow-bridge tasks show l" in said
