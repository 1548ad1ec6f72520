"""Programs that are measured, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from workflow_bridge.testing.moto_engine import CREDENTIALS

HERE = Path(__file__).parent
FASTMCP = os.environ.get("BENCH_FASTMCP_PYTHON")
"""The Python of a virtual environment that has `fastmcp-tasks`, if there is one."""
ENVIRONMENT = {**os.environ, **CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True)
class Program:
    """A server under test."""

    process: subprocess.Popen[bytes]
    url: str = ""

    @property
    def rss_mb(self) -> float:
        """Resident memory, in MB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    @property
    def cpu_ms(self) -> float:
        """Processor time so far, of all threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


@contextmanager
def paused(programs: Iterable[Program]) -> Iterator[None]:
    """Stop programs meanwhile: what is measured shall have the machine to itself."""
    processes = [program.process for program in programs]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@contextmanager
def started(*command: object, url: str = "", **popen: Any) -> Iterator[Program]:
    """Run a program until the block is left."""
    process = subprocess.Popen(
        [str(part) for part in command],
        cwd=HERE.parent,
        env=ENVIRONMENT,
        **{"stderr": subprocess.DEVNULL, **popen},
    )
    try:
        yield Program(process, url)
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.terminate()
        process.wait(20)


@contextmanager
def listening(*command: object, path: str = "/mcp") -> Iterator[Program]:
    """Run a server that gets a free port as its last argument, from when it listens."""
    port = free_port()
    with started(*command, port, url=f"http://127.0.0.1:{port}{path}") as program:
        wait_for(port)
        yield program


def bridge_command(config: Path) -> list[object]:
    return [sys.executable, "-m", "workflow_bridge", "serve", "-c", config]


@contextmanager
def bridge(folder: Path, database: str, engine: Engine, **changes: Any) -> Iterator[Program]:
    """Run the bridge over HTTP."""
    port = free_port()
    config = written(folder, database, engine, port=port, **changes)
    with started(*bridge_command(config), url=f"http://127.0.0.1:{port}/mcp") as program:
        wait_for(port)
        yield program


def written(
    folder: Path,
    database: str,
    engine: Engine,
    *,
    port: int | None = None,
    calls: str = "10/s",
    poll: str = "5s",
) -> Path:
    """Write a configuration: everything on, and no limit that the bench itself would meet."""
    server: dict[str, Any] = {"transport": "stdio"}
    if port is not None:
        server = {"transport": "http", "port": port, "isolation": "none", "max_streams": 3000}
    tool = {
        "workflow": engine.workflow,
        "description": "Run it",
        "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}},
        "poll": poll,
    }
    config = {
        "database": database,
        "server": server,
        "limits": {
            "create": "1000/s",
            "poll": "100000/s",
            "concurrent_tasks": 1_000_000,
        },
        "backends": {
            "engine": {
                "adapter": "step-functions",
                "region": "eu-west-1",
                "endpoint_url": engine.url,
                "calls": calls,
                "tools": {"run": tool},
            }
        },
    }
    path = folder / "bridge.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@dataclass(frozen=True)
class Engine:
    """moto in its default mode: what is started runs for ever."""

    url: str
    workflow: str

    @property
    def refs(self) -> str:
        """What the refs of the executions e1, e2, … begin with."""
        return self.workflow.replace(":stateMachine:", ":execution:") + ":e"

    @property
    def fingerprint(self) -> str:
        from workflow_bridge_adapters.step_functions import StepFunctions

        settings = StepFunctions.Settings(region="eu-west-1", endpoint_url=self.url)
        return StepFunctions(settings).fingerprint


@contextmanager
def engine(executions: int) -> Iterator[Engine]:
    """Run an engine that has so many executions running."""
    command = [sys.executable, "-m", "bench.moto", executions]
    with started(*command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as program:
        assert program.process.stdout is not None
        yield Engine(**json.loads(program.process.stdout.readline()))


def load(**order: Any) -> dict[str, float]:
    """Run the load generator."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", json.dumps(order)],
        cwd=HERE.parent,
        check=True,
        stdout=subprocess.PIPE,
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Wait until something listens."""
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
