"""The statements: the indexes they walk, in either database."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam
from sqlalchemy.dialects import postgresql

from tests.store.postgres_server import running
from workflow_bridge.store.schema import opened
from workflow_bridge.store.sql import SqlTaskStore
from workflow_bridge.store.sqlite import SqliteDatabase
from workflow_bridge.store.tables import tasks

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = opened(f"sqlite:///{tmp_path}/bridge.db")
    assert isinstance(database, SqliteDatabase)
    yield database
    await database.aclose()


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("by_name", "sqlite_autoindex_tasks_2"),  # of UNIQUE (owner, task_id)
        ("by_row_id", "sqlite_autoindex_tasks_1"),
        ("others_open", "ix_tasks_open"),
        ("due", "ix_tasks_due"),
        ("next_due", "ix_tasks_due"),
        ("jumped", "ix_tasks_awake"),
        ("visible", "ix_tasks_list"),
        ("events", "ix_task_events_row_id"),
        ("unfinished", "ix_tasks_awake"),
    ],
)
async def test_the_hot_queries_walk_an_index_and_sort_nothing(
    database: SqliteDatabase, name: str, index: str
) -> None:
    statement: Any = getattr(SqlTaskStore(database)._sql, name)
    if name == "visible":
        statement = statement.where(tasks.c.owner == bindparam("owner"))

    def plan(connection: Connection) -> str:
        compiled = statement.compile(connection)
        values = tuple(1 for _ in compiled.positiontup)
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", values)
        return " · ".join(row[-1] for row in rows)

    steps = await database.scan(plan)
    assert f"INDEX {index}" in steps
    assert "TEMP B-TREE" not in steps


@pytest.fixture(scope="module")
def filled() -> str:
    return running().filled(20_000)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("by_name", "uq_tasks_owner_task_id"),
        ("by_row_id", "pk_tasks"),
        ("others_open", "ix_tasks_open"),
        ("due", "ix_tasks_due"),
        ("next_due", "ix_tasks_due"),
        ("jumped", "ix_tasks_awake"),
        ("visible", "ix_tasks_list"),
        ("take_free", "pk_tasks"),
        ("events", "ix_task_events_row_id"),
        ("unfinished", "ix_tasks_awake"),
    ],
)
async def test_the_hot_queries_do_so_in_postgresql_by_the_servers_clock(
    filled: str, name: str, index: str
) -> None:
    database = opened(filled)
    statement: Any = getattr(SqlTaskStore(database)._sql, name)
    values = {"at_owner": "owner 1", "at_task_id": "t1", "at_backend": "backend 1", "at_most": 20}
    if name == "visible":
        statement = statement.where(tasks.c.owner == bindparam("at_owner")).limit(51)

    def plan(connection: Connection) -> str:
        compiled = statement.compile(connection)
        given = {key: values.get(key, value or "x") for key, value in compiled.params.items()}
        return "\n".join(connection.exec_driver_sql(f"EXPLAIN {compiled}", given).scalars())

    steps = await database.scan(plan)
    await database.aclose()
    assert re.search(f"(using|on) {index}", steps), steps
    assert "Sort" not in steps
    assert "Seq Scan" not in steps
    if name == "due":
        assert "statement_timestamp" in steps.partition("Index Cond")[2].partition("Filter")[0]


async def test_claims_skip_locked_rows_in_postgresql(database: SqliteDatabase) -> None:
    statements: dict[str, Any] = vars(SqlTaskStore(database)._sql)
    for name, statement in statements.items():
        text = str(statement.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
        assert name.startswith("take") == text.endswith("FOR UPDATE SKIP LOCKED")
