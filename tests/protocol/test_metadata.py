"""What a client may say of the task it wants."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from workflow_bridge.protocol.errors import Refused
from workflow_bridge.protocol.metadata import task_metadata

WRONG_METADATA: list[Any] = [None, [], "id", 7, True, ["taskId"]]
WRONG_IDS: list[Any] = [None, "", 7, 1.5, True, {}, [], "a\0b", "\ud800", "x" * 1025, "é" * 513]
WRONG_KEEP_ALIVES: list[Any] = [-1, -0.5, math.nan, True, False, "60000", [], {}, -math.inf]
ODD_IDS = [
    "client/abc:123",
    "🦊🦊",
    "x" * 300,
    "'; DROP TABLE tasks; --",
    "$(rm -rf /) `id` | & > <",
    "../../etc/passwd",
    " ",
    "\n\t",
    "%s%n{0}",
    "e\u0301 is not \u00e9",
    "\u202e\u200b\ufeff",
    "x" * 1024,
]


def code_of(value: object) -> int:
    with pytest.raises(Refused) as refused:
        task_metadata(value)
    assert "modelcontextprotocol.io/task" in refused.value.message
    return refused.value.code


@pytest.mark.req("A-36")
@pytest.mark.parametrize("value", [*WRONG_METADATA, {}, {"id": "x"}, {"keepAlive": 5}])
def test_metadata_that_is_no_object_with_an_id_is_refused(value: Any) -> None:
    assert code_of(value) == -32602


@pytest.mark.req("A-36")
@pytest.mark.parametrize("task_id", WRONG_IDS)
def test_an_id_that_is_no_text_of_bounded_length_is_refused(task_id: Any) -> None:
    assert code_of({"taskId": task_id}) == -32602


@pytest.mark.req("A-36", "A-1")
@pytest.mark.case("F3")
@pytest.mark.parametrize("task_id", ODD_IDS)
def test_any_other_id_is_taken_as_it_is(task_id: str) -> None:
    assert task_metadata({"taskId": task_id}).task_id == task_id


@pytest.mark.req("A-36")
@pytest.mark.parametrize("keep_alive", WRONG_KEEP_ALIVES)
def test_a_keep_alive_that_is_no_duration_is_refused(keep_alive: Any) -> None:
    assert code_of({"taskId": "x", "keepAlive": keep_alive}) == -32602


@pytest.mark.req("A-36")
@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (0, timedelta(0)),
        (0.9, timedelta(0)),
        (1.5, timedelta(milliseconds=1)),
        (60_000, timedelta(minutes=1)),
        (None, None),
    ],
)
def test_a_keep_alive_is_milliseconds_and_null_is_the_default(
    sent: Any, meant: timedelta | None
) -> None:
    assert task_metadata({"taskId": "x", "keepAlive": sent}).keep_alive == meant


@pytest.mark.req("A-36")
@pytest.mark.parametrize("sent", [1e300, math.inf, 10**400])
def test_a_keep_alive_beyond_all_bounds_is_merely_long(sent: Any) -> None:
    granted = task_metadata({"taskId": "x", "keepAlive": sent}).keep_alive
    assert granted is not None
    assert granted > timedelta(days=3650)
