"""What a client says of the task it wants, checked before anything is written (A-36). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from workflow_bridge.protocol.dialects import TASK
from workflow_bridge.protocol.errors import Refused, invalid

MAX_ID_BYTES: Final = 1024
_BEYOND_ANY_CAP_MS: Final = 100 * 366 * 86_400_000
"""Longer than any configured maximum, and still a `timedelta`."""


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """The task a request asks for; no ``keep_alive`` is the default."""

    task_id: str
    keep_alive: timedelta | None


def task_metadata(value: object) -> TaskMetadata:
    """Read A's task metadata. Raises `Refused`, saying what to send instead."""
    if not isinstance(value, dict):
        raise _wrong("must be an object with a string taskId")
    if "taskId" not in value:
        raise _wrong("lacks taskId; send a string that is new for each task")
    fault = id_fault(value["taskId"])
    if fault is not None:
        raise _wrong(f"taskId {fault}")
    return TaskMetadata(value["taskId"], _keep_alive(value.get("keepAlive")))


def id_fault(value: object) -> str | None:
    """Say what keeps a value from being a task id; None where nothing does."""
    if not isinstance(value, str):
        return "must be a string"
    if not value:
        return "must not be empty"
    if "\0" in value:
        return "must not contain NUL"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must not contain lone surrogates"
    return f"must not be over {MAX_ID_BYTES} UTF-8 bytes" if size > MAX_ID_BYTES else None


def _keep_alive(value: object) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        # NaN alone differs from itself.
        raise _wrong("keepAlive must be a number of milliseconds, or left out for the default")
    if value < 0:
        raise _wrong("keepAlive must not be negative")
    return timedelta(milliseconds=math.floor(min(value, _BEYOND_ANY_CAP_MS)))


def _wrong(what: str) -> Refused:
    return invalid("task_metadata", f"_meta['{TASK}'] {what}")
