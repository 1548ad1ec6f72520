"""What an execution's description says, in the port's words."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from workflow_bridge.adapter import (
    Aborted,
    Ended,
    Execution,
    Failed,
    Json,
    Running,
    Succeeded,
    TimedOut,
    Unavailable,
)

_log = logging.getLogger(__name__)

_UNREADABLE_RESULT = (
    "The execution succeeded, but its result is not readable with this backend's credentials."
)
_UNREADABLE_CAUSE = "The cause is not readable with this backend's credentials."

KNOWN_STATUSES = frozenset(
    {"RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED", "PENDING_REDRIVE"}
)


def execution_from(response: dict[str, Any], *, locked: bool = False) -> Execution:
    """Read an answer of DescribeExecution or StartSyncExecution.

    ``error``, ``cause``, ``output`` and ``stopDate`` may each be absent. ``locked`` says that the
    payload had to be left out of the answer. Raises `Unavailable` for a success without its output.
    """
    status = response["status"]
    if status == "RUNNING":
        return Running()
    if status == "PENDING_REDRIVE":
        return Running("waiting to be redriven")
    ended = _ended(response, locked=locked)
    if ended is None:
        _log.warning("unknown_execution_status", extra={"status": status})
        return Running(f"in a state that is not known here: {status}")
    return ended


def _ended(response: dict[str, Any], *, locked: bool) -> Ended | None:
    ended_at = utc(response.get("stopDate"))
    error: str | None = response.get("error")
    cause: str | None = response.get("cause", _UNREADABLE_CAUSE if locked else None)
    match response["status"]:
        case "SUCCEEDED":
            if locked or response.get("outputDetails", {}).get("included") is False:
                # It did succeed, and a key's grant can be repaired: an outage, not an outcome.
                raise Unavailable(_UNREADABLE_RESULT)
            return Succeeded(decoded(response.get("output")), ended_at)
        case "FAILED":
            return Failed(error, cause, ended_at)
        case "TIMED_OUT":
            return TimedOut(error or "States.Timeout", cause, ended_at)
        case "ABORTED":
            return Aborted(error, cause, ended_at)
        case _:
            return None


def decoded(text: str | None) -> Json:
    """Return the value of a JSON text, or the text itself where it is none that can be sent on."""
    if text is None:
        return None
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return value


def _refuse_constant(word: str) -> None:
    raise ValueError(word)


def same_input(text: str | None, payload: bytes) -> bool:
    """Compare an execution's input with ours: as sent, then as JSON.

    An input that cannot be read counts as ours: a key is random and never used twice.
    """
    if text is None or text.encode(errors="surrogatepass") == payload:
        return True
    try:
        return _canonical(text) == _canonical(payload)
    except (ValueError, RecursionError):
        return False


def _canonical(text: str | bytes) -> str:
    # Compared as text, because to Python 1, 1.0 and True are equal.
    return json.dumps(json.loads(text), sort_keys=True)


def utc(moment: datetime | None) -> datetime | None:
    """Return the same moment in UTC."""
    return None if moment is None else moment.astimezone(UTC)
