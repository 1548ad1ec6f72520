"""Comparing the engines with the database. Changes neither."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio

from workflow_bridge.adapter import (
    Adapter,
    AdapterError,
    ExecutionNotFound,
    ExecutionRef,
    Listed,
    Lists,
    Page,
)
from workflow_bridge.core.store import Position, TaskStore
from workflow_bridge.core.task import KEY_PREFIX, Task

MOST_PAGES: Final = 100
"""Of one workflow; a page of Step Functions has a thousand executions."""
_ROWS: Final = 500
_KEEP_OR_STOP: Final = "stop it at the engine, or let it run: no bridge knows it"
_ENDED: Final = "nothing, or find out who started it: no bridge knows it"
_GONE: Final = "nothing: once it has been missing for `missing_after`, its task ends as unknown"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is on one side alone, or cannot be seen. ``kind`` is for programs."""

    kind: str
    backend: str
    subject: str
    since: datetime | None
    message: str
    action: str


@dataclass(slots=True)
class Comparison:
    """What was found, and what could not be looked at."""

    differences: list[Difference] = field(default_factory=list)
    seen: int = 0
    """Executions with our prefix."""
    skipped: list[str] = field(default_factory=list)
    """What was not compared, in words."""


async def compare(
    store: TaskStore,
    adapters: Mapping[str, Adapter],
    workflows: Mapping[str, Iterable[str]],
    *,
    since: datetime,
    most_pages: int = MOST_PAGES,
) -> Comparison:
    """Compare all that was started at or after ``since`` by workflows, named by backend."""
    comparison = Comparison()
    listed: dict[ExecutionRef, tuple[str, Listed]] = {}
    whole: set[tuple[str, str]] = set()

    async def look(backend: str, adapter: Adapter) -> None:
        if not isinstance(adapter, Lists):
            comparison.skipped.append(f"backend {backend}: its adapter cannot list executions")
            return
        for workflow in workflows[backend]:
            try:
                async for number, page in _pages(adapter, workflow, since):
                    for one in page.executions:
                        listed.setdefault(one.ref, (backend, one))
                    if page.cursor is None:
                        whole.add((backend, workflow))
                    elif number == most_pages:
                        what = f"{workflow}: all that comes after page {number} of its list"
                        comparison.skipped.append(what)
                        break
            except AdapterError as exc:
                comparison.differences.append(_unseen(backend, workflow, exc))

    async with anyio.create_task_group() as group:
        for backend, adapter in adapters.items():
            group.start_soon(look, backend, adapter)
    comparison.seen = len(listed)
    # After the engines: a row is there before its execution is.
    comparison.differences += await _without_task(store, listed)
    comparison.differences += await _without_execution(store, adapters, whole, listed, since)
    comparison.differences.sort(key=lambda found: (found.backend, found.kind, found.subject))
    return comparison


async def _pages(adapter: Lists, workflow: str, since: datetime) -> AsyncIterator[tuple[int, Page]]:
    cursor: str | None = None
    for number in itertools.count(1):
        page = await adapter.list_executions(
            workflow, prefix=KEY_PREFIX, since=since, cursor=cursor
        )
        yield number, page
        cursor = page.cursor
        if cursor is None:
            return
        # The rate belongs to the whole account, and serving bridges need it more than we do.
        await anyio.sleep(1 / adapter.pages_per_second)


async def _without_task(
    store: TaskStore, listed: Mapping[ExecutionRef, tuple[str, Listed]]
) -> list[Difference]:
    keys = {one.key.removeprefix(KEY_PREFIX) for _, one in listed.values()}
    held = await store.ever_held(keys)
    return [
        Difference(
            kind="no_task",
            backend=backend,
            subject=one.ref,
            since=one.created_at,
            message="an execution with our prefix, and the database never held its task"
            + ("" if one.ended else "; it is running"),
            action=_ENDED if one.ended else _KEEP_OR_STOP,
        )
        for backend, one in listed.values()
        if one.key.removeprefix(KEY_PREFIX) not in held
    ]


async def _without_execution(
    store: TaskStore,
    adapters: Mapping[str, Adapter],
    whole: Collection[tuple[str, str]],
    listed: Mapping[ExecutionRef, object],
    since: datetime,
) -> list[Difference]:
    """Lists lag behind: what is missing from one is asked for by itself."""
    found: list[Difference] = []
    async for task in _unfinished(store, since):
        if task.ref is None or task.ref in listed or (task.backend, task.workflow) not in whole:
            continue
        try:
            await adapters[task.backend].observe(task.ref)
        except ExecutionNotFound:
            message = f"task {task.task_id} is {task.status}, and the engine does not know it"
            found.append(
                Difference("no_execution", task.backend, task.ref, task.created_at, message, _GONE)
            )
        except AdapterError:
            continue  # nothing is known of it, which is no difference
    return found


async def _unfinished(store: TaskStore, since: datetime) -> AsyncIterator[Task]:
    after: Position | None = Position(since, "")
    while page := await store.page(None, after=after, limit=_ROWS):
        for task in page:
            if not task.final:
                yield task
        after = Position(page[-1].created_at, page[-1].row_id)


def _unseen(backend: str, workflow: str, exc: AdapterError) -> Difference:
    action = "allow it, or make the backend reachable; then compare again"
    return Difference("not_compared", backend, workflow, None, str(exc), action)
