"""What a right configuration becomes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest
from sqlalchemy.engine import make_url

from tests.config.adapters import Plain, PlainSettings, kinds
from tests.config.conftest import Load
from workflow_bridge.config import Database, Pool, open_adapters

SMALLEST = """
    backends:
      orders:
        adapter: plain
        region: eu-west-1
        tools:
          settle:
            workflow: flow:settle
            description: Settle an order
            input_schema: {type: object}
"""

FULL = """
    database: sqlite:///state/bridge.db
    server:
      transport: http
      host: "::"
      port: 9090
      isolation: none
      allowed_hosts: [bridge.example.com, "10.0.0.7:9090"]
      allowed_origins: ["https://app.example.com"]
      max_body: 1MiB
      max_streams: 50
      max_session_streams: 5
      max_sessions: 10
      session_idle: 5m
      dialects: [a]
      plain_call: {max_wait: 1m}
    limits:
      create: 600/min
      poll: 100/s
      result: 2.5/s
      list: 60/h
      concurrent_tasks: 7
      keep_alive: {default: 2h, min: 30s, max: 7d}
    retention: {tombstone: 12h, events: 90d}
    delete: {running: cancel}
    backends:
      orders:
        adapter: plain-inline
        calls: 5/s
        region: eu-west-1
        retries: {attempts: 3}
        tools:
          settle:
            workflow: flow:settle
            title: Settle
            description: Settle an order
            input_schema: {type: object, properties: {order: {type: string}}, required: [order]}
            output_schema: {type: object}
            task: required
            mode: inline
            poll: 250ms
            keep_alive: 1.5h
            on_failure: tool_error
            expose_cause: false
            idempotent: true
            max_text: 1MiB
            start_within: 5m
            missing_after: 2h
