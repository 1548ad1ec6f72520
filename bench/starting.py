"""Spawn → first answer to `tools/list` over stdio, against the least `mcp` server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.programs import HERE, Engine, bridge_command, started, written
from bench.reporting import table
from workflow_bridge.store import schema

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Pipe:
    """An MCP client on a program's stdin and stdout."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def shake_hands(self) -> None:
        self.ask("initialize", HELLO)
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._in.flush()

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._out.readline())
        return message

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the next answer; notifications before it are passed over."""
        self.send({"id": method, "method": method, "params": params})
        while (message := self.receive()).get("id") != method:
            pass
        return message


def spawn(*command: object) -> tuple[float, float]:
    """Return wall and processor time, in milliseconds."""
    began = time.perf_counter()
    with started(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        pipe = Pipe(program.process)
        pipe.shake_hands()
        assert pipe.ask("tools/list", {})["result"]["tools"]
        return (time.perf_counter() - began) * 1000, program.cpu_ms


def main(folder: Path, *, rounds: int = 10) -> None:
    database = f"sqlite:///{folder / 'starting.db'}"
    schema.upgrade(database)
    workflow = "arn:aws:states:eu-west-1:123456789012:stateMachine:Run"
    nowhere = Engine("http://127.0.0.1:1", workflow)
    bare = [sys.executable, HERE / "bare_stdio.py"]
    ours = bridge_command(written(folder, database, nowhere))
    spawn(*bare)
    spawn(*ours)
    measured = [(spawn(*bare), spawn(*ours)) for _ in range(rounds)]
    rows = []
    for name, of in (("wall", 0), ("processor", 1)):
        ratio = median(b[of] / a[of] for a, b in measured)
        bare_ms, ours_ms = (median(pair[n][of] for pair in measured) for n in (0, 1))
        rows.append((f"{name} time, ms", bare_ms, ours_ms, ratio))
    table(
        "Spawn → first `tools/list`",
        ("median", "bare server", "bridge", "ratio"),
        rows,
        f"stdio, database open and current, one tool; {rounds} times each, in turns. Goal: 1.5.",
    )
