"""Dialect A on the wire, seen from the client: what is sent, and how answers are read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

TASK: Final = "modelcontextprotocol.io/task"
RELATED: Final = "modelcontextprotocol.io/related-task"
CREATED: Final = "notifications/tasks/created"
STEP: Final = "workflow-bridge/step"
STATUS_MESSAGE: Final = "workflow-bridge/statusMessage"
OBSERVATION: Final = "workflow-bridge/observation"
RATE_LIMITED: Final = 429001
"""The JSON-RPC error code of a request to be repeated after ``data.retryAfterMs``."""

FINAL: Final = frozenset({"completed", "failed", "cancelled", "unknown"})
"""Statuses that a task never leaves (SEP-1686 §4.3)."""
DEFAULT_POLL: Final = timedelta(seconds=5)
"""Where the server names no pollFrequency."""
SHORTEST_POLL: Final = timedelta(milliseconds=50)
"""A server that asks for less, or for nothing at all, is not obeyed."""


class Unspeakable(Exception):
    """The server's answer is none of this dialect's."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """What `tasks/get` answered."""

    task_id: str
    status: str
    keep_alive: timedelta | None
    """How long the result is kept after completion; None is for ever."""
    poll: timedelta
    """How long to wait before asking again."""
    error: str | None
    """Why it failed."""
    step: str | None
    """The step the workflow is in, where a workflow bridge tells of it."""
    remark: str | None
    """What a workflow bridge tells beside the status: a message, or why the engine is silent."""
    raw: Mapping[str, Any]
    """The whole answer."""

    @property
    def final(self) -> bool:
        """True once the task has ended."""
        return self.status in FINAL


def call_params(
    tool: str, arguments: Mapping[str, Any], task_id: str, keep_alive: timedelta | None
) -> dict[str, Any]:
    """Return the parameters of a `tools/call` that becomes a task (§3.1)."""
    marker: dict[str, Any] = {"taskId": task_id}
    if keep_alive is not None:
        marker["keepAlive"] = milliseconds(keep_alive)
    return {"name": tool, "arguments": dict(arguments), "_meta": {TASK: marker}}


def task_params(task_id: str) -> dict[str, Any]:
    """Return the parameters of a request about one task, tied to it as §4.7 asks."""
    return {"taskId": task_id, "_meta": {RELATED: {"taskId": task_id}}}


def related_task(params: Mapping[str, Any]) -> str | None:
    """Return the task that a message is about."""
    match params.get("_meta"):
        case {"modelcontextprotocol.io/related-task": {"taskId": str(task_id)}}:
            return task_id
        case _:
            return None


def state(raw: Mapping[str, Any], task_id: str) -> TaskState:
    """Read a task as `tasks/get` and `tasks/list` give it. Raises `Unspeakable`."""
    status = raw.get("status")
    if not isinstance(status, str):
        raise Unspeakable("the server's answer names no status of the task")
    error = raw.get("error")
    return TaskState(
        task_id=str(raw.get("taskId", task_id)),
        status=status,
        keep_alive=_duration(raw.get("keepAlive")),
        poll=max(_duration(raw.get("pollFrequency")) or DEFAULT_POLL, SHORTEST_POLL),
        error=error if isinstance(error, str) else None,
        step=_beside(raw, STEP),
        remark=_beside(raw, STATUS_MESSAGE) or _beside(raw, OBSERVATION),
        raw=raw,
    )


def _beside(raw: Mapping[str, Any], key: str) -> str | None:
    meta = raw.get("_meta")
    match meta.get(key) if isinstance(meta, Mapping) else None:
        case str(text):
            return text
        case {"error": str(text)}:
            return text
        case _:
            return None


def milliseconds(duration: timedelta) -> int:
    """Return a duration as the wire has it."""
    return duration // timedelta(milliseconds=1)


def _duration(value: object) -> timedelta | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(milliseconds=value)
    return None
