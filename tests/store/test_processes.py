"""Several processes on one database, some of them killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.store.postgres_server import PostgresServer
from workflow_bridge.store import open_store, schema
from workflow_bridge.store.postgres_place import MIGRATION_LOCK
from workflow_bridge.testing.store_contract import added

pytestmark = pytest.mark.anyio
HAMMER = Path(__file__).with_name("hammer.py")


def hammer(url: str, name: str, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(HAMMER), url, name, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def counters(url: str) -> None:
    store = open_store(url)
    for number in range(3):
        await added(store, f"c{number}", owner="counters", due_at=None)
    await store.aclose()


def said(outputs: list[str], what: str) -> list[tuple[object, ...]]:
    # A process that was killed may have left its last line unfinished.
    lines = [json.loads(line) for text in outputs for line in text.split("\n")[:-1]]
    return [tuple(rest) for first, *rest in lines if first == what]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bridge.db"
    return str(request.getfixturevalue("database_url"))


@pytest.mark.case("Q1")
async def test_processes_on_one_database_lose_nothing_and_claim_nothing_twice(url: str) -> None:
    await counters(url)
    names = ("one", "two") if url.startswith("sqlite") else ("one", "two", "three")
    processes = [hammer(url, name, 2) for name in names]
    outputs = []
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert err == ""
        assert process.returncode == 0
        outputs.append(out)
        assert said([out], "inserted")
        assert said([out], "claimed")
        assert said([out], "counted")

    claimed = said(outputs, "claimed")
    # A lease outlasts the test: one claim per row, by whichever process.
    assert len({row_id for row_id, _ in claimed}) == len(claimed)
    counted = Counter(row_id for (row_id,) in said(outputs, "counted"))
    store = open_store(url)
    for row in await store.page("counters", after=None, limit=10):
        assert row.attempts == counted[row.row_id]
    rows = await store.versions([str(row_id) for (row_id,) in said(outputs, "inserted")])
    assert len(rows) == len(said(outputs, "inserted"))
    await store.aclose()


async def test_a_process_killed_while_it_writes_leaves_whole_rows_and_all_it_acknowledged(
    url: str, server: PostgresServer, tmp_path: Path
) -> None:
    await counters(url)
    outputs = []
    for life in range(3):
        process = hammer(url, f"life{life}", 60)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(100 + 37 * life)]
        process.kill()
        rest, err = process.communicate()
        assert err == ""
        outputs.append("".join(lines) + rest)

    store = open_store(url)
    inserted = [str(row_id) for (row_id,) in said(outputs, "inserted")]
    assert len(await store.versions(inserted)) == len(inserted)
    counted = Counter(row_id for (row_id,) in said(outputs, "counted"))
    for row in await store.page("counters", after=None, limit=10):
        assert row.attempts >= counted[row.row_id]
    await store.aclose()

    def count(table: str, other: str) -> list[tuple[Any, ...]]:
        query = f"SELECT count(*) FROM {table} WHERE row_id NOT IN (SELECT row_id FROM {other})"
        return server.execute(query, url) if raw is None else raw.execute(query).fetchall()

    raw = None
    if url.startswith("sqlite"):
        raw = sqlite3.connect(tmp_path / "bridge.db")
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    assert count("tasks", "task_payloads") == [(0,)]
    assert count("tasks", "task_events") == [(0,)]
    assert count("task_events", "tasks") == [(0,)]
    if raw is not None:
        raw.close()


@pytest.mark.case("Q2")
def test_of_processes_that_open_an_empty_file_at_once_one_migrates_and_all_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bridge.db"
    with sqlite3.connect(path, isolation_level=None) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("BEGIN IMMEDIATE")  # lines them up
        processes = [hammer(f"sqlite:///{path}", f"p{n}", 0) for n in range(4)]
        with pytest.raises(subprocess.TimeoutExpired):
            processes[0].wait(timeout=1.5)
        raw.execute("COMMIT")
    raw.close()
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert err == ""
        assert said([out], "done") == [()]


@pytest.mark.case("Q2")
@pytest.mark.parametrize("how", ["open_store(url, migrate=True)", "schema.upgrade(url)"])
def test_of_processes_that_upgrade_one_server_at_once_one_migrates_and_the_others_wait(
    server: PostgresServer, how: str
) -> None:
    url = server.empty()
    code = (
        "import logging, sys\n"
        "from workflow_bridge.store import open_store, schema\n"
        "logging.basicConfig(level='INFO', stream=sys.stdout, format='%(message)s')\n"
        f"url = sys.argv[1]\n{how}\nassert schema.check(url).current\n"
    )
    with server.session(url) as other, other.transaction():  # lines them up
        other.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        processes = [
            subprocess.Popen(
                [sys.executable, "-W", "error::RuntimeWarning", "-c", code, url],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(4)
        ]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        until = time.monotonic() + 60
        while server.execute(waiting) != [(4,)]:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert schema.check(url).revision is None
    upgraded = 0
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        upgraded += out.count("schema_upgraded")
    assert upgraded == 1


@pytest.mark.case("Q2")
def test_a_migration_killed_half_way_leaves_nothing_and_is_done_again(
    server: PostgresServer,
) -> None:
    url = server.empty()
    code = (
        "import os, sys\n"
        "from workflow_bridge.store import schema\n"
        "original = schema._migrate\n"
        "def half(connection):\n"
        "    original(connection)\n"
        "    os._exit(9)\n"
        "schema._migrate = half\n"
        "schema.upgrade(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, url], check=False)
    assert done.returncode == 9
    assert schema.check(url).revision is None
    assert server.execute("SELECT to_regclass('tasks')", url) == [(None,)]
    schema.upgrade(url)
    assert schema.check(url).current
