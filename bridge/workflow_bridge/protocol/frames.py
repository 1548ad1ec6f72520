"""Lines on the pipe into JSON-RPC messages, or into the error to answer with. Pure.

The SDK drops what it cannot parse without a word; a client is then left to wait.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import structlog
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from workflow_bridge.protocol.schema import MAX_DEPTH, encodable, fault_of

log = structlog.get_logger(__name__)

MAX_LINE: Final = 4 * 1024 * 1024
"""Bytes in a message; what is longer is skipped and refused."""


class Lines:
    """Cuts a stream of bytes into lines, with bounded memory."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that are whole now; None for each that was too long."""
        *ends, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for end in ends:
            self._add(end)
            lines.append(None if self._skipping else bytes(self._rest))
            self._rest.clear()
            self._skipping = False
        self._add(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """Return the line that the stream ended in."""
        return self.feed(b"\n") if self._rest or self._skipping else []

    def _add(self, part: bytes) -> None:
        if self._skipping or len(self._rest) + len(part) > self._limit:
            self._skipping = True
            self._rest.clear()
        else:
            self._rest += part


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no message, and the error to answer it with."""

    error: JSONRPCError


def too_long(limit: int = MAX_LINE) -> Unreadable:
    """Return the error for a line that was skipped; its id is not known."""
    return _unreadable(None, INVALID_REQUEST, f"message too large; the most is {limit} bytes")


def parse(line: bytes) -> JSONRPCMessage | Unreadable | None:
    """Return a line's message, or why there is none; None for what needs no answer."""
    line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _refusal(line)
    if isinstance(message, JSONRPCNotification) and b'"id"' in line:
        # The SDK takes a request whose id is no id for a notification.
        return _refusal(line) or message
    return message


def _refusal(line: bytes) -> Unreadable | None:
    if not line.strip():
        return None
    try:
        value = json.loads(line)
    except RecursionError:
        return _unreadable(None, PARSE_ERROR, f"nested deeper than {MAX_DEPTH} levels")
    except ValueError:
        return _unreadable(None, PARSE_ERROR, "a message is one line of JSON in UTF-8")
    if isinstance(value, list):
        return _unreadable(None, INVALID_REQUEST, "batches are not supported")
    if not isinstance(value, dict):
        return _unreadable(None, INVALID_REQUEST, "a message is a JSON object")
    if "method" not in value and ("result" in value or "error" in value):
        return None
    return _refusal_of_request(value)


def _refusal_of_request(value: dict[str, Any]) -> Unreadable | None:
    method, request_id = value.get("method"), _request_id(value.get("id"))
    fault = None if request_id is None else fault_of(value)
    if fault is not None:
        return _unreadable(request_id, INVALID_PARAMS, f"the request {fault}")
    named = isinstance(method, str)
    if named and ("id" not in value or str(method).startswith("notifications/")):
        return None
    if value.get("jsonrpc") != "2.0":
        what = 'jsonrpc must be "2.0"'
    elif not named:
        what = "method must be a string"
    elif request_id is None:
        what = "id must be a string or an integer"
    else:
        what = "params must be an object"
    return _unreadable(request_id, INVALID_REQUEST, what)


def _request_id(value: object) -> RequestId | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return value if isinstance(value, int) or encodable(value) else None


_WORDS: Final = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid request",
    INVALID_PARAMS: "Invalid request parameters",
}


def _unreadable(request_id: RequestId | None, code: int, what: str) -> Unreadable:
    error = ErrorData(code=code, message=f"{_WORDS[code]}: {what}")
    return Unreadable(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def written(message: JSONRPCMessage) -> bytes:
    """Return a message as a line; one that cannot be written becomes an error of the same id."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except PydanticSerializationError:
        log.exception("message_not_writable")
        error = ErrorData(code=INTERNAL_ERROR, message="Internal error")
        request_id = getattr(message, "id", None)
        if request_id is None:
            return b""
        text = JSONRPCError(jsonrpc="2.0", id=request_id, error=error).model_dump_json(
            by_alias=True, exclude_unset=True
        )
    return text.encode() + b"\n"
