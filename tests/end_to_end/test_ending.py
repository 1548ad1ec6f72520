"""How `serve` ends: no new work, leases released, exit code 0."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from tests.end_to_end.site import Site, eventually
from workflow_bridge.config import RESERVED_TOOLS

HELLO: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


@contextmanager
def _raw(site: Site, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A bridge whose pipes we hold ourselves, initialized."""
    with subprocess.Popen(
        site.serve,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=site.env,
        **more,
    ) as process:
        try:
            for frame in HELLO:
                _send(process, frame)
            assert "result" in _answer(process)
            yield process
        finally:
            process.kill()


def _send(process: subprocess.Popen[bytes], frame: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(frame).encode() + b"\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def _log(process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    assert process.stderr is not None
    return [json.loads(line) for line in process.stderr.read().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_zero_while_stdin_is_still_open(
    site: Site, number: signal.Signals
) -> None:
    with _raw(site) as process:
        process.send_signal(number)
        assert process.wait(10) == 0
        log = _log(process)
    assert [line["event"] for line in log] == ["serving", "ended"]
    assert log[-1]["by"] == number.name


def test_the_end_of_stdin_ends_it_with_zero(site: Site) -> None:
    with _raw(site) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
        last = _log(process)[-1]
    assert (last["event"], last["by"]) == ("ended", "client")


def test_a_client_that_stops_reading_ends_it(site: Site) -> None:
    with _raw(site) as process:
        assert process.stdout is not None
        process.stdout.close()
        _send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
        assert process.wait(10) == 0


def test_stdout_carries_nothing_but_the_protocol_and_stderr_nothing_but_json(site: Site) -> None:
    with _raw(site) as process:
        _send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
        tools = _answer(process)["result"]["tools"]
        assert {tool["name"] for tool in tools} == {*site.engine.machines, *RESERVED_TOOLS}
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        assert process.stdout is not None
        assert process.stdout.read() == b""
        assert all("timestamp" in line for line in _log(process))


@pytest.mark.anyio
async def test_ended_in_the_middle_of_work_it_leaves_no_lease_behind(site: Site) -> None:
    machine = site.engine.machines["slow"]
    async with site.served() as bridge:
        for number in range(4):
            await bridge.client.start("slow", {}, task_id=f"t{number}")
    listed = json.loads((await site.command("tasks", "list", "--json")).stdout)
    assert [task["lease_until"] for task in listed] == [None] * 4
    assert all(task["ref"] for task in listed)
    assert len(await site.engine.executions(machine)) == 4
    async with site.served() as bridge:
        with anyio.fail_after(10):
            for number in range(4):
                assert (await bridge.client.wait(f"t{number}")).status == "completed"
    await eventually(lambda: site.engine.executions(machine), lambda found: len(found) == 4)
