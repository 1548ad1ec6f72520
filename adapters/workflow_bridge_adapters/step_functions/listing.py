"""A page of ListExecutions → what the bridge may have started in it. Pure.

Shapes and order after the API reference (2016-11-23): running executions stand at the place of
their start, others at that of their stop, newest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from workflow_bridge.adapter import ExecutionRef, Listed, Page
from workflow_bridge_adapters.step_functions.outcomes import utc


def page_from(response: Mapping[str, Any], *, prefix: str, since: datetime) -> Page:
    """Keep what is as young as ``since``; with nothing of that left, it is the last page."""
    items = response["executions"]
    listed = (_listed(item) for item in items if str(item["name"]).startswith(prefix))
    kept = tuple(one for one in listed if one is not None and one.created_at >= since)
    # None after the last can have been started later than it was started or stopped.
    exhausted = bool(items) and _place(items[-1], since) < since
    return Page(kept, None if exhausted else response.get("nextToken"))


def _listed(item: Mapping[str, Any]) -> Listed | None:
    created_at = utc(item["startDate"])
    if created_at is None:
        return None
    return Listed(
        ExecutionRef(item["executionArn"]), item["name"], created_at, item["status"] != "RUNNING"
    )


def _place(item: Mapping[str, Any], otherwise: datetime) -> datetime:
    place = item.get("stopDate") or item.get("redriveDate") or item.get("startDate")
    return utc(place) or otherwise
