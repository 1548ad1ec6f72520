"""``workflow-bridge tasks``: tasks in the database, whether or not a bridge runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import anyio
import click

from workflow_bridge.cli import composing, options
from workflow_bridge.cli.exits import OK, PROBLEM, Stop
from workflow_bridge.cli.output import age, emit, moment, note, table
from workflow_bridge.cli.reconciling import Comparison, compare
from workflow_bridge.cli.showing import as_data, message_of, show_task
from workflow_bridge.config import Database
from workflow_bridge.core import service as core
from workflow_bridge.core.store import Position, TaskStore
from workflow_bridge.core.task import Status, Task

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

PAGE = 500


def _common(function: F) -> F:
    for option in (
        options.debug_option,
        options.json_option,
        options.database_option,
        options.config_option,
    ):
        function = option(function)
    return function


def _owner(function: F) -> F:
    return click.option(
        "--owner",
        type=options.text,
        default="local",
        show_default=True,
        help="Whom the task belongs to.",
    )(function)


@click.group("tasks")
def command() -> None:
    """List, show, cancel, delete and reconcile tasks; on the database, beside running bridges."""


@command.command("list")
@click.option("--owner", type=options.text, help="Only tasks of this owner.")
@click.option("--status", type=click.Choice([s.value for s in Status]), help="Only these.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most.")
@_common
def list_(
    owner: str | None,
    status: str | None,
    limit: int,
    config: Path,
    database: str | None,
    as_json: bool,
) -> int:
    """List tasks, newest first."""

    async def read(store: TaskStore) -> list[Task]:
        found: list[Task] = []
        after: Position | None = None
        while page := await store.page(owner, after=after, limit=PAGE):
            found += [t for t in page if status in (None, t.status.value)]
            after = Position(page[-1].created_at, page[-1].row_id)
        return found[::-1]

    where = composing.database(config, database)
    tasks = [] if composing.standing(where).revision is None else _with_store(where, read)
    if as_json:
        emit([as_data(task) for task in tasks[:limit]])
        return OK
    columns = ("task", "tool", "status", "age", "step or reason")
    table(columns, [_row(t) for t in tasks[:limit]], whole="task")
    if len(tasks) > limit:
        note(f"{len(tasks) - limit} more; see them with --limit")
    return OK


@command.command("show")
@click.argument("task_id", type=options.text)
@click.option("--result", "only_result", is_flag=True, help="Print nothing but the output.")
@_owner
@_common
def show(
    task_id: str, owner: str, only_result: bool, config: Path, database: str | None, as_json: bool
) -> int:
    """Show all that is known of a task: its execution, steps, events, result or error."""

    async def read(store: TaskStore) -> Any:
        task = await store.get(owner, task_id)
        if task is None:
            raise _not_found(task_id)
        return task, await store.payload(task.row_id), await store.events(task.row_id)

    task, payload, events = _with_store(composing.database(config, database), read)
    if only_result:
        if payload.output is None:
            raise Stop(f"task {task_id} has no result: it is {task.status}", PROBLEM)
        click.echo(payload.output)
        return OK
    console = None if database else composing.console_url(config, task)
    if as_json:
        emit(as_data(task, payload, events, console))
    else:
        show_task(task, payload, events, console)
    return OK


@command.command("cancel")
@click.argument("task_id", type=options.text)
@click.option("--wait", is_flag=True, help="Stop it from here, and wait until that is confirmed.")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds to wait.")
@_owner
@_common
def cancel(
    task_id: str,
    owner: str,
    wait: bool,
    timeout: float,
    config: Path,
    database: str | None,
    as_json: bool,
) -> int:
    """Ask for a task's execution to be stopped.

    The wish is recorded; a running bridge carries it out. With --wait this command does so itself.
    """

    async def wish(store: TaskStore) -> Task:
        return await composing.still_service(store).cancel(owner, task_id, at_once=False)

    task = _with_store(composing.database(config, database), wish)
    if wait and not task.settled:
        task = _carry_out(config, database, task, timeout)
    if as_json:
        emit(as_data(task))
    elif task.final:
        click.echo(f"task {task_id} is {task.status}" + _reason(task))
    elif not wait:
        click.echo(f"task {task_id} is to be stopped: a running bridge does it, or --wait")
    if wait and not task.settled:
        raise Stop(f"the engine has not confirmed within {timeout:g} s; the wish stands", PROBLEM)
    return OK


@command.command("delete")
@click.argument("task_id", type=options.text)
@_owner
@_common
def delete(task_id: str, owner: str, config: Path, database: str | None, as_json: bool) -> int:
    """Delete a task that has ended, with its result."""

    async def work(store: TaskStore) -> None:
        await composing.still_service(store).delete(owner, task_id)

    _with_store(composing.database(config, database), work)
    if as_json:
        emit({"task_id": task_id, "deleted": True})
    else:
        note(f"task {task_id} is deleted")
    return OK


@command.command("reconcile")
@click.option(
    "--since",
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="How far back to look, as in 12h or 30d.",
)
@_common
def reconcile(since: str, config: Path, database: str | None, as_json: bool) -> int:
    """Compare the engines' executions with the tasks in the database.

    Reports executions that carry our prefix (wb-) and never had a task here, and tasks whose
    execution the engine does not know. Adopts, starts and stops nothing. Exit code 1 if there are
    any. Another bridge with a database of its own, on the same state machines, has tasks that are
    not here.
    """
    loaded = composing.load_config(config)
    age_of_oldest = options.duration(since, "--since")
    adapters = composing.open_adapters(loaded)
    workflows = composing.workflows(loaded)

    async def look(store: TaskStore) -> Comparison:
        async with composing.closing_adapters(adapters):
            listable = {
                name: [workflow for workflow, inline in of_backend.items() if not inline]
                for name, of_backend in workflows.items()
            }
            return await compare(store, adapters, listable, since=store.now() - age_of_oldest)

    where = composing.database(config, database)
    comparison = _with_store(where, look)
    found = comparison.differences
    if as_json:
        emit([asdict(difference) for difference in found])
    elif found:
        rows = [(d.backend, d.subject, moment(d.since), d.message, d.action) for d in found]
        table(("backend", "execution", "created", "problem", "what to do"), rows)
    for skipped in comparison.skipped:
        note(f"not compared: {skipped}")
    if not found:
        note(f"executions compared: {comparison.seen}; each has its task")
    return PROBLEM if found else OK


def _carry_out(config: Path, database: str | None, task: Task, timeout: float) -> Task:
    """Run a bridge here until the stop is confirmed."""
    loaded = composing.load_config(config)
    adapters = composing.open_adapters(loaded)

    async def work(store: TaskStore) -> Task:
        latest = task
        async with (
            composing.closing_adapters(adapters),
            composing.bridge(loaded, store, adapters),
        ):
            with anyio.move_on_after(timeout):
                while not latest.settled:
                    await anyio.sleep(0.1)
                    latest = await store.row(task.row_id) or latest
        return latest

    return _with_store(composing.database(config, database), work)


def _with_store(database: Database, work: Callable[[TaskStore], Awaitable[T]]) -> T:
    """Do something with the database; what is refused ends the command with a sentence."""
    store = composing.open_existing_store(database)

    async def run() -> T:
        try:
            return await work(store)
        except core.TaskNotFound as exc:
            raise _not_found(str(exc)) from exc
        except core.TaskExpired as exc:
            raise Stop(f"task {exc} has expired", PROBLEM) from exc
        except core.AlreadyFinal as exc:
            task = exc.task
            raise Stop(f"task {task.task_id} is already {task.status}", PROBLEM) from exc
        except core.StillRunning as exc:
            task = exc.task
            raise Stop(
                f"task {task.task_id} is still {task.status}: cancel it first, with"
                f" workflow-bridge tasks cancel {task.task_id}",
                PROBLEM,
            ) from exc
        except core.CannotStop as exc:
            raise Stop(f"task {exc} is an inline run, which cannot be stopped", PROBLEM) from exc
        finally:
            await store.aclose()

    with composing.database_errors():
        return anyio.run(run)


def _not_found(task_id: str) -> Stop:
    return Stop(f"there is no task {task_id}; see: workflow-bridge tasks list", PROBLEM)


def _row(task: Task) -> tuple[str, ...]:
    now = datetime.now(UTC)
    return (
        task.task_id,
        task.tool,
        task.status.value,
        age(max(now - task.created_at, timedelta(0))),
        (message_of(task) if task.final else task.step or task.last_error) or "",
    )


def _reason(task: Task) -> str:
    message = message_of(task)
    return f": {message}" if message else ""
