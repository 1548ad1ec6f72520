"""Rows and policies for tests of the pure core."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from workflow_bridge.adapter import ExecutionRef
from workflow_bridge.core.policy import Policy
from workflow_bridge.core.task import Dialect, Status, Task, execution_key

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
REF = ExecutionRef("run:1")
ROW_ID = "0123456789abcdef0123456789abcdef"


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def at(count: float) -> datetime:
    """The moment so many seconds after `T0`."""
    return T0 + seconds(count)


POLICY = Policy(start_is_idempotent=True, start_timeout=seconds(20), fingerprint="here")
"""Start in doubt until 80 s after the call; start within 15 min; missing after 1 h."""
SENT_ONCE = replace(POLICY, start_is_idempotent=False)

FRESH = Task(
    row_id=ROW_ID,
    owner="local",
    task_id="t",
    dialect=Dialect.A,
    tool="tool",
    backend="engine",
    fingerprint="here",
    workflow="workflow",
    key=execution_key(ROW_ID),
    arguments_digest="0" * 64,
    keep_alive=timedelta(hours=1),
    poll_interval=seconds(5),
    created_at=T0,
    updated_at=T0,
    due_at=T0,
)
"""Just inserted."""


def fresh(**changes: Any) -> Task:
    return replace(FRESH, **changes)


def called(**changes: Any) -> Task:
    """A row whose start was let through the gate at `T0` and not answered yet."""
    return replace(replace(FRESH, start_called_at=T0), **changes)


def bound(**changes: Any) -> Task:
    """A row bound to a running execution since `T0`."""
    known = replace(
        FRESH,
        ref=REF,
        status=Status.WORKING,
        start_called_at=T0,
        start_settled_at=T0,
        last_observed_at=T0,
    )
    return replace(known, **changes)
