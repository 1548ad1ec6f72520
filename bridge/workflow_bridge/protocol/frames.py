"""Lines on the pipe into JSON-RPC messages, or into the error to answer with. Pure.

The SDK drops what it cannot parse without a word; a client is then left to wait.
"""

from __future__ import annotations

import json
import math
import re
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
HEAD: Final = 200
"""Bytes at the beginning of a refused message in which its id is looked for."""
MAX_DIGITS: Final = 4300
"""Digits in an integer: no more can be read, by pydantic or, as it comes, by Python."""


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line that was skipped, and how it began."""

    head: bytes


class Lines:
    """Cuts a stream of bytes into lines, with bounded memory."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that are whole now."""
        *ends, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for end in ends:
            self._add(end)
            line = bytes(self._rest)
            lines.append(TooLong(line) if self._skipping else line)
            self._rest.clear()
            self._skipping = False
        self._add(rest)
        return lines

    def end(self) -> list[bytes | TooLong]:
        """Return the line that the stream ended in."""
        return self.feed(b"\n") if self._rest or self._skipping else []

    def _add(self, part: bytes) -> None:
        if self._skipping or len(self._rest) + len(part) > self._limit:
            self._skipping = True
            self._rest += part[:HEAD]
            del self._rest[HEAD:]
        else:
            self._rest += part


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that is no message, and the error to answer it with."""

    error: JSONRPCError


def too_long(line: TooLong, limit: int = MAX_LINE) -> Unreadable:
    """Return the error for a line that was skipped."""
    what = f"message too large; the most is {limit} bytes"
    return _unreadable(_id_at_the_head(line.head), INVALID_REQUEST, what)


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
    if b"\0" in line[:4] or line.startswith((b"\xff\xfe", b"\xfe\xff")):
        what = "messages are in UTF-8, and this one is in UTF-16 or UTF-32"
        return _unreadable(None, PARSE_ERROR, what)
    integers = _Integers()
    try:
        value = json.loads(line, parse_int=integers.read)
    except RecursionError:
        what = f"nested deeper than {MAX_DEPTH} levels"
        return _unreadable(_id_at_the_head(line), PARSE_ERROR, what)
    except ValueError:
        return _unreadable(None, PARSE_ERROR, "a message is one line of JSON in UTF-8")
    if isinstance(value, list):
        return _unreadable(None, INVALID_REQUEST, "batches are not supported")
    if not isinstance(value, dict):
        return _unreadable(None, INVALID_REQUEST, "a message is a JSON object")
    if "method" not in value and ("result" in value or "error" in value):
        return None
    return _refusal_of_request(value, integers.fault)


class _Integers:
    """Reads the integers of a message; those that are too long become infinite, and a fault."""

    def __init__(self) -> None:
        self.fault: str | None = None

    def read(self, digits: str) -> int | float:
        if len(digits.lstrip("-")) <= MAX_DIGITS:
            return int(digits)
        self.fault = f"holds a number of more than {MAX_DIGITS} digits"
        return math.inf


def _refusal_of_request(value: dict[str, Any], fault: str | None) -> Unreadable | None:
    method, request_id = value.get("method"), _request_id(value.get("id"))
    fault = None if request_id is None else fault or fault_of(value)
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


_MEMBER: Final = re.compile(
    rb"""\s*("[^"\\]*")\s*:\s*("(?:[^"\\]|\\.)*"|-?(?:0|[1-9][0-9]*)|true|false|null)\s*[,}]"""
)
"""A member whose value is plain, and whole."""


def _id_at_the_head(line: bytes) -> RequestId | None:
    """Return the id of a request that cannot be read as a whole, from its plain first members.

    None unless they say that it is a request: to a response or a notification nothing is answered,
    and what stands within other members is somebody else's id.
    """
    head = line[:HEAD].removeprefix(b"\xef\xbb\xbf").lstrip()
    members: dict[str, object] = {}
    at = 1 if head.startswith(b"{") else len(head)
    while (found := _MEMBER.match(head, at)) is not None:
        try:
            members[json.loads(found[1])] = json.loads(found[2])
        except ValueError:
            return None
        at = found.end()
    return _request_id(members.get("id")) if isinstance(members.get("method"), str) else None


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
