"""`tasks/get` over HTTP on 100,000 rows, against servers that do less."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import programs
from bench.filling import ROW_MIX, fill
from bench.load import MODERN, Client
from bench.postgres import postgres
from bench.programs import Engine, Program, bridge, engine, load, paused
from bench.reporting import table

ROWS = 100_000
SECONDS = 2.5
ROUNDS = 4
CLIENTS = 16
EXECUTIONS = 100


def main(folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        moto = stack.enter_context(engine(EXECUTIONS))
        postgresql = stack.enter_context(postgres()).empty()
        sqlite = f"sqlite:///{folder / 'polling.db'}"
        for url in (sqlite, postgresql):
            _fill(url, moto)
        bare = stack.enter_context(programs.listening(sys.executable, "-m", "bench.bare_http"))
        ours = stack.enter_context(bridge(folder, sqlite, moto))
        theirs = stack.enter_context(bridge(folder, postgresql, moto))
        stored = {"count": ROWS, "clients": CLIENTS}
        servers = [bare, ours, theirs]
        orders: dict[str, dict[str, Any]] = {
            "bare `mcp` handler, a constant": {"url": bare.url, **stored},
            "bridge, SQLite": {"url": ours.url, **stored},
            "bridge, PostgreSQL": {"url": theirs.url, **stored},
        }
        if programs.FASTMCP:
            peer = stack.enter_context(_fastmcp())
            servers.append(peer)
            ids = asyncio.run(_created(peer.url, 100))
            modern = {"version": MODERN, "clients": CLIENTS}
            orders |= {
                "bare `mcp` handler, at 2026-07-28": {"url": bare.url, **modern},
                "`fastmcp-tasks` 4.1.4, at 2026-07-28": {"url": peer.url, "ids": ids, **modern},
            }

        def measured(order: dict[str, Any]) -> dict[str, float]:
            with paused(server for server in servers if server.url != order["url"]):
                return load(seconds=SECONDS, **order)

        rounds = [{name: measured(order) for name, order in orders.items()} for _ in range(ROUNDS)]
        least = {
            order.get("version"): name for name, order in orders.items() if order["url"] == bare.url
        }
        rows = [
            (
                name,
                median(each[name]["per_second"] for each in rounds),
                median(
                    each[name]["per_second"] / each[least[order.get("version")]]["per_second"]
                    for each in rounds
                ),
                median(each[name]["p50"] for each in rounds),
                median(each[name]["p99"] for each in rounds),
            )
            for name, order in orders.items()
        ]
        table(
            "`tasks/get` over Streamable HTTP",
            ("server", "requests/s", "ratio to bare", "p50 ms", "p99 ms"),
            rows,
            f"{CLIENTS} clients that ask without a pause, each in a session of its own on a"
            f" connection of its own; {ROUNDS} turns of {SECONDS} s each, medians. The bridge has"
            f" {ROWS:,} rows: {ROW_MIX}; any of them is asked for. Each server is one process"
            " behind the same uvicorn, and the others are stopped while it is asked."
            " `fastmcp-tasks` keeps 100 ended tasks in memory. Goal with SQLite: 0.6.",
        )
        with paused(server for server in servers if server is not ours):
            _while_running(ours)


def _while_running(ours: Program) -> None:
    """The first rows are bound to executions of their own: those are asked for, and so followed."""
    rows = []
    for name, order in {
        f"{EXECUTIONS} running": {"own": True, "clients": EXECUTIONS, "every": 1.0},
        f"{EXECUTIONS} running, four times as often": {
            "own": True,
            "clients": EXECUTIONS,
            "every": 0.25,
        },
        "any of the stored": {"count": ROWS, "clients": EXECUTIONS, "every": 1.0},
    }.items():
        measured = load(url=ours.url, seconds=6.0, **order)
        rows.append((name, *(measured[key] for key in ("per_second", "p50", "p95", "p99"))))
    table(
        f"`tasks/get` while {EXECUTIONS} executions run",
        ("asked for", "requests/s", "p50 ms", "p95 ms", "p99 ms"),
        rows,
        f"{EXECUTIONS} clients, SQLite, the rows of above; an answer waits for the engine where the"
        " last look is older than the poll interval (5 s) and the budget (10 calls/s) allows it.",
    )


def _fill(url: str, moto: Engine) -> None:
    fill(
        url,
        rows=ROWS,
        running=ROWS // 2,
        workflow=moto.workflow,
        fingerprint=moto.fingerprint,
        ref=f"'{moto.refs}' || (1 + n % {EXECUTIONS})",
    )


@contextlib.contextmanager
def _fastmcp() -> Iterator[Program]:
    assert programs.FASTMCP
    with programs.listening(programs.FASTMCP, programs.HERE / "fastmcp_http.py") as peer:
        yield peer


async def _created(url: str, tasks: int) -> list[str]:
    """Have `fastmcp-tasks` make tasks; return their ids once they have ended."""
    client = Client(url, MODERN)
    await client.connect()
    ids = [await client.create("echo", {"text": "hello"}) for _ in range(tasks)]
    await asyncio.sleep(2)
    return ids
