"""Three replicas as an operator runs them: one database, one engine, the real command."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from tests.end_to_end.conftest import MACHINES
from tests.store.postgres_server import running
from workflow_bridge.testing.fault_proxy import FaultProxy
from workflow_bridge.testing.moto_engine import CREDENTIALS, REGION, MotoEngine

REPLICAS: Final = 3
PATIENCE: Final = 50.0
"""Longer than any lease lasts: whoever held it may be dead."""

_numbers = itertools.count(1)


@dataclass
class Replica:
    """One process; killed for good, or begun again on the port that it had."""

    config: Path
    log: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def listens(self) -> None:
        """Wait until it says where it listens."""
        deadline = time.monotonic() + PATIENCE
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            for line in self.log.read_text().split("\n")[:-1]:
                if (said := json.loads(line))["event"] == "listening":
                    self.port = int(said["url"].removesuffix("/mcp").rpartition(":")[2])
                    return
            time.sleep(0.02)

    def count(self, folder: str) -> int:
        """Return how many threads (``task``) or open files (``fd``) it has."""
        return len(os.listdir(f"/proc/{self.process.pid}/{folder}"))  # noqa: PTH208


@dataclass
class Fleet:
    """The replicas, what they share, and what to look at behind them."""

    replicas: list[Replica]
    machines: dict[str, str]
    moto: Any
    """A client of the engine itself."""
    calls: FaultProxy
    database: str

    @property
    def ports(self) -> list[int]:
        return [replica.port for replica in self.replicas]

    async def executions(self, tool: str) -> list[str]:
        """Return the statuses of all executions that a tool has begun, as the engine has them."""
        found = await anyio.to_thread.run_sync(
            lambda: self.moto.list_executions(stateMachineArn=self.machines[tool], maxResults=1000)[
                "executions"
            ]
        )
        assert len({one["name"] for one in found}) == len(found)
        return [one["status"] for one in found]

    def connections(self) -> int:
        """Return how many connections the database has from all of them."""
        ((count,),) = running().execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'workflow-bridge'",
            self.database,
        )
        return int(count)


def _begun(folder: Path, name: str, config: Path, env: dict[str, str]) -> Replica:
    log = folder / f"{name}.jsonl"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "workflow_bridge", "serve", "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=env,
        )
    return Replica(config, log, env, process)


@pytest.fixture(scope="module")
def fleet_of(
    moto: MotoEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Fleet]]:
    """Make fleets, each with a database and state machines of its own."""
    with ExitStack() as stack:
        client = moto.client("stepfunctions")
        stack.callback(client.close)

        def make(*, poll: str = "200ms", **server: Any) -> Fleet:
            folder = tmp_path_factory.mktemp("fleet")
            number = next(_numbers)
            machines = {
                name: moto.create_state_machine(f"{name}-of-fleet-{number}", MACHINES[name])
                for name in ("echo", "slow", "long")
            }
            calls = stack.enter_context(FaultProxy(moto.url))
            database = running().database()
            config = folder / "bridge.yaml"
            text = _configuration(machines, calls.url, database, poll, server)
            config.write_text(json.dumps(text))
            env = {**os.environ, **CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}
            env |= dict.fromkeys(
                ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(folder / "nowhere")
            )
            replicas = [_begun(folder, f"replica-{n}", config, env) for n in range(REPLICAS)]
            for replica in replicas:
                stack.callback(replica.kill)
            for replica in replicas:
                replica.listens()
            return Fleet(replicas, machines, client, calls, database)

        yield make


def _configuration(
    machines: dict[str, str], endpoint: str, database: str, poll: str, server: dict[str, Any]
) -> dict[str, Any]:
    tools = {
        name: {
            "workflow": arn,
            "description": f"The state machine {name}",
            "input_schema": {"type": "object"},
            "poll": poll,
        }
        for name, arn in machines.items()
    }
    backend = {
        "adapter": "step-functions",
        "region": REGION,
        "endpoint_url": endpoint,
        "calls": "1000/s",
        "connect_timeout": "1s",
        "read_timeout": "3s",
        "start_timeout": "5s",
        "tools": tools,
    }
    return {
        "database": database,
        "server": {
            "transport": "http",
            "port": 0,
            "isolation": "none",
            "sessions": "stateless",
            **server,
        },
        "limits": {
            "create": "1000/s",
            "poll": "1000/s",
            "result": "1000/s",
            "list": "1000/s",
            "concurrent_tasks": 1000,
        },
        "backends": {"engine": backend},
    }


@pytest.fixture(scope="module")
def fleet(fleet_of: Callable[..., Fleet]) -> Fleet:
    return fleet_of()