"""


def test_the_defaults_are_the_documented_ones(read: Load) -> None:
    config = read(SMALLEST)
    assert config.server.model_dump() == {
        "transport": "stdio",
        "host": "127.0.0.1",
        "port": 8080,
        "isolation": "auto",
        "allowed_hosts": (),
        "allowed_origins": (),
        "max_body": "4MB",
        "max_streams": 1000,
        "max_session_streams": 200,
        "max_sessions": 2000,
        "session_idle": "30m",
        "dialects": ("a",),
        "sessions": "stateful",
        "plain_call": {"max_wait": "45s", "facade": True},
    }
    assert config.limits.model_dump() == {
        "create": "10/s",
        "poll": "50/s",
        "result": "50/s",
        "list": "10/s",
        "concurrent_tasks": 100,
        "keep_alive": {"default": "1d", "min": "1m", "max": "30d"},
    }
    assert config.retention.model_dump() == {"tombstone": "1d", "events": "30d"}
    assert config.delete.running == "refuse"
    assert config.backends["orders"].calls == 10.0
    tool = config.tools["settle"]
    assert (tool.name, tool.backend, tool.workflow) == ("settle", "orders", "flow:settle")
    assert (tool.title, tool.output_schema, tool.keep_alive) == (None, None, None)
    assert (tool.task, tool.inline, tool.on_failure) == ("optional", False, "failed")
    assert (tool.expose_cause, tool.idempotent, tool.max_text) == (True, False, 100_000)
    assert (tool.poll, tool.start_within) == (timedelta(seconds=5), timedelta(minutes=15))
    assert tool.missing_after == timedelta(hours=1)


def test_every_key_arrives(read: Load, tmp_path: Path) -> None:
    config = read(FULL)
    assert make_url(config.database.url).database == str(tmp_path / "state/bridge.db")
    assert (config.server.transport, config.server.host) == ("http", "::")
    assert (config.server.port, config.server.isolation) == (9090, "none")
    assert config.server.allowed_hosts == ("bridge.example.com", "10.0.0.7:9090")
    assert config.server.allowed_origins == ("https://app.example.com",)
    assert (config.server.max_body, config.server.max_streams) == (2**20, 50)
    assert (config.server.max_session_streams, config.server.max_sessions) == (5, 10)
    assert config.server.session_idle == timedelta(minutes=5)
    assert config.server.plain_call.max_wait == timedelta(minutes=1)
    assert config.limits.create == 10.0
    assert config.limits.result == 2.5
    assert config.limits.list == pytest.approx(1 / 60)
    assert config.limits.concurrent_tasks == 7
    assert config.limits.keep_alive.max == timedelta(days=7)
    assert config.retention.events == timedelta(days=90)
    assert config.delete.running == "cancel"
    backend = config.backends["orders"]
    assert (backend.name, backend.adapter, backend.calls) == ("orders", "plain-inline", 5.0)
    assert isinstance(backend.settings, PlainSettings)
    assert backend.settings.retries.attempts == 3
    tool = config.tools["settle"]
    assert (tool.title, tool.task, tool.inline) == ("Settle", "required", True)
    assert tool.input_schema["required"] == ["order"]
    assert tool.output_schema == {"type": "object"}
    assert (tool.poll, tool.keep_alive) == (timedelta(milliseconds=250), timedelta(minutes=90))
    assert (tool.on_failure, tool.expose_cause, tool.idempotent) == ("tool_error", False, True)
    assert (tool.max_text, tool.start_within) == (1_048_576, timedelta(minutes=5))
    assert tool.missing_after == timedelta(hours=2)


def test_adapters_are_made_from_their_own_keys(read: Load) -> None:
    adapters = open_adapters(read(SMALLEST), kinds=kinds())
    adapter = adapters["orders"]
    assert isinstance(adapter, Plain)
    assert adapter.settings.region == "eu-west-1"


def test_sqlite_alone_is_left_to_the_store(read: Load) -> None:
    assert read(SMALLEST).database.url == "sqlite"
    assert read(f"database: sqlite\n{dedent(SMALLEST)}").database.url == "sqlite"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("sqlite:///bridge.db", "{folder}/bridge.db"),
        ("sqlite:///a b/é.db", "{folder}/a b/é.db"),
        ("sqlite:////var/lib/bridge.db", "/var/lib/bridge.db"),
        ("sqlite:///${STATE}/bridge.db", "/state/bridge.db"),
    ],
)
def test_a_database_path_is_relative_to_the_file(
    read: Load, tmp_path: Path, text: str, file: str
) -> None:
    config = read(f"database: {text}\n{dedent(SMALLEST)}", {"STATE": "/state"})
    assert make_url(config.database.url).database == file.format(folder=tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bridge:${PASSWORD}@db.internal:6432/bridge?sslmode=require",
        "postgresql+psycopg://bridge@[::1]/bridge",
        "postgres:///bridge",
        "postgresql://u@/bridge?host=%2Fvar%2Frun%2Fpostgresql",
        "postgresql://u@/bridge?host=/var/run/postgresql",
    ],
)
def test_a_server_is_named_as_it_is_with_or_without_a_pool(read: Load, url: str) -> None:
    env = {"PASSWORD": "hunter2"}
    expected = url.replace("${PASSWORD}", "hunter2")
    plain = read(f"database: {url}\n{dedent(SMALLEST)}", env).database
    assert (plain.url, plain.pool) == (expected, Pool())
    keys = f"{{url: '{url}', pool: {{size: 20, idle: 1m}}}}"
    pooled = read(f"database: {keys}\n{dedent(SMALLEST)}", env).database
    assert pooled == Database(url=expected, pool=Pool(size=20, idle=timedelta(minutes=1)))
    assert "hunter2" not in repr(plain)


def test_secrets_are_not_in_the_text_of_a_configuration(read: Load) -> None:
    text = dedent(SMALLEST).replace("region:", "secret: ${SECRET}\n    region:")
    config = read(text, {"SECRET": "hunter2-hunter2"})
    settings = config.backends["orders"].settings
    assert isinstance(settings, PlainSettings)
    assert settings.secret == "hunter2-hunter2"
    assert "hunter2" not in f"{config!r} {config}"


class TestEnvironment:
    def test_variables_are_put_in_and_may_have_defaults(self, read: Load) -> None:
        text = SMALLEST.replace("Settle an order", "'${A}-${B:-b}-${C:-c}-${D:-}-$${A}-$A'")
        config = read(text, {"A": "a", "C": ""})
        assert config.tools["settle"].description == "a-b-c--${A}-$A"

    def test_a_value_cannot_bring_yaml_with_it(self, read: Load) -> None:
        value = "x\n            expose_cause: false # {a: [b"
        config = read(SMALLEST.replace("Settle an order", "${A}"), {"A": value})
        assert config.tools["settle"].description == value
        assert config.tools["settle"].expose_cause

    def test_a_value_that_names_a_variable_is_not_expanded_again(self, read: Load) -> None:
        config = read(SMALLEST.replace("Settle an order", "${A}"), {"A": "${B}", "B": "no"})
        assert config.tools["settle"].description == "${B}"

    def test_numbers_and_booleans_may_come_from_it(self, read: Load) -> None:
        text = dedent(SMALLEST).replace("description", "idempotent: ${YES}\n        description")
        text = "limits: {concurrent_tasks: '${MANY}'}\n" + text
        config = read(text, {"YES": "true", "MANY": "12"})
        assert config.limits.concurrent_tasks == 12
        assert config.tools["settle"].idempotent is True

    def test_keys_are_left_alone(self, read: Load) -> None:
        text = SMALLEST.replace("{type: object}", '{type: object, properties: {"${A}": {}}}')
        assert list(read(text).tools["settle"].input_schema["properties"]) == ["${A}"]


class TestYaml:
    def test_words_are_read_as_yaml_1_2_reads_them(self, read: Load) -> None:
        values = "[no, on, y, 2024-01-01, 1:30, 007, 0o17, 0x1f, 1e3, .5, true, ~, '5', '<<', =]"
        text = SMALLEST.replace("{type: object}", f"{{type: object, default: {values}}}")
        assert read(text).tools["settle"].input_schema["default"] == [
            *("no", "on", "y", "2024-01-01", "1:30", 7, 15, 31, 1000.0, 0.5, True, None, "5"),
            *("<<", "="),
        ]

    def test_anchors_and_merge_keys_work(self, read: Load) -> None:
        config = read(
            """
            backends:
              orders:
                adapter: plain
                region: eu-west-1
                tools:
                  one: &one
                    workflow: flow:one
                    description: One
                    input_schema: &schema {type: object}
                    output_schema: *schema
                    poll: 1s
                  two: {<<: *one, poll: 2s}
                  three: {<<: [{poll: 3s}, *one], description: Three}
            """
        )
        tools = config.tools
        assert [tool.poll.seconds for tool in tools.values()] == [1, 2, 3]
        assert [tool.description for tool in tools.values()] == ["One", "One", "Three"]

    def test_a_byte_order_mark_and_comments_are_skipped(self, read: Load) -> None:
        assert read("\ufeff# comment\n" + dedent(SMALLEST)).tools


class TestInclude:
    def test_included_files_add_backends_in_order_of_their_names(self, read: Load) -> None:
        def backend(name: str) -> str:
            return dedent(SMALLEST).replace("orders:", f"{name}:").replace("settle:", f"{name}:", 1)

        config = read(
            "include: [more*.yaml, other.yaml, more1.yaml]\n" + backend("main"),
            more2=backend("b2"),
            more1=backend("b1"),
            other=backend("c"),
            unnamed=backend("d"),
        )
        assert list(config.backends) == ["main", "b1", "b2", "c"]
        assert config.tools["b1"].backend == "b1"

    def test_the_main_file_may_have_no_backends_of_its_own(self, read: Load) -> None:
        assert read("include: [orders.yaml]", orders=SMALLEST).tools

    def test_an_absolute_pattern_works(self, read: Load, tmp_path: Path) -> None:
        assert read(f"include: ['{tmp_path}/o*.yaml']", orders=SMALLEST).tools

    def test_variables_work_in_included_files(self, read: Load) -> None:
        text = SMALLEST.replace("eu-west-1", "${REGION}")
        config = read("include: [orders.yaml]", {"REGION": "eu-central-1"}, orders=text)
        assert "eu-central-1" in repr(config.backends["orders"].settings)
