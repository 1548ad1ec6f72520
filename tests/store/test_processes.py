"""Several processes on one SQLite file, some of them killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from workflow_bridge.store import open_store
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


@pytest.mark.case("Q1")
async def test_processes_on_one_file_lose_nothing_and_claim_nothing_twice(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bridge.db"
    await counters(url)
    processes = [hammer(url, name, 2) for name in ("one", "two")]
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
    tmp_path: Path,
) -> None:
    path = tmp_path / "bridge.db"
    url = f"sqlite:///{path}"
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
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        missing = "SELECT count(*) FROM tasks WHERE row_id NOT IN (SELECT row_id FROM {})"
        for table in ("task_payloads", "task_events"):
            assert raw.execute(missing.format(table)).fetchone() == (0,)
        orphans = "SELECT count(*) FROM task_events WHERE row_id NOT IN (SELECT row_id FROM tasks)"
        assert raw.execute(orphans).fetchone() == (0,)
    raw.close()


@pytest.mark.case("Q2")
def test_of_processes_that_open_an_empty_database_at_once_one_migrates_and_all_open(
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
