"""The migrations lead to exactly what the tables say."""

from __future__ import annotations

import dataclasses
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine

from workflow_bridge.core.task import Task
from workflow_bridge.store import schema
from workflow_bridge.store.tables import metadata, tasks

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("how", ["option", "environment"])
def test_alembics_own_command_works_from_the_root(tmp_path: Path, how: str) -> None:
    url = f"sqlite:///{tmp_path}/bridge.db"
    option = ["-x", f"url={url}"] if how == "option" else []
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


def test_the_columns_are_the_fields_of_a_task() -> None:
    assert tasks.columns.keys() == [field.name for field in dataclasses.fields(Task)]
