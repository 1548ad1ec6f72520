"""How an end is told: pure rendering."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mcp_types import JSONRPCResponse, methods

from workflow_bridge.core.task import Dialect, OutcomeKind, Payload, Status, Task
from workflow_bridge.protocol.results import failure, tool_result
from workflow_bridge.protocol.tools import ToolSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOOL = ToolSpec(name="run", description="", input_schema={"type": "object"})
SHORT = replace(TOOL, max_text=1000)
TYPED = replace(
    TOOL, output_schema={"type": "object", "properties": {"n": {"type": "integer"}},
                         "required": ["n"]},
)  # fmt: skip


def task(status: Status, outcome: OutcomeKind | None, message: str | None = None) -> Task:
    return Task(
        row_id="0" * 32, owner="o", task_id="t", dialect=Dialect.A, tool="run", backend="b",
        fingerprint="f", workflow="w", key="k", arguments_digest="d", status=status,
        outcome=outcome, status_message=message, keep_alive=None,
        poll_interval=timedelta(seconds=5), created_at=NOW, updated_at=NOW,
    )  # fmt: skip


DONE = task(Status.COMPLETED, OutcomeKind.SUCCEEDED, "a status message")
FAILED = task(Status.FAILED, OutcomeKind.FAILED, "Boom: it broke")
TIMED_OUT = task(Status.FAILED, OutcomeKind.TIMED_OUT)


def of(output: Any, tool: ToolSpec | None = TOOL) -> dict[str, Any]:
    result = tool_result(DONE, Payload(output=json.dumps(output)), tool)
    wire = JSONRPCResponse(jsonrpc="2.0", id=1, result=result).model_dump_json()
    assert json.loads(wire)["result"] == result, "the wire changes it"
    sieved = methods.serialize_server_result("tools/call", "2025-11-25", result)
    assert json.dumps(sieved) == json.dumps(result), "the SDK's sieve changes it"
    return result


def text_of(result: dict[str, Any]) -> str:
    (block,) = result["content"]
    text: str = block["text"]
    return text


@pytest.mark.case("R2")
def test_an_object_is_the_structure_and_its_json_the_text() -> None:
    result = of({"b": [1, None, "é🦊"], "a": 1})
    assert result["structuredContent"] == {"b": [1, None, "é🦊"], "a": 1}
    assert text_of(result) == '{"b": [1, null, "é🦊"], "a": 1}'
    assert result["isError"] is False
    assert "status message" not in json.dumps(result)


@pytest.mark.parametrize("output", [None, 7, 0.5, "text", "", [], [1], True])
def test_anything_else_is_wrapped(output: Any) -> None:
    result = of(output)
    assert result["structuredContent"] == {"result": output}
    assert json.loads(text_of(result)) == {"result": output}


@pytest.mark.req("A-10")
def test_an_output_that_is_a_tool_result_is_that_result() -> None:
    output = {
        "content": [{"type": "text", "text": "no stock"}, {"type": "image", "data": "aGk=",
                                                           "mimeType": "image/png"}],
        "structuredContent": {"stock": 0, "none": None},
        "isError": True,
        "_meta": {"mine": 1},
    }  # fmt: skip
    assert of(output) == output


@pytest.mark.parametrize(
    "output",
    [
        {"content": []},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "hologram", "text": "x"}]},
        {"content": "text"},
        {"content": [{"type": "text", "text": "x"}], "total": 3},
        {"content": [{"type": "text", "text": "x"}], "isError": "no"},
        {"content": [{"type": "text", "text": "x"}], "structuredContent": [1]},
        {"structuredContent": {}},
    ],
)
def test_what_only_looks_like_a_tool_result_is_data(output: Any) -> None:
    assert of(output)["structuredContent"] == output


@pytest.mark.case("R3", "R6")
@pytest.mark.req("A-9")
@pytest.mark.parametrize(
    ("told", "payload", "text", "structured"),
    [
        (FAILED, Payload(error="Boom", cause="it broke"), "Boom: it broke",
         {"error": "Boom", "cause": "it broke"}),
        (FAILED, Payload(error="Boom"), "Boom", {"error": "Boom"}),
        (FAILED, Payload(cause="it broke"), "FAILED: it broke",
         {"error": "FAILED", "cause": "it broke"}),
        (FAILED, Payload(), "the execution ended as FAILED", {"error": "FAILED"}),
        (TIMED_OUT, Payload(), "the execution ended as TIMED_OUT", {"error": "TIMED_OUT"}),
        (FAILED, Payload(error="States.Runtime", cause="The execution reached the maximum number "
                         "of history events (25000)."),
         "States.Runtime: The execution reached the maximum number of history events (25000).",
         {"error": "States.Runtime",
          "cause": "The execution reached the maximum number of history events (25000)."}),
    ],
)  # fmt: skip
def test_a_failure_is_always_named_and_told_in_full(
    told: Task, payload: Payload, text: str, structured: dict[str, Any]
) -> None:
    result = tool_result(told, payload, TOOL)
    assert result["isError"] is True
    assert (text_of(result), result["structuredContent"]) == (text, structured)


@pytest.mark.case("R4")
def test_a_timeout_shows_the_name_its_adapter_gave_it() -> None:
    result = tool_result(TIMED_OUT, Payload(error="States.Timeout"), TOOL)
    assert text_of(result) == "States.Timeout"


@pytest.mark.case("R5")
def test_an_abort_without_a_reason_is_a_cancellation() -> None:
    result = tool_result(task(Status.CANCELLED, OutcomeKind.ABORTED), Payload(), TOOL)
    assert result["structuredContent"] == {"error": "Cancelled"}
    assert "cancelled" in text_of(result)


@pytest.mark.parametrize("tool", [replace(TOOL, expose_cause=False), None])
@pytest.mark.parametrize("told", [FAILED, task(Status.CANCELLED, OutcomeKind.ABORTED)])
def test_a_cause_is_hidden_where_nobody_says_it_may_be_shown(
    told: Task, tool: ToolSpec | None
) -> None:
    result = tool_result(told, Payload(error="Boom", cause="secret"), tool)
    assert "Boom" in text_of(result)
    assert "secret" not in json.dumps(result)


@pytest.mark.case("F11")
def test_a_rejected_start_names_what_was_denied() -> None:
    message = "AccessDeniedException: not allowed to states:StartExecution"
    told = failure(task(Status.FAILED, OutcomeKind.REJECTED, message), Payload(), None)
    assert (told.error, told.text) == ("AccessDeniedException", message)


@pytest.mark.case("R10")
@pytest.mark.parametrize("char", ["a", "é", "🦊"])
def test_long_text_becomes_a_preview_and_the_structure_stays_whole(char: str) -> None:
    output = {"x": char * 2000}
    result = of(output, SHORT)
    size = len(json.dumps(output, ensure_ascii=False).encode())
    assert len(text_of(result).encode()) <= 1000
    assert f"of {size} bytes; structuredContent holds the whole" in text_of(result)
    assert result["structuredContent"] == output


@pytest.mark.case("R10")
def test_a_long_cause_is_whole_in_the_structure() -> None:
    result = tool_result(FAILED, Payload(error="Boom", cause="c" * 5000), SHORT)
    assert len(text_of(result)) <= 1000
    assert result["structuredContent"]["cause"] == "c" * 5000


@pytest.mark.case("R10")
def test_long_text_of_the_workflows_own_result_is_kept_whole_beside_it() -> None:
    content = [{"text": "a" * 900, "type": "text"}, {"text": "b" * 900, "type": "text"}]
    result = of({"content": content}, SHORT)
    assert sum(len(block["text"].encode()) for block in result["content"]) <= 1000
    assert result["structuredContent"] == {"content": content}


def test_what_the_wire_cannot_carry_is_replaced() -> None:
    result = tool_result(
        DONE, Payload(output='{"a\\ud800": ["\\udfff", 1e999, NaN], "b": "\\ud83e\\udd8a"}'), TOOL
    )
    assert result["structuredContent"] == {"a?": ["?", "inf", "NaN"], "b": "🦊"}
    JSONRPCResponse(jsonrpc="2.0", id=1, result=result).model_dump_json()


@pytest.mark.parametrize("depth", [101, 5000])
def test_an_output_too_deep_for_clients_is_handed_over_as_text(depth: int) -> None:
    stored = "[" * depth + "]" * depth
    result = tool_result(DONE, Payload(output=stored), TOOL)
    assert result["structuredContent"] == {"result": stored}
    JSONRPCResponse(jsonrpc="2.0", id=1, result=result).model_dump_json()


def test_an_output_as_promised_is_no_error() -> None:
    assert of({"n": 1}, TYPED)["isError"] is False


@pytest.mark.parametrize(
    "output", [{"n": "one"}, [1], {"content": [{"type": "text", "text": "x"}]}]
)
def test_an_output_other_than_promised_is_marked_and_not_lost(output: Any) -> None:
    result = of(output, TYPED)
    assert result["isError"] is True
    note, *rest = (block["text"] for block in result["content"])
    assert "output schema" in note
    assert "The workflow succeeded" in note
    assert rest
