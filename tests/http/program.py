"""A bridge over a scripted engine and a real database on HTTP, as a program of its own.

Every execution runs on, until SIGUSR1 ends all there are; one whose arguments say ``end`` has ended
as it starts. SIGTERM ends the program as it ends `serve`. SIGUSR2 writes a line to stderr with how
often the engine was asked. The first argument is the database's path, the second HTTP options.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from tests.protocol.bench import ANYTHING
from workflow_bridge.adapter import Execution, Json, Running, Succeeded
from workflow_bridge.cli import journal
from workflow_bridge.core.policy import Tool
from workflow_bridge.core.running import running
from workflow_bridge.http.app import HttpApp
from workflow_bridge.http.options import HttpOptions
from workflow_bridge.http.owner import owner_by
from workflow_bridge.http.serving import open_sockets, serve_http
from workflow_bridge.protocol.limits import Rates
from workflow_bridge.protocol.plain import HandOver
from workflow_bridge.protocol.server import build_server
from workflow_bridge.protocol.tools import ToolSpec
from workflow_bridge.store import open_store
from workflow_bridge.testing.fake_adapter import FakeAdapter

POLL = timedelta(seconds=1)


def begins(arguments: Json) -> Execution:
    ended = isinstance(arguments, dict) and "end" in arguments
    return Succeeded(arguments, None) if ended else Running()


async def main(path: str, **chosen: Any) -> None:
    options = HttpOptions(port=0, drain=0.5, **chosen)
    store = open_store(f"sqlite:///{path}")
    engine = FakeAdapter(clock=lambda: datetime.now(UTC), behaviours={"run": begins})
    tool = Tool(name="run", backend="engine", workflow="run", poll=POLL)
    began = time.monotonic()
    serving = anyio.CancelScope()

    async def listen() -> None:
        numbers = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
        with anyio.open_signal_receiver(*numbers) as signals:
            async for number in signals:
                if number == signal.SIGTERM:
                    serving.cancel()
                    continue
                if number == signal.SIGUSR1:
                    for ref, execution in engine.executions.items():
                        if not execution.has_ended:
                            engine.finish(ref, Succeeded(1, None))
                asked = Counter(call.method for call in engine.calls)
                told = {"event": "told", "asked": asked, "seconds": time.monotonic() - began}
                print(json.dumps(told), file=sys.stderr, flush=True)

    async with (
        running(store, {"engine": engine}, {"run": tool}, calls_per_second={"engine": 1e4}) as made,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listen)
        hand_over = HandOver()
        server = build_server(
            made,
            {"run": ToolSpec(name="run", description="Runs", input_schema=ANYTHING)},
            owner=owner_by("auto"),
            rates=Rates(),
            plain_max_wait=timedelta(seconds=60),
            delete_running=False,
            name="violence",
            version="1",
            hand_over=hand_over,
        )
        app = HttpApp(server, options, ready=store.ready, hand_over=hand_over.begin)
        with serving:
            await serve_http(app, open_sockets(options), options)
        group.cancel_scope.cancel()
    await store.aclose()


if __name__ == "__main__":
    journal.configure("info")
    anyio.run(lambda: main(sys.argv[1], **json.loads(sys.argv[2])))
