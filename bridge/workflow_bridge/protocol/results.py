"""How an execution's end becomes a `CallToolResult`. Pure; the same for every way to ask (A-14)."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import methods
from pydantic import ValidationError

from workflow_bridge.core.task import OutcomeKind, Payload, Status, Task
from workflow_bridge.protocol.schema import encodable, fault_of, too_deep
from workflow_bridge.protocol.tools import ToolSpec

DEFAULT_MAX_TEXT: Final = 100_000
"""Bytes of text content for a tool that is no longer configured."""

_RESULT_MEMBERS: Final = frozenset({"content", "structuredContent", "isError", "_meta"})
_ERROR_NAME: Final = re.compile(r"([A-Za-z][\w.]*): (.*)", re.DOTALL)
_STATES: Final = {
    OutcomeKind.FAILED: "FAILED",
    OutcomeKind.TIMED_OUT: "TIMED_OUT",
    OutcomeKind.ABORTED: "ABORTED",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no output: a name, always (R3), and the full cause where it may be shown."""

    error: str
    cause: str | None
    text: str


def tool_result(
    task: Task, payload: Payload, tool: ToolSpec | None, *, whole: bool = False
) -> dict[str, Any]:
    """Return the `CallToolResult` of a task that is completed, failed or cancelled.

    Its content is the output or the failure, never a status message of ours (R2). A text that is
    too long is cut to a preview, unless it is wanted ``whole``.
    """
    limit = tool.max_text if tool else DEFAULT_MAX_TEXT
    if whole:
        limit = sys.maxsize
    if task.outcome is OutcomeKind.SUCCEEDED and task.status is Status.COMPLETED:
        if payload.output is None:
            raise LookupError("the output of a completed task is gone")
        return _of_output(payload.output, tool, limit)
    told = failure(task, payload, tool)
    structured: dict[str, Any] = {"error": told.error}
    if told.cause is not None:
        structured["cause"] = told.cause
    return _result(_texts([told.text], limit, _WHOLE_IN_STRUCTURE), structured, is_error=True)


def failure(task: Task, payload: Payload, tool: ToolSpec | None) -> Failure:
    """Say why a final task has no output.

    The cause is hidden where the tool says so, and where there is no tool left to say it may be
    shown. A rejected start is told in full: its text is the bridge's or the adapter's own.
    """
    if task.outcome is OutcomeKind.REJECTED:
        message = task.status_message or "the start was rejected"
        named = _ERROR_NAME.fullmatch(message)
        if named is None:
            return Failure("NotStarted", message, f"NotStarted: {message}")
        return Failure(named[1], named[2], message)
    shown = tool is not None and tool.expose_cause
    cause = payload.cause if shown else None
    if task.status is Status.CANCELLED:
        why = ": ".join(part for part in (payload.error, cause) if part) or None
        text = f"The task was cancelled: {why}" if why else "The task was cancelled."
        return Failure("Cancelled", why, text)
    state = _STATES.get(task.outcome or OutcomeKind.FAILED, "FAILED")
    error = payload.error or state
    text = f"{error}: {cause}" if cause else payload.error or f"the execution ended as {state}"
    return Failure(error, cause, text)


def may_tell(task: Task, tool: ToolSpec | None) -> bool:
    """Whether a final task's status message may be shown as it is.

    The row does not keep a failure's name and cause apart, so that hiding the one hides both.
    """
    own_words = task.outcome in (None, OutcomeKind.REJECTED, OutcomeKind.LOST)
    return own_words or (tool is not None and tool.expose_cause)


# --- an output -----------------------------------------------------------------------------------


def _of_output(stored: str, tool: ToolSpec | None, limit: int) -> dict[str, Any]:
    output = _fit_for_the_wire(stored)
    own = _as_written_by_the_workflow(output)
    if own is not None:
        return _own_result(own, tool, limit)
    structured = output if isinstance(output, dict) else {"result": output}
    return _checked(structured, _json(structured), tool, limit)


def _checked(
    structured: dict[str, Any], text: str, tool: ToolSpec | None, limit: int
) -> dict[str, Any]:
    """Add what must be said if the output is not what the tool's ``output_schema`` promised.

    MCP clients throw away such a result, and the output with it, unless it says isError: so it
    does, tells what is wrong, and carries the output all the same.
    """
    fault = tool.output_fault(structured) if tool else None
    if fault is None:
        return _result(_texts([text], limit, _WHOLE_IN_STRUCTURE), structured)
    note = _against_schema(fault)
    return _result(_texts([note, text], limit, _WHOLE_IN_STRUCTURE), structured, is_error=True)


