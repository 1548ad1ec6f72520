"""What clients without tasks are told of the facade's tools: names, descriptions, arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcp_types import ToolAnnotations

from workflow_bridge.protocol.tools import ToolSpec

LONGEST_PAGE: Final = 50
"""Tasks on a page of `task_list`."""
_ID: Final = {
    "type": "string",
    "description": "The task's id, as a tool's answer or task_list gave it.",
}


def _schema(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TOOLS: Final = {
    spec.name: spec
    for spec in (
        ToolSpec(
            name="task_status",
            title="Status of a task",
            description=(
                "See how the work behind a task id stands, without waiting for it. Answers at once"
                " with status (queued, running, waiting, stopping, done, failed, cancelled, lost),"
                " the step it is in where that is known, and when to ask again. Use task_result"
                " to wait for the end and get the result."
            ),
            input_schema=_schema(("task_id",), task_id=_ID),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        ToolSpec(
            name="task_result",
            title="Result of a task",
            description=(
                "Get the result of the work behind a task id: the same answer that the tool itself"
                " would have given. If the work has not ended, waits for it a while; if it still"
                " has not ended then, says so, and can be called again. Reading a result changes"
                " nothing. A long text comes in pages: pass the offset that a page names to get"
                " the next one."
            ),
            input_schema=_schema(
                ("task_id",),
                task_id=_ID,
                offset={
                    "type": "integer",
                    "minimum": 0,
                    "description": "Where in the text to begin, in characters; 0 if left out.",
                },
                limit={
                    "type": "integer",
                    "minimum": 1,
                    "description": "The most characters of text to return.",
                },
            ),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        ToolSpec(
            name="task_cancel",
            title="Cancel a task",
            description=(
                "Stop the work behind a task id. The engine is asked to stop it; task_status tells"
                " when it has. Work that has already ended stays as it is, and keeps its result."
            ),
            input_schema=_schema(("task_id",), task_id=_ID),
            annotations=ToolAnnotations(
                read_only_hint=False,
                destructive_hint=True,
                idempotent_hint=True,
                open_world_hint=False,
            ),
        ),
        ToolSpec(
            name="task_list",
            title="List of tasks",
            description=(
                "List your tasks, newest first: running ones, and those that ended and are still"
                " kept, with their ids. Use it to find work whose call was cut off, instead of"
                " starting it again. Pass next_cursor as cursor to get the next page."
            ),
            input_schema=_schema(
                (),
                cursor={"type": "string", "description": "The next_cursor of the page before."},
                limit={
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LONGEST_PAGE,
                    "description": "The most tasks to return.",
                },
            ),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
    )
}
