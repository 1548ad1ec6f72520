"""Which dialect a request is in."""

from __future__ import annotations

from typing import Any

import pytest

from workflow_bridge.core.task import Dialect
from workflow_bridge.protocol.dialects import recognise
from workflow_bridge.protocol.errors import Refused

A_MARK = {"_meta": {"modelcontextprotocol.io/task": {"taskId": "x"}}}
A_NULL = {"_meta": {"modelcontextprotocol.io/task": None}}
B_MARK: dict[str, Any] = {"task": {}}
RELATED = {"_meta": {"modelcontextprotocol.io/related-task": {"taskId": "x"}}}
C_MARK: dict[str, Any] = {
    "_meta": {
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}}
        }
    }
}
NOW = frozenset({Dialect.A, Dialect.PLAIN})
ALL = frozenset(Dialect)
OLD, CORE, MODERN = "2025-06-18", "2025-11-25", "2026-07-28"


@pytest.mark.req("A-1", "A-2")
@pytest.mark.parametrize(
    ("params", "version", "spoken", "dialect"),
    [
        (A_MARK, OLD, NOW, Dialect.A),
        (A_MARK, CORE, ALL, Dialect.A),
        (A_NULL, CORE, NOW, Dialect.A),
        (A_MARK, MODERN, NOW, Dialect.PLAIN),
        (A_MARK | B_MARK, MODERN, NOW, Dialect.PLAIN),
        (B_MARK, CORE, ALL, Dialect.B),
        (B_MARK, CORE, NOW, Dialect.PLAIN),
        (B_MARK, OLD, ALL, Dialect.PLAIN),
        (C_MARK, MODERN, ALL, Dialect.C),
        (C_MARK, MODERN, NOW, Dialect.PLAIN),
        (C_MARK, CORE, ALL, Dialect.PLAIN),
        ({}, CORE, ALL, Dialect.PLAIN),
        (None, CORE, ALL, Dialect.PLAIN),
        ({"_meta": 7}, CORE, ALL, Dialect.PLAIN),
    ],
)
def test_a_call_is_in_the_dialect_of_its_marker(
    params: Any, version: str, spoken: frozenset[Dialect], dialect: Dialect
) -> None:
    assert recognise("tools/call", params, version, used_a=False, spoken=spoken) is dialect


@pytest.mark.parametrize("version", [OLD, CORE])
def test_a_call_with_the_markers_of_both_is_refused(version: str) -> None:
    with pytest.raises(Refused) as refused:
        recognise("tools/call", A_MARK | B_MARK, version, used_a=False, spoken=NOW)
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("method", "params", "version", "used_a", "dialect"),
    [
        ("tasks/get", {}, CORE, False, Dialect.B),
        ("tasks/get", {}, CORE, True, Dialect.A),
        ("tasks/get", RELATED, CORE, False, Dialect.A),
        ("tasks/delete", {}, CORE, False, Dialect.A),
        ("tasks/get", {}, OLD, False, Dialect.A),
        ("tasks/get", C_MARK, MODERN, True, Dialect.C),
        ("tasks/get", RELATED, MODERN, True, Dialect.PLAIN),
    ],
)
def test_a_task_request_is_in_the_dialect_its_connection_gives_away(
    method: str, params: Any, version: str, used_a: bool, dialect: Dialect
) -> None:
    assert recognise(method, params, version, used_a=used_a, spoken=ALL) is dialect


@pytest.mark.req("A-17")
def test_without_b_a_task_request_needs_no_mark_to_be_in_a() -> None:
    assert recognise("tasks/get", {}, CORE, used_a=False, spoken=NOW) is Dialect.A