def _as_written_by_the_workflow(output: object) -> dict[str, Any] | None:
    """Return an output that is itself a CallToolResult (A-10) as the SDK writes it, else None.

    An object with any other member is data of the workflow that happens to hold `content`; so is
    one with nothing but empty content.
    """
    if not isinstance(output, dict) or not output.keys() <= _RESULT_MEMBERS:
        return None
    structured = output.get("structuredContent", {})
    if not isinstance(structured, dict) or not isinstance(output.get("content"), list):
        return None
    if not isinstance(output.get("isError", False), bool):
        return None
    if not output["content"] and output.keys() == {"content"}:
        return None
    try:
        return methods.serialize_server_result("tools/call", "2025-11-25", output)
    except ValidationError:
        return None


def _own_result(own: dict[str, Any], tool: ToolSpec | None, limit: int) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = own["content"]
    structured, is_error = own.get("structuredContent"), own.get("isError", False)
    where = _WHOLE_IN_STRUCTURE if structured is None else _WHOLE_IN_ROW
    fault = None if is_error or tool is None else tool.output_fault(structured)
    size = sum(len(block["text"].encode()) for block in blocks if block["type"] == "text")
    if size > limit and structured is None:
        # What is cut must be somewhere; nothing but this is left to hold it.
        structured = {"content": blocks}
    if fault is not None:
        blocks, is_error = [_text(_against_schema(fault)), *blocks], True
    texts = iter(_texts([b["text"] for b in blocks if b["type"] == "text"], limit, where))
    result: dict[str, Any] = {"_meta": own["_meta"]} if "_meta" in own else {}
    result["content"] = [
        {**block, **next(texts)} if block["type"] == "text" else block for block in blocks
    ]
    result["isError"] = is_error
    return result if structured is None else result | {"structuredContent": structured}


def _against_schema(fault: str) -> str:
    return (
        "The workflow succeeded, but what it returned is not what the tool's output schema says: "
        f"{fault}. This is what it returned:"
    )


def _fit_for_the_wire(stored: str) -> Any:
    """Return the stored output as a value that every JSON writer takes; nothing of it is lost."""
    try:
        output = json.loads(stored, parse_constant=str)
    except (ValueError, RecursionError):
        return _clean(stored)
    if too_deep(output):
        return _clean(stored)
    return output if fault_of(output) is None else _cleaned(output)


def _cleaned(value: Any) -> Any:
    match value:
        case dict():
            return {_clean(key): _cleaned(member) for key, member in value.items()}
        case list():
            return [_cleaned(member) for member in value]
        case str():
            return _clean(value)
        case float() if not math.isfinite(value):
            return repr(value)
        case _:
            return value


def _clean(text: str) -> str:
    return text if encodable(text) else text.encode("utf-8", "replace").decode()


# --- a result ------------------------------------------------------------------------------------

_WHOLE_IN_STRUCTURE: Final = "structuredContent holds the whole"
_WHOLE_IN_ROW: Final = "the bridge's operator can show the whole: workflow-bridge tasks show"


def _result(
    content: list[dict[str, Any]], structured: Mapping[str, Any], *, is_error: bool = False
) -> dict[str, Any]:
    # In the order in which the SDK writes them.
    return {"content": content, "isError": is_error, "structuredContent": structured}


def _texts(texts: list[str], limit: int, whole: str) -> list[dict[str, Any]]:
    """Return text blocks of ``limit`` bytes together; where one is cut, it says so (R10)."""
    blocks: list[dict[str, Any]] = []
    left = limit
    for text in texts:
        data = _clean(text).encode()
        if len(data) <= left:
            blocks.append(_text(data.decode()))
            left -= len(data)
            continue
        note = f"\n… (cut: the first {left} of {len(data)} bytes; {whole})"
        preview = data[: max(0, left - len(note.encode()))].decode("utf-8", "ignore")
        shown = len(preview.encode())
        blocks.append(_text(f"{preview}\n… (cut: the first {shown} of {len(data)} bytes; {whole})"))
        left = max(0, left - shown - len(note.encode()))
    return blocks


def _text(text: str) -> dict[str, Any]:
    return {"text": text, "type": "text"}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
