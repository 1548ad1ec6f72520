"""`check`: one table of all that is wrong, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.conftest import Told
from tests.store.postgres_server import running
from workflow_bridge.store import open_store
from workflow_bridge.testing.moto_engine import ACCOUNT, REGION, MotoEngine
from workflow_bridge.testing.store_contract import added

ECHO: dict[str, Any] = {"StartAt": "Say", "States": {"Say": {"Type": "Pass", "End": True}}}
MISSING = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:Missing"

Configured = Callable[..., Path]


@pytest.fixture
def echo(moto: MotoEngine) -> str:
    return moto.create_state_machine("EchoOfCheck", ECHO)


def problems(told: Told, code: int = 1) -> list[dict[str, str]]:
    ended, out, err = told("check", "--json")
    assert (ended, err) == (code, "")
    found: list[dict[str, str]] = json.loads(out)
    assert all(problem["message"] and problem["action"] for problem in found)
    return found


def test_with_everything_in_order_there_are_none(
    configured: Configured, echo: str, told: Told
) -> None:
    file = configured(echo=echo)
    assert told("check") == (0, "", "no problems; tools: 1, backends: 1\n")
    assert problems(told, 0) == []
    assert list(file.parent.iterdir()) == [file]


def test_all_that_is_wrong_with_the_file_is_listed(
    configured: Configured, echo: str, told: Told
) -> None:
    file = configured(echo=echo)
    file.write_text(file.read_text().replace("region", "regoin").replace("sqlite:", "mysql:"))
    code, out, _ = told("check")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 1
    assert rows[0] == ["part", "subject", "problem", "what to do"]
    assert {row[0] for row in rows[1:]} == {"configuration"}
    assert "did you mean 'region'?" in out
    assert "database: must be `sqlite`" in out
    assert len(problems(told)) == len(rows) - 1


def test_a_workflow_that_is_not_there_and_tasks_that_nobody_looks_after(
    configured: Configured, told: Told, echo: str
) -> None:
    file = configured(echo=echo, missing=MISSING)

    async def fill() -> None:
        store = open_store(f"sqlite:///{file.parent}/bridge.db")
        await added(store, "1", backend="orders")
        await added(store, "2", backend="gone")
        await added(store, "3", backend="gone")
        await store.aclose()

    anyio.run(fill)
    tasks, workflow = sorted(problems(told), key=lambda problem: problem["part"], reverse=True)
    assert (tasks["part"], tasks["subject"]) == ("tasks", "gone")
    assert tasks["message"].startswith("2 tasks not over yet")
    assert (workflow["part"], workflow["subject"]) == ("backend orders", MISSING)


def test_a_folder_that_is_missing(configured: Configured, echo: str, told: Told) -> None:
    configured("sqlite:///no/such/bridge.db", echo=echo)
    (problem,) = problems(told)
    assert (problem["part"], problem["message"]) == ("database", "there is no such folder")


def test_a_server_without_the_schema_with_it_and_out_of_reach(
    configured: Configured, echo: str, told: Told
) -> None:
    server = running()
    configured(url := server.empty(), echo=echo)
    (problem,) = problems(told)
    assert problem["action"] == "run: workflow-bridge db upgrade"
    assert told("db", "upgrade")[0] == 0
    assert problems(told, 0) == []
    server.execute("UPDATE alembic_version SET version_num = '9999'", url)
    (problem,) = problems(told)
    assert "newer than this build" in problem["message"]
    configured("postgresql://bridge:s3cret@127.0.0.1:1/bridge", echo=echo)
    (problem,) = problems(told)
    assert "cannot be reached" in problem["message"]
    assert "s3cret" not in str(problem)
