"""A bridge as an operator has it: a folder with bridge.yaml, a database, the real command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp.client.stdio import StdioServerParameters

from workflow_bridge.client import TaskClient, connect_stdio
from workflow_bridge.testing.moto_engine import CREDENTIALS, REGION, MotoEngine

T = TypeVar("T")

PATIENCE = 40.0
"""Seconds until a condition must have come true: more than any lease lasts."""


async def eventually(
    read: Callable[[], Awaitable[T]], holds: Callable[[T], bool], within: float = PATIENCE
) -> T:
    """Return what is read once it holds; fail if it does not in time."""
    value = await read()
    deadline = anyio.current_time() + within
    while not holds(value):
        assert anyio.current_time() < deadline, f"still {value!r} after {within} s"
        await anyio.sleep(0.05)
        value = await read()
    return value


@dataclass(slots=True)
class Served:
    """A running bridge and a client of it."""

    client: TaskClient
    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Engine:
    """What the engine itself says, whatever the bridge may think."""

    def __init__(self, moto: MotoEngine, machines: Mapping[str, str]) -> None:
        self.moto = moto
        self.machines = machines

    async def executions(self, arn: str) -> dict[str, str]:
        """The executions of a state machine: names and statuses."""
        return await anyio.to_thread.run_sync(self._executions, arn)

    def _executions(self, arn: str) -> dict[str, str]:
        answer = self.moto.step_functions.list_executions(stateMachineArn=arn, maxResults=1000)
        found = answer["executions"]
        names = [one["name"] for one in found]
        assert len(names) == len(set(names))
        return {one["name"]: one["status"] for one in found}


class Site:
    """One folder; any number of bridges and commands may run on it."""

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        migrated: Path,
        *,
        endpoint: str | None = None,
        **keys: Any,
    ) -> None:
        self.folder = folder
        self.engine = engine
        self.config = folder / "bridge.yaml"
        self.database = folder / "bridge.db"
        shutil.copy(migrated, self.database)
        self.log = folder / "log.jsonl"
        tools = {
            name: {
                "workflow": arn,
                "description": f"The state machine {name}",
                "input_schema": {"type": "object"},
                "poll": "200ms",
            }
            for name, arn in engine.machines.items()
        }
        backend = {
            "adapter": "step-functions",
            "region": REGION,
            "endpoint_url": endpoint or engine.moto.url,
            "connect_timeout": "500ms",
            "read_timeout": "1s",
            "start_timeout": "2s",
            "tools": tools,
        }
        text = {"database": f"sqlite:///{self.database}", "backends": {"engine": backend}, **keys}
        self.config.write_text(json.dumps(text), encoding="utf-8")  # JSON is YAML

    @property
    def env(self) -> dict[str, str]:
        nowhere = str(self.folder / "nowhere")
        return {
            **os.environ,
            **CREDENTIALS,
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_COLOR": "1",
        }

    @property
    def serve(self) -> list[str]:
        return [sys.executable, "-m", "workflow_bridge", "serve", "-c", str(self.config)]

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Served]:
        """Start a bridge, connect, and end it by closing its stdin."""
        command, *args = self.serve
        server = StdioServerParameters(command=command, args=args, env=self.env)
        with self.log.open("a", encoding="utf-8") as errlog:
            begun = self.log.stat().st_size
            async with connect_stdio(server, errlog=errlog) as client:
                yield Served(client, self._pid(begun))

    def events(self, name: str) -> list[dict[str, Any]]:
        """What was logged under a name, by all bridges of this site."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["event"] == name]

    def run(
        self, *args: str, stdin: str = "", timeout: float = 60, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the bridge to its end."""
        return subprocess.run(
            [sys.executable, "-m", "workflow_bridge", *args],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.env, "WORKFLOW_BRIDGE_CONFIG": str(self.config), **(env or {})},
            cwd=self.folder,
            timeout=timeout,
            check=False,
        )

    async def command(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The same, without blocking."""
        return await anyio.to_thread.run_sync(lambda: self.run(*args, stdin=stdin))

    async def shown(self, task_id: str) -> dict[str, Any]:
        """What `tasks show` knows of a task."""
        done = await self.command("tasks", "show", task_id, "--json")
        assert done.returncode == 0, done.stderr
        data: dict[str, Any] = json.loads(done.stdout)
        return data

    async def keys(self) -> list[str]:
        """The keys of all tasks: the names that their executions must have."""
        done = await self.command("tasks", "list", "--json")
        assert done.returncode == 0, done.stderr
        return [task["key"] for task in json.loads(done.stdout)]

    def _pid(self, begun: int) -> int:
        for line in self.log.read_bytes()[begun:].splitlines():
            if b'"serving"' in line:
                return int(json.loads(line)["pid"])
        raise AssertionError("no bridge began to serve")
