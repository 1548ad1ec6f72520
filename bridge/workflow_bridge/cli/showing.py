"""A task as data for programs and as text for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from workflow_bridge.cli.output import STYLES, age, moment, pairs
from workflow_bridge.core.task import Event, Payload, Task

Events = Sequence[tuple[datetime, Event]]


def as_data(
    task: Task,
    payload: Payload | None = None,
    events: Events | None = None,
    console: str | None = None,
) -> dict[str, Any]:
    """Return everything known; durations become milliseconds, named so."""
    data: dict[str, Any] = {}
    for field in dataclasses.fields(task):
        value = getattr(task, field.name)
        name = field.name
        if name in ("keep_alive", "ttl", "poll_interval"):
            name += "_ms"
        data[name] = value
    if payload is not None:
        data["output"] = None if payload.output is None else json.loads(payload.output)
        data["error"], data["cause"] = payload.error, payload.cause
    if events is not None:
        data["events"] = [
            {"at": at, "kind": event.kind, "status": event.status, "detail": event.detail}
            for at, event in events
        ]
        data["console_url"] = console
    return data


def show_task(task: Task, payload: Payload, events: Events, console: str | None) -> None:
    """Print a task for people."""
    kept = "for ever" if task.keep_alive is None else f"{age(task.keep_alive)} after its end"
    status = click.style(task.status.value, fg=STYLES.get(task.status.value), bold=True)
    rows: list[tuple[str, str | None]] = [
        ("task", task.task_id),
        ("status", status),
        ("message", message_of(task)),
        ("last step" if task.final else "step", task.step),
        ("tool", f"{task.tool} (backend {task.backend})"),
        ("owner", task.owner),
        ("workflow", task.workflow),
        ("execution", task.ref),
        ("key", task.key),
        ("console", console),
        ("created", moment(task.created_at)),
        ("started", moment(task.start_settled_at if task.ref else None)),
        ("ended", moment(task.ended_at or task.final_at)),
        ("observed", moment(task.last_observed_at)),
        ("stop wanted", moment(task.stop_requested_at)),
        ("stop confirmed", moment(task.stop_confirmed_at)),
        ("deleted", moment(task.hidden_at)),
        ("kept", kept),
        ("expires", moment(task.expires_at)),
        ("trouble", task.last_error),
        ("error", payload.error),
        ("cause", payload.cause),
        ("output", payload.output),
    ]
    pairs([(name, value) for name, value in rows if value])
    if events:
        click.echo()
        for at, event in events:
            detail = f"  {event.detail}" if event.detail else ""
            click.echo(f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}  {_named(event)}{detail}")


def message_of(task: Task) -> str | None:
    """Return the task's message, unless all that it says is its status."""
    return None if task.status_message == task.status.value else task.status_message


def _named(event: Event) -> str:
    return f"{event.kind} {event.status}" if event.kind == "status" else event.kind
