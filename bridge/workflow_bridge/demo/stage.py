"""What the demo plays on: an embedded engine, sample workflows, and a bridge to start and kill."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import anyio
from mcp.client.stdio import StdioServerParameters

from workflow_bridge.client import TaskClient, connect_stdio
from workflow_bridge.core.task import Task
from workflow_bridge.store import open_store
from workflow_bridge.testing.moto_engine import CREDENTIALS, REGION, MotoEngine

TOOLS: Final = {
    "greet": ("quick", "Greet somebody", "name"),
    "settle_order": ("slow", "Settle an order and return its invoice", "order_id"),
    "charge_card": ("failing", "Charge a card for an order", "order_id"),
    "count_orders": ("fan_out", "Count the orders of every region", "day"),
    "rebuild_index": ("long", "Rebuild the search index", "index"),
}
"""The demo's tools: the state machine behind each, its description, and its one argument."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution, as the engine itself tells of it."""

    name: str
    status: str


@dataclass(slots=True)
class Bridge:
    """A running bridge and a client connected to it."""

    client: TaskClient
    pid: int

    def kill(self) -> None:
        """End it as a crash would: `kill -9`."""
        os.kill(self.pid, signal.SIGKILL)


class Stage:
    """The engine's state machines and a bridge.yaml that fronts them, in a folder."""

    def __init__(self, engine: MotoEngine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.config = folder / "bridge.yaml"
        self.log = folder / "bridge.log"
        self.machines: dict[str, str] = {}
        self._database = f"sqlite:///{folder / 'bridge.db'}"

    def build(self) -> None:
        """Create the state machines and write bridge.yaml; blocks."""
        for tool, (machine, _, _) in TOOLS.items():
            self.machines[tool] = self.engine.create_state_machine(machine, _definition(machine))
        self.config.write_text(self._yaml(), encoding="utf-8")

    @property
    def server(self) -> StdioServerParameters:
        """How a host starts the bridge."""
        return StdioServerParameters(
            command=sys.executable,
            args=["-m", "workflow_bridge", "serve", "-c", str(self.config)],
            env={**os.environ, **CREDENTIALS},
        )

    @property
    def host_config(self) -> dict[str, Any]:
        """What a host's mcp.json says to reach this bridge."""
        command = Path(sys.executable).with_name("workflow-bridge")
        known = command.exists()
        return {
            "mcpServers": {
                "workflow-bridge": {
                    "command": str(command) if known else sys.executable,
                    "args": [
                        *([] if known else ["-m", "workflow_bridge"]),
                        "serve",
                        "-c",
                        str(self.config),
                    ],
                    "env": CREDENTIALS,
                }
            }
        }

    @asynccontextmanager
    async def bridge(self) -> AsyncIterator[Bridge]:
        """Start a bridge and connect to it; on leaving it is ended, if it still runs."""
        with self.log.open("a", encoding="utf-8") as errlog:
            begun = self.log.stat().st_size
            async with connect_stdio(self.server, errlog=errlog, name="demo") as client:
                yield Bridge(client, self._pid(begun))

    async def executions(self, tool: str) -> list[Execution]:
        """Ask the engine, not the bridge, which executions a tool's state machine has had."""
        return await anyio.to_thread.run_sync(self._executions, tool)

    async def task(self, task_id: str) -> Task:
        """Read a task's row from the database."""
        store = await anyio.to_thread.run_sync(open_store, self._database)
        try:
            task = await store.get("local", task_id)
        finally:
            await store.aclose()
        if task is None:
            raise LookupError(f"no row for task {task_id}")
        return task

    def _executions(self, tool: str) -> list[Execution]:
        client = self.engine.client("stepfunctions")
        try:
            pages = client.get_paginator("list_executions").paginate(
                stateMachineArn=self.machines[tool]
            )
            return [
                Execution(found["name"], found["status"])
                for page in pages
                for found in page["executions"]
            ]
        finally:
            client.close()

    def _pid(self, begun: int) -> int:
        """Read the bridge's process id from what it logged when it began to serve."""
        for line in self.log.read_bytes()[begun:].splitlines():
            if b'"serving"' in line:
                return int(json.loads(line)["pid"])
        raise LookupError(f"the bridge did not begin to serve; see {self.log}")

    def _yaml(self) -> str:
        lines = [
            f"database: {self._database}",
            "backends:",
            "  embedded:",
            "    adapter: step-functions",
            f"    region: {REGION}",
            f"    endpoint_url: {self.engine.url}   # the emulator; leave this out for AWS",
            "    tools:",
        ]
        for tool, (_, description, argument) in TOOLS.items():
            lines += [
                f"      {tool}:",
                f"        workflow: {self.machines[tool]}",
                f"        description: {description}",
                "        input_schema:",
                "          type: object",
                f"          properties: {{{argument}: {{type: string}}}}",
                f"          required: [{argument}]",
                "        poll: 500ms",
            ]
        return "\n".join(lines) + "\n"


def _definition(machine: str) -> Mapping[str, Any]:
    file = resources.files("workflow_bridge.demo") / "machines" / f"{machine}.json"
    definition: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return definition
