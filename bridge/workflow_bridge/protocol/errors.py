"""What is refused, as JSON-RPC errors. The texts of reading errors are SEP-1686's own (§7.1)."""

from __future__ import annotations

import math
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

RATE_LIMITED: Final = 429001
"""Asked too often, or too much at a time; ``data.retryAfterMs`` says when to ask again (A-24)."""


class Refused(MCPError):
    """A refusal of ours; ``reason`` is its short name in logs."""

    def __init__(self, reason: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.reason = reason


def invalid(reason: str, message: str) -> Refused:
    """Return the error for a request that is wrong as it stands (-32602)."""
    return Refused(reason, INVALID_PARAMS, message)


def not_found() -> Refused:
    """Return the error for an id that is unknown, foreign or no id at all (A-18, A-23)."""
    return invalid("not_found", "Failed to retrieve task: Task not found")


def expired() -> Refused:
    """Return the error for a task whose keepAlive has passed, while that is remembered (A-18)."""
    return invalid("expired", "Failed to retrieve task: Task has expired")


def too_fast(reason: str, message: str, retry_after_seconds: float) -> Refused:
    """Return the error for what may be asked for again later; nothing was started."""
    wait_ms = math.ceil(retry_after_seconds * 1000)
    return Refused(reason, RATE_LIMITED, message, {"retryAfterMs": wait_ms})


def no_such_method(message: str = "Method not found", *, reason: str = "no_method") -> Refused:
    """Return the error for a method that this dialect lacks, or lacks for this tool (-32601)."""
    return Refused(reason, METHOD_NOT_FOUND, message)


def without_result(message: str) -> Refused:
    """Return the error for a call that has no result, and why (-32603)."""
    return Refused("no_result", INTERNAL_ERROR, message)
