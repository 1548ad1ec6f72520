"""`workflow-bridge call` with a bridge that listens, through everything that happens to it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import anyio
import pytest

from tests.end_to_end.site import Site, eventually
from tests.end_to_end.test_http import Running, running


@pytest.fixture
def over(another_site: Callable[..., Site]) -> Callable[..., Site]:
    """Make a site that serves HTTP on a port that is known before it does."""

    def make(**server: Any) -> Site:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        return another_site("http", server={"transport": "http", "port": port, **server})

    return make


@contextmanager
def calling(site: Site, *args: str) -> Iterator[subprocess.Popen[str]]:
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


def until_said(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in iter(process.stderr.readline, ""):
        if words in line:
            return
    raise AssertionError(f"it ended without saying {words!r}")


async def ends(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await anyio.to_thread.run_sync(lambda: process.communicate(timeout=60))
    return process.returncode, out, err


@pytest.mark.req("A-4", "A-40")
def test_a_bridge_that_listens_is_called_by_its_configuration_or_by_its_url(
    over: Callable[..., Site],
) -> None:
    with running(over()) as bridge:
        done = bridge.site.run("call", "slow", '{"order": "é"}', "--task-id", "mine")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"order": "é"}
        said = done.stderr.splitlines()
        assert said[0] == "task mine"
        assert any("working · First" in line for line in said)
        assert said[-1].startswith("completed in ")
        by_url = ("call", "--url", bridge.base, "-c", "nowhere.yaml")
        done = bridge.site.run(*by_url, "echo", '{"n": 1}', "--json", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["structuredContent"] == {"n": 1}
        done = bridge.site.run(*by_url, "failing")
        assert (done.returncode, done.stdout) == (1, "")
        assert "failed: Order.Closed: closed since May" in done.stderr
        done = bridge.site.run(*by_url, "slow", "--detach")
        assert done.returncode == 0
        assert "workflow-bridge tasks list, on the bridge's machine" in done.stderr
        assert len(bridge.site.events("serving")) == 1


@pytest.mark.anyio
@pytest.mark.case("K6")
@pytest.mark.req("A-21")
@pytest.mark.parametrize("keys", [{}, {"isolation": "none", "sessions": "stateless"}])
async def test_ctrl_c_cancels_and_waits_for_the_engine(
    over: Callable[..., Site], keys: dict[str, str]
) -> None:
    with running(over(**keys)) as bridge:
        machine = bridge.site.engine.machines["long"]
        with calling(bridge.site, "long", "--task-id", "l") as process:
            until_said(process, "task l")
            await eventually(
                lambda: bridge.site.engine.executions(machine), lambda found: len(found) == 1
            )
            process.send_signal(signal.SIGINT)
            code, _, said = await ends(process)
        assert (code, "cancelled" in said) == (130, True)
        await eventually(
            lambda: bridge.site.engine.executions(machine),
            lambda found: list(found.values()) == ["ABORTED"],
        )


async def _killed_and_back(site: Site, process: subprocess.Popen[str], first: Running) -> None:
    until_said(process, "working")
    first.end(signal.SIGKILL)
    until_said(process, "connection lost; task mine goes on")


@pytest.mark.anyio
@pytest.mark.req("A-22")
async def test_a_bridge_that_is_killed_and_comes_back_is_asked_again(
    over: Callable[..., Site],
) -> None:
    site = over(isolation="none", sessions="stateless")
    with calling_on(site, "slow") as (process, first):
        await _killed_and_back(site, process, first)
        with running(site):
            code, out, said = await ends(process)
    assert (code, json.loads(out)) == (0, {"order": 1}), said
    executions = await site.engine.executions(site.engine.machines["slow"])
    assert list(executions.values()) == ["SUCCEEDED"]


@pytest.mark.anyio
async def test_a_task_that_was_its_sessions_is_said_to_be_out_of_sight(
    over: Callable[..., Site],
) -> None:
    site = over(isolation="session")
    with calling_on(site, "slow") as (process, first):
        await _killed_and_back(site, process, first)
        with running(site):
            code, out, said = await ends(process)
    assert (code, out) == (1, "")
    _, found, command = said.partition("workflow-bridge tasks show ")
    assert found
    shown = site.run("tasks", "show", *command.split(), "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["tool"] == "slow"


@contextmanager
def calling_on(site: Site, tool: str) -> Iterator[tuple[subprocess.Popen[str], Running]]:
    with (
        running(site) as bridge,
        calling(site, tool, '{"order": 1}', "--task-id", "mine") as process,
    ):
        yield process, bridge


def test_nobody_there(over: Callable[..., Site]) -> None:
    site = over()
    done = site.run("call", "echo")
    assert (done.returncode, done.stdout) == (1, "")
    assert "http://127.0.0.1:" in done.stderr
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


class _Gate(BaseHTTPRequestHandler):
    seen: list[tuple[str | None, str | None]]

    def do_POST(self) -> None:
        self.seen.append((self.headers["authorization"], self.headers["x-api-key"]))
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_secrets_come_from_the_environment_and_a_refusal_is_named(site: Site) -> None:
    asked: list[tuple[str | None, str | None]] = []

    class Gate(_Gate):
        seen = asked

    with ThreadingHTTPServer(("127.0.0.1", 0), Gate) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        env = {"TOKEN": "s3cret", "KEY": "0ther"}
        options = ("--token-env", "TOKEN", "--header-env", "X-Api-Key=KEY")
        done = site.run("call", "echo", "--url", url, *options, env=env)
        server.shutdown()
    assert asked[0] == ("Bearer s3cret", "0ther")
    assert done.returncode == 1
    assert "does not let us in (HTTP 401)" in done.stderr
    assert "s3cret" not in done.stderr
    assert "0ther" not in done.stderr
