"""Resident memory: with one task, with 100,000 stored, after 100,000 reads."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from bench.filling import fill
from bench.polling import ROWS
from bench.programs import Engine, Program, bridge, bridge_command, engine, load, started, written
from bench.reporting import table
from bench.starting import Pipe

READS = 100_000
AT_ONCE = 32
WARM_UP = 1000


def main(folder: Path) -> None:
    with engine(1) as moto:
        databases = {rows: _filled(folder, moto, rows) for rows in (1, ROWS)}
        rows: list[tuple[object, ...]] = []
        http = READS // 20
        with bridge(folder, databases[1], moto) as program:
            load(url=program.url, requests=WARM_UP)
            few = program.rss_mb
        with bridge(folder, databases[ROWS], moto) as program:
            load(url=program.url, count=ROWS, requests=WARM_UP)
            many = program.rss_mb
            load(url=program.url, count=ROWS, requests=http)
            rows.append((f"HTTP, {http:,} reads", few, many, program.rss_mb))
        few, _ = _over_stdio(folder, databases[1], moto, 1, WARM_UP)
        many, after = _over_stdio(folder, databases[ROWS], moto, ROWS, READS)
        rows.insert(0, (f"stdio, {READS:,} reads", few, many, after))
    spread = [(*row, max(row[1:]) - min(row[1:])) for row in rows]  # type: ignore[type-var, operator]
    table(
        "Resident memory, MB",
        ("", "one task", f"{ROWS:,} stored", "after the reads", "spread"),
        spread,
        f"SQLite; the first two after {WARM_UP:,} reads. Half of the tasks run (the one task too),"
        " so that the engine's SDK is loaded. Goal: within 40 MB.",
    )


def _filled(folder: Path, moto: Engine, rows: int) -> str:
    url = f"sqlite:///{folder / f'memory{rows}.db'}"
    fill(
        url,
        rows=rows,
        running=max(1, rows // 2),
        workflow=moto.workflow,
        fingerprint=moto.fingerprint,
        ref=f"'{moto.refs}1'",
    )
    return url


def _over_stdio(folder: Path, url: str, moto: Engine, rows: int, reads: int) -> tuple[float, float]:
    """Return the memory after `WARM_UP` reads, and after all of them."""
    command = bridge_command(written(folder, url, moto))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(*command, **pipes) as program:
        pipe = Pipe(program.process)
        pipe.shake_hands()
        warm = _read(program, pipe, range(WARM_UP), rows)
        return warm, _read(program, pipe, range(WARM_UP, reads), rows)


def _read(program: Program, pipe: Pipe, numbers: range, rows: int) -> float:
    under_way = 0
    for n in numbers:
        pipe.send({"id": n, "method": "tasks/get", "params": {"taskId": f"t{1 + n * 7919 % rows}"}})
        under_way += 1
        if under_way == AT_ONCE:
            assert "result" in pipe.receive()
            under_way -= 1
    for _ in range(under_way):
        assert "result" in pipe.receive()
    return program.rss_mb
