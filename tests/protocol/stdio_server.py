"""A bridge over a scripted engine on stdio, as a program of its own, for `test_stdio`.

Every execution ends as it starts, with its arguments as output; one whose arguments hold ``hold``
runs on until it is stopped. The last line on stderr says how many were started and stopped.
"""

from __future__ import annotations

import sys

import anyio
import structlog

from tests.protocol.bench import bench
from workflow_bridge.adapter import Execution, Json, Running, Succeeded
from workflow_bridge.protocol.stdio import serve_stdio


def echo(arguments: Json) -> Execution:
    print("stray output of a library")
    if isinstance(arguments, dict) and "hold" in arguments:
        return Running()
    return Succeeded(arguments, None)


async def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    async with bench(behaviours={"run": echo}) as b:
        await serve_stdio(b.server)
        started, stopped = b.engine.called("start"), b.engine.called("stop")
        print(f"served {len(started)} {len(stopped)}", file=sys.stderr)


if __name__ == "__main__":
    anyio.run(main)
