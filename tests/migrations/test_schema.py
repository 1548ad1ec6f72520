"""The migrations lead to exactly what the tables say."""

from __future__ import annotations

import dataclasses
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine

from tests.store.postgres_server import PostgresServer, running
from workflow_bridge.core.task import Task
from workflow_bridge.store import schema
from workflow_bridge.store.tables import metadata, tasks

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> PostgresServer:
    return running()


def definitions(path: Path) -> dict[str, list[str]]:
    """Return what defines each table and index, whatever the order and spacing."""
    with sqlite3.connect(path) as raw:
        rows = raw.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
        ).fetchall()
    raw.close()
    return {
        name: sorted(" ".join(line.split()).rstrip(",") for line in re.split(r"\n|(?<=,) ", sql))
        for name, sql in rows
    }


def test_the_revisions_known_to_the_build_are_alembics() -> None:
    script = ScriptDirectory.from_config(schema.alembic_config())
    assert script.get_heads() == [schema.HEAD]
    walked = [revision.revision for revision in script.walk_revisions()]
    assert tuple(reversed(walked)) == schema.REVISIONS


def test_all_migrations_applied_equal_a_fresh_schema(tmp_path: Path) -> None:
    schema.upgrade(f"sqlite:///{tmp_path}/migrated.db")
    engine = create_engine(f"sqlite:///{tmp_path}/fresh.db")
    metadata.create_all(engine)
    engine.dispose()
    fresh = definitions(tmp_path / "fresh.db")
    assert fresh == definitions(tmp_path / "migrated.db")
    assert set(fresh) >= {"tasks", "task_payloads", "task_events", "ix_tasks_due"}


def test_autogenerate_finds_no_drift(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bridge.db"
    schema.upgrade(url)

    def work(connection: Connection) -> None:
        config = schema.alembic_config()
        config.attributes["connection"] = connection
        command.check(config)

    schema.in_transaction(url, work)


def test_a_database_taken_back_to_nothing_is_upgraded_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bridge.db"
    schema.upgrade(url)

    def work(connection: Connection) -> None:
        config = schema.alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    schema.in_transaction(url, work)
    assert definitions(tmp_path / "bridge.db") == {}
    assert schema.upgrade(url).revision is None
    assert schema.check(url).current


@pytest.mark.parametrize("how", ["option", "environment", "option, postgresql"])
def test_alembics_own_command_works_from_the_root(
    tmp_path: Path, server: PostgresServer, how: str
) -> None:
    url = server.empty() if "postgresql" in how else f"sqlite:///{tmp_path}/bridge.db"
    option = ["-x", f"url={url}"] if how != "environment" else []
    env = {**os.environ, "WORKFLOW_BRIDGE_DATABASE": url if how == "environment" else ""}
    for action in (["upgrade", "head"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "alembic", *option, *action],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert schema.check(url).current


def described(server: PostgresServer, url: str) -> list[tuple[object, ...]]:
    """Return what defines each column, index and constraint."""
    found: list[tuple[object, ...]] = []
    for query in (
        "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable,"
        " column_default FROM information_schema.columns WHERE table_schema = 'public'",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
    ):
        found += (row for row in server.execute(query, url) if row[0] != "alembic_version")
    return sorted(found, key=str)


def test_all_migrations_applied_equal_a_fresh_schema_in_postgresql(server: PostgresServer) -> None:
    url = server.empty()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    metadata.create_all(engine)
    engine.dispose()
    fresh = described(server, url)
    migrated = server.empty()
    schema.upgrade(migrated)
    assert fresh == described(server, migrated)
    assert {row[0] for row in fresh} == {"tasks", "task_payloads", "task_events"}


def test_autogenerate_finds_no_drift_in_postgresql_and_nothing_is_left_after_a_downgrade(
    server: PostgresServer,
) -> None:
    url = server.empty()
    schema.upgrade(url)

    def run(what: Callable[[Config], None]) -> None:
        def work(connection: Connection) -> None:
            config = schema.alembic_config()
            config.attributes["connection"] = connection
            what(config)

        schema.in_transaction(url, work)

    run(command.check)
    run(lambda config: command.downgrade(config, "base"))
    assert described(server, url) == []
    assert schema.upgrade(url).revision is None
    assert schema.check(url).current


def test_the_columns_are_the_fields_of_a_task() -> None:
    assert tasks.columns.keys() == [field.name for field in dataclasses.fields(Task)]
