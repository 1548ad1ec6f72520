"""`tasks` and `db`: what people and programs see of the database."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.conftest import Told
from workflow_bridge.adapter import ExecutionRef
from workflow_bridge.cli.output import table
from workflow_bridge.cli.showing import show_task
from workflow_bridge.core import step as steps
from workflow_bridge.core.task import Dialect, OutcomeKind, Payload, Status, Task, new_row_id
from workflow_bridge.store import open_store

REF = ExecutionRef("arn:aws:states:eu-west-1:123456789012:execution:Settle:wb-1")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'bridge.db'}"


@pytest.fixture
def filled(url: str) -> str:
    """A database with a task that runs, one that completed and one that failed."""

    async def fill() -> None:
        store = open_store(url)
        for age, status in enumerate((Status.FAILED, Status.COMPLETED, Status.WORKING)):
            now = store.now() - timedelta(minutes=age)
            row_id = new_row_id()
            task = Task(
                row_id=row_id,
                owner="local",
                task_id=f"is {status}",
                dialect=Dialect.A,
                tool="settle_order",
                backend="orders",
                fingerprint="f",
                workflow="arn:w",
                key=f"wb-{row_id}",
                arguments_digest="0" * 64,
                keep_alive=timedelta(days=1),
                poll_interval=timedelta(seconds=5),
                created_at=now,
                updated_at=now,
                due_at=now,
            )
            await store.insert(task, b"{}")
            bound = replace(
                task, ref=REF, status=Status.WORKING, start_called_at=now, start_settled_at=now
            )
            written = await store.apply(task, bound)
            assert written is not None
            if status is Status.COMPLETED:
                ended = steps.ended(written, status, OutcomeKind.SUCCEEDED, None, now)
                await store.apply(written, ended, payload=Payload(output='{"total":"118.40"}'))
            elif status is Status.FAILED:
                ended = steps.ended(written, status, OutcomeKind.FAILED, "CardDeclined: no", now)
                await store.apply(written, ended, payload=Payload(error="CardDeclined", cause="no"))
        await store.aclose()

    anyio.run(fill)
    return url


def test_the_list_is_a_table_with_the_newest_first(filled: str, told: Told) -> None:
    code, out, _ = told("tasks", "list", "--database", filled)
    lines = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert lines[0] == ["task", "tool", "status", "age", "step or reason"]
    assert [line[0] for line in lines[1:]] == ["is failed", "is completed", "is working"]
    assert lines[1][-1] == "CardDeclined: no"


def test_the_list_can_be_narrowed(filled: str, told: Told) -> None:
    _, out, _ = told("tasks", "list", "--status", "failed", "--json", "--database", filled)
    assert [task["task_id"] for task in json.loads(out)] == ["is failed"]
    _, out, _ = told("tasks", "list", "--owner", "somebody", "--json", "--database", filled)
    assert json.loads(out) == []
    _, out, err = told("tasks", "list", "--limit", "1", "--database", filled)
    assert len(out.splitlines()) == 2
    assert "2 more" in err


def test_without_a_database_there_are_no_tasks_and_none_is_made(url: str, told: Told) -> None:
    assert told("tasks", "list", "--json", "--database", url) == (0, "[]\n", "")
    code, _, err = told("tasks", "show", "x", "--database", url)
    assert (code, "no tasks yet" in err) == (1, True)
    assert not Path(url.removeprefix("sqlite:///")).exists()


def test_a_task_is_shown_with_its_execution_its_error_and_its_events(
    filled: str, told: Told
) -> None:
    code, out, _ = told("tasks", "show", "is failed", "--database", filled)
    assert code == 0
    for word in ("failed", REF, "CardDeclined", "settle_order", "bound", "created"):
        assert word in out
    _, out, _ = told("tasks", "show", "is failed", "--json", "--database", filled)
    shown: dict[str, Any] = json.loads(out)
    assert (shown["error"], shown["cause"]) == ("CardDeclined", "no")
    assert shown["keep_alive_ms"] == 86_400_000
    assert next(event["kind"] for event in shown["events"]) == "created"


@pytest.mark.case("K12")
def test_a_result_is_printed_as_often_as_asked(filled: str, told: Told) -> None:
    for _ in range(2):
        code, out, _ = told("tasks", "show", "is completed", "--result", "--database", filled)
        assert (code, json.loads(out)) == (0, {"total": "118.40"})
    code, out, err = told("tasks", "show", "is working", "--result", "--database", filled)
    assert (code, out) == (1, "")
    assert "it is working" in err


def test_cancelling_records_the_wish_and_says_who_carries_it_out(filled: str, told: Told) -> None:
    code, out, _ = told("tasks", "cancel", "is working", "--database", filled)
    assert (code, "a running bridge does it, or --wait" in out) == (0, True)
    _, out, _ = told("tasks", "show", "is working", "--json", "--database", filled)
    shown = json.loads(out)
    assert shown["stop_requested_at"] is not None
    assert shown["status"] == "working"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["cancel", "is failed"], "is already failed"),
        (["delete", "is working"], "cancel it first"),
        (["show", "nobody's"], "there is no task nobody's"),
        (["delete", "is failed", "--owner", "somebody"], "there is no task"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence(
    filled: str, told: Told, args: list[str], said: str
) -> None:
    code, out, err = told("tasks", *args, "--database", filled)
    assert (code, out) == (1, "")
    assert said in err


def test_a_deleted_task_is_gone(filled: str, told: Told) -> None:
    assert told("tasks", "delete", "is failed", "--database", filled)[0] == 0
    _, out, _ = told("tasks", "list", "--json", "--database", filled)
    assert "is failed" not in out


def test_the_database_is_made_checked_and_current(url: str, told: Told) -> None:
    code, out, _ = told("db", "check", "--database", url)
    assert (code, "not there yet" in out) == (1, True)
    code, out, _ = told("db", "upgrade", "--json", "--database", url)
    assert (code, json.loads(out)["before"]) == (0, None)
    code, out, _ = told("db", "check", "--json", "--database", url)
    assert (code, json.loads(out)["current"]) == (0, True)
    assert "was current already" in told("db", "upgrade", "--database", url)[1]


def test_the_schema_of_the_configuration_is_json(told: Told) -> None:
    code, out, _ = told("config", "schema")
    assert code == 0
    assert json.loads(out)["title"] == "bridge.yaml"


def test_a_reader_that_leaves_early_is_no_error(filled: str) -> None:
    command = [sys.executable, "-m", "workflow_bridge", "tasks", "list", "--database", filled]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_an_id_is_never_broken_over_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = "0b1f6f0c-5d0e-4b52-9d7e-6a3b2c1d0e9f"
    row = (task_id, "settle_the_order_of_a_customer", "cancelled", "12m 30s", "a reason " * 20)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width in (40, 60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        table(("task", "tool", "status", "age", "step or reason"), [row], whole="task")
        out = capsys.readouterr().out
        assert task_id in out, width
        assert "cancelled" in out or width < 80


def test_a_message_that_only_repeats_the_status_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = datetime.now(UTC)
    task = Task(
        row_id=new_row_id(),
        owner="local",
        task_id="t",
        dialect=Dialect.A,
        tool="settle_order",
        backend="orders",
        fingerprint="f",
        workflow="arn:w",
        key="wb-t",
        arguments_digest="0" * 64,
        keep_alive=None,
        poll_interval=timedelta(seconds=5),
        created_at=now,
        updated_at=now,
        due_at=now,
        status=Status.CANCELLED,
        status_message="cancelled",
        final_at=now,
    )
    show_task(task, Payload(), [], None)
    assert "message" not in capsys.readouterr().out
    show_task(replace(task, status_message="by the operator"), Payload(), [], None)
    assert "by the operator" in capsys.readouterr().out
