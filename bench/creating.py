"""Request → `created` over stdio, against the bare commit of the same rows."""

from __future__ import annotations

import sqlite3
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench.postgres import postgres
from bench.programs import Engine, bridge_command, engine, started, written
from bench.reporting import table
from bench.starting import Pipe
from workflow_bridge.store import schema

TASK = "modelcontextprotocol.io/task"
CREATED = "notifications/tasks/created"
PAUSE = 0.03
"""Seconds between two requests, in which the start before is dealt with."""


def main(folder: Path, *, times: int = 150) -> None:
    rows: list[tuple[object, ...]] = []
    with engine(0) as moto, postgres() as server:
        sqlite = f"sqlite:///{folder / 'creating.db'}"
        rows.append(("SQLite, `synchronous=FULL`", *_measure(folder, sqlite, moto, times)))
        rows.append(("PostgreSQL, fsync on", *_measure(folder, server.empty(), moto, times)))
    table(
        "Request → `created`",
        ("database", "commit p50", "p95", "created p50", "p95", "p50 above the commit"),
        rows,
        f"Milliseconds, over stdio; {times} tasks, each created after a bare commit of the same"
        " rows (task, payload, event) into a copy of the database. The engine (moto) starts the"
        " executions meanwhile. Goal: at most 5 above the commit with SQLite.",
    )


def _measure(folder: Path, url: str, moto: Engine, times: int) -> tuple[float, ...]:
    schema.upgrade(url)
    commits: list[float] = []
    created: list[float] = []
    command = bridge_command(written(folder, url, moto))
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with _committer(folder, url) as commit, started(*command, **pipes) as program:
        pipe = Pipe(program.process)
        pipe.shake_hands()
        for n in range(times + 10):
            time.sleep(PAUSE)
            commits.append(_took(commit))
            time.sleep(PAUSE)
            created.append(_took(partial(_create, pipe, f"t{n}")))
    commits, created = sorted(commits[10:]), sorted(created[10:])
    p95 = times * 95 // 100
    above = median(created) - median(commits)
    return median(commits), commits[p95], median(created), created[p95], above


def _took(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _create(pipe: Pipe, task_id: str) -> None:
    params = {
        "name": "run",
        "arguments": {"order_id": task_id},
        "_meta": {TASK: {"taskId": task_id}},
    }
    pipe.send({"id": task_id, "method": "tools/call", "params": params})
    while (message := pipe.receive()).get("method") != CREATED:
        assert "error" not in message, message


_INSERTS = (
    "INSERT INTO tasks (row_id, owner, task_id, dialect, tool, backend, fingerprint, workflow, key,"
    " arguments_digest, inline, status, poll_ms, created_at, updated_at, due_at, attempts, version)"
    " VALUES ('{id}', 'raw', '{id}', 'a', 'run', 'no engine', '', '', 'wb-{id}',"
    " '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', FALSE, 'submitted', 5000,"
    " {now}, {now}, NULL, 0, 1)",
    "INSERT INTO task_payloads (row_id, output) VALUES ('{id}', '{{\"order_id\": \"t1\"}}')",
    "INSERT INTO task_events (row_id, at, owner, task_id, tool, dialect, kind, status)"
    " VALUES ('{id}', {now}, 'raw', '{id}', 'run', 'a', 'created', 'submitted')",
)


@contextmanager
def _committer(folder: Path, url: str) -> Iterator[Callable[[], None]]:
    """Yield what commits one task's rows, with nothing around it."""

    def statements() -> list[str]:
        row_id, now = uuid.uuid4().hex, round(time.time() * 1000)
        return [statement.format(id=row_id, now=now) for statement in _INSERTS]

    if url.startswith("sqlite"):
        copy = folder / "raw.db"
        schema.upgrade(f"sqlite:///{copy}")
        raw = sqlite3.connect(copy, isolation_level=None)
        raw.execute("PRAGMA synchronous = FULL")

        def commit() -> None:
            made = statements()
            raw.execute("BEGIN IMMEDIATE")
            for statement in made:
                raw.execute(statement)
            raw.execute("COMMIT")

        yield commit
        raw.close()
        return
    with psycopg.connect(url, autocommit=True) as session:

        def commit_there() -> None:
            made = statements()
            with session.transaction():
                for statement in made:
                    session.execute(statement.encode())

        yield commit_there
