"""1,000 running executions, each polled every second: what the engine and the clients get."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.filling import fill
from bench.programs import bridge, engine, listening, load
from bench.reporting import table

TASKS = 1000
CALLS = 20
"""The budget, in engine calls per second."""
SECONDS = 20.0
SETTLING = 5
"""Seconds that are not counted."""


def main(folder: Path) -> None:
    database = folder / "crowd.db"
    cycle = TASKS / CALLS
    with engine(TASKS) as moto:
        fill(
            f"sqlite:///{database}",
            rows=TASKS,
            running=TASKS,
            workflow=moto.workflow,
            fingerprint=moto.fingerprint,
            ref=f"'{moto.refs}' || n",
            seen_within_ms=round(cycle * 1000),
            due_within_ms=round(cycle * 1000),
        )
        crowd: dict[str, Any] = {"own": True, "clients": TASKS, "every": 1.0}
        with listening(sys.executable, "-m", "bench.bare_http") as bare:
            least = load(url=bare.url, seconds=SECONDS / 2, **crowd)
        with bridge(folder, f"sqlite:///{database}", moto, calls=f"{CALLS}/s") as ours:
            watch = _Watch(database)
            watch.start()
            polled = load(url=ours.url, seconds=SECONDS, **crowd)
            watch.stop()
    ages = sorted(watch.ages)
    rows = [
        ("polls offered, per second", float(TASKS)),
        ("polls answered, per second", polled["per_second"]),
        ("of a bare server that answers a constant", least["per_second"]),
        ("answer p50, ms", polled["p50"]),
        ("of a bare server", least["p50"]),
        ("answer p99, ms", polled["p99"]),
        ("of a bare server", least["p99"]),
        ("budget, engine reads per second", float(CALLS)),
        ("engine reads per second", watch.reads / watch.seconds),
        ("last look p50, seconds ago", ages[len(ages) // 2]),
        ("last look p95, seconds ago", ages[len(ages) * 95 // 100]),
        ("as p95 in strict turns it would be", 0.95 * cycle),
    ]
    table(
        f"{TASKS:,} running executions polled by {TASKS:,} clients every second",
        ("", "measured"),
        rows,
        "SQLite, moto in its default mode (executions stay running), one client per task with a"
        " session of its own, poll interval 5 s. Reads and ages as the database shows them each"
        " second.",
    )


class _Watch(threading.Thread):
    """Reads once a second when each task was last looked at."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self._database = database
        self._ended = threading.Event()
        self.reads = 0
        self.seconds = 0.0
        self.ages: list[float] = []

    def run(self) -> None:
        connection = sqlite3.connect(self._database)
        query = "SELECT row_id, last_observed_at FROM tasks"
        self._ended.wait(SETTLING)
        before, began = dict(connection.execute(query)), time.time()
        while not self._ended.wait(1):
            now, seen = time.time(), dict(connection.execute(query))
            self.reads += sum(1 for row, at in seen.items() if at != before[row])
            self.seconds = now - began
            self.ages += (now - at / 1000 for at in seen.values())
            before = seen
        connection.close()

    def stop(self) -> None:
        self._ended.set()
        self.join()
