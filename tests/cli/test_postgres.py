"""The commands on a PostgreSQL server."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.cli.conftest import Told
from tests.store.postgres_server import running
from workflow_bridge.store import open_store
from workflow_bridge.testing.store_contract import added


@pytest.fixture
def url() -> str:
    return running().empty()


def test_a_database_is_made_by_nothing_but_the_command_for_it(url: str, told: Told) -> None:
    database = ("--database", url)
    code, out, _ = told("db", "check", *database)
    assert (code, "run: workflow-bridge db upgrade" in out) == (1, True)
    assert told("tasks", "list", "--json", *database) == (0, "[]\n", "")
    assert "no tasks yet" in told("tasks", "show", "x", *database)[2]
    made = running().execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", url)
    assert made == []
    code, out, _ = told("db", "upgrade", "--json", *database)
    assert (code, json.loads(out)["before"]) == (0, None)
    assert told("db", "check", *database)[0] == 0
    assert "was current already" in told("db", "upgrade", *database)[1]


def test_tasks_are_listed_shown_cancelled_and_deleted(told: Told) -> None:
    url = running().database()

    async def fill() -> None:
        store = open_store(url)
        now = store.now()
        await added(store, "runs", owner="local", start_called_at=now, start_settled_at=now)
        await store.aclose()

    anyio.run(fill)
    database = ("--database", url)
    assert [t["task_id"] for t in json.loads(told("tasks", "list", "--json", *database)[1])] == [
        "runs"
    ]
    assert told("tasks", "cancel", "runs", *database)[0] == 0
    code, out, _ = told("tasks", "show", "runs", "--json", *database)
    assert (code, json.loads(out)["stop_requested_at"] is not None) == (0, True)
    running().execute("UPDATE tasks SET status = 'cancelled'", url)
    assert told("tasks", "delete", "runs", *database)[0] == 0
    assert told("tasks", "list", "--json", *database)[1] == "[]\n"


def test_somebody_elses_tables_are_left_alone(url: str, told: Told) -> None:
    running().execute("CREATE TABLE tasks (row_id text)", url)
    code, out, err = told("tasks", "list", "--database", url)
    assert (code, out) == (2, "")
    assert "holds another program's tables" in err


@pytest.mark.parametrize("command", [("tasks", "list"), ("db", "check"), ("db", "upgrade")])
def test_a_server_out_of_reach_is_a_sentence_without_the_password(
    told: Told, command: tuple[str, ...]
) -> None:
    url = "postgresql://bridge:s3cret@127.0.0.1:1/bridge"
    code, out, err = told(*command, "--database", url)
    assert (code, out) == (2, "")
    assert "bridge on 127.0.0.1:1 cannot be used: the server cannot be reached" in err
    assert "s3cret" not in err
