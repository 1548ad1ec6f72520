"""What cannot work is said in one sentence, with exit code 2, and nothing is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from workflow_bridge.cli.running import run
from workflow_bridge.store import schema

YAML = """
database: {database}
backends:
  orders:
    adapter: step-functions
    region: eu-west-1
    tools:
      settle_order:
        workflow: arn:aws:states:eu-west-1:123456789012:stateMachine:SettleOrder
        description: Settle an order
        input_schema: {{type: object}}
        poll: 2s
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "bridge.yaml"
    file.write_text(YAML.format(database=f"sqlite:///{tmp_path / 'bridge.db'}"))
    monkeypatch.setenv("WORKFLOW_BRIDGE_CONFIG", str(file))
    return file


@pytest.fixture
def refused(config: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def refuse(*args: str, code: int = 2) -> str:
        before = set(config.parent.rglob("*"))
        assert run(list(args)) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        assert set(config.parent.rglob("*")) == before
        return err

    return refuse


@pytest.mark.parametrize("args", [["call", "t"], ["tasks", "list"], ["check"], ["config", "check"]])
def test_no_configuration(refused: Callable[..., str], args: list[str]) -> None:
    said = refused(*args, "-c", "nowhere.yaml")
    assert "there is no configuration nowhere.yaml" in said
    assert "--config" in said


def test_yaml_that_is_none(config: Path, refused: Callable[..., str]) -> None:
    config.write_text("database: [\n  backends: {")
    assert "bridge.yaml:" in refused("call", "settle_order")


def test_a_missing_environment_variable_is_named(config: Path, refused: Callable[..., str]) -> None:
    config.write_text(config.read_text().replace("2s", "${POLL_INTERVAL}"))
    assert "POLL_INTERVAL" in refused("tasks", "list")


def test_a_value_from_the_environment_is_never_repeated(
    config: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_POLL", "hunter2")
    config.write_text(config.read_text().replace("2s", "${SECRET_POLL}"))
    assert "hunter2" not in refused("tasks", "list")


def test_everything_that_is_wrong_is_listed_at_once(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(config.read_text().replace("2s", "2").replace("region:", "regoin:"))
    assert run(["config", "check"]) == 2
    out = capsys.readouterr().out.splitlines()
    assert len(out) >= 2
    assert all(line.startswith(f"{config}:") for line in out)


def test_a_folder_that_is_not_there(config: Path, refused: Callable[..., str]) -> None:
    assert "there is no folder" in refused("db", "upgrade", "--database", "sqlite:////no/such/b.db")


def test_a_database_that_is_none_of_ours(tmp_path: Path, refused: Callable[..., str]) -> None:
    diary = tmp_path / "diary"
    diary.write_bytes(b"Dear diary, " * 100)
    assert "no SQLite database" in refused("tasks", "list", "--database", f"sqlite:///{diary}")
    assert diary.read_bytes() == b"Dear diary, " * 100


@pytest.mark.parametrize(("args", "code"), [(["tasks", "list"], 2), (["db", "check"], 1)])
def test_a_database_of_a_newer_build(
    config: Path, refused: Callable[..., str], args: list[str], code: int
) -> None:
    schema.upgrade(f"sqlite:///{config.parent / 'bridge.db'}")
    with sqlite3.connect(config.parent / "bridge.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    assert "newer than this build" in refused(*args, code=code)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object"),
        ("@nowhere.json", "cannot be read from nowhere.json"),
    ],
)
def test_arguments_that_cannot_be_sent(
    refused: Callable[..., str], arguments: str, said: str
) -> None:
    assert said in refused("call", "settle_order", arguments)


def test_a_keep_alive_without_a_unit(refused: Callable[..., str]) -> None:
    assert "--keep-alive" in refused("call", "settle_order", "--keep-alive", "5")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["sreve"], "there is no command 'sreve'"),
        (["tasks", "lits"], "lits"),
        (["tasks", "show"], "TASK_ID"),
        (["serve", "--prot", "1"], "--prot"),
    ],
)
def test_a_command_line_that_is_none(
    refused: Callable[..., str], args: list[str], said: str
) -> None:
    assert said in refused(*args)
