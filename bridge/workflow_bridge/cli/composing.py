"""From bridge.yaml to the parts that run, with every failure turned into a sentence."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from workflow_bridge import __version__
from workflow_bridge.adapter import Adapter, Narrates
from workflow_bridge.cli.exits import PROBLEM, Stop
from workflow_bridge.cli.options import CONFIG_VARIABLE
from workflow_bridge.core.policy import KeepAlive, Tool

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from workflow_bridge.config import Config, Database
    from workflow_bridge.core.service import TaskService
    from workflow_bridge.core.store import TaskStore
    from workflow_bridge.core.task import Task
    from workflow_bridge.protocol.inflight import Owner
    from workflow_bridge.protocol.plain import HandOver
    from workflow_bridge.store import PoolOptions
    from workflow_bridge.store.schema import Standing
    from workflow_bridge.store.sql import SqlTaskStore

OWNER: Final = "local"
"""Over stdio there is one user: whoever started us."""
INSTRUCTIONS: Final = (
    "Each tool starts a workflow in an external engine. A call may become a task: it goes on when"
    " the connection is lost, and its result can be fetched later by the task's id."
)


def load_config(path: Path) -> Config:
    """Read the configuration; what is wrong with it ends the command."""
    from workflow_bridge.config import ConfigError, load

    must_exist(path)
    try:
        return load(path, os.environ)
    except ConfigError as exc:
        issues = "\n".join(f"  {issue}" for issue in exc.issues)
        raise Stop(f"the configuration cannot be used:\n{issues}") from exc


def must_exist(path: Path) -> None:
    """End the command if there is no such configuration."""
    if not path.exists():
        raise Stop(f"there is no configuration {path}; name one with --config or {CONFIG_VARIABLE}")


def database(path: Path, named: str | None) -> Database:
    """Return the database named on the command line, else the configuration's."""
    if named is None:
        return load_config(path).database
    from workflow_bridge.config import Database, Pool

    # Not judged here: the store says what is wrong with a URL.
    return Database.model_construct(url=named, pool=Pool())


def pool_options(database: Database) -> PoolOptions:
    """Return what the store needs to know of connections."""
    from workflow_bridge.store import PoolOptions

    return PoolOptions(**dict(database.pool))


def open_adapters(config: Config) -> dict[str, Adapter]:
    """Make the adapters; no I/O."""
    from workflow_bridge import config as configuration

    return configuration.open_adapters(config)


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn what is wrong with the database into the end of the command."""
    from workflow_bridge.store import DatabaseUnavailable, DatabaseUnusable

    try:
        yield
    except (DatabaseUnusable, DatabaseUnavailable) as exc:
        raise Stop(str(exc)) from exc


def open_store(database: Database, *, migrate: bool = False) -> SqlTaskStore:
    """Open the database; blocks, on the network too, so never on an event loop.

    SQLite is brought up to date; PostgreSQL only with ``migrate``, and refused if it is older.
    """
    from workflow_bridge import store

    with database_errors():
        return store.open_store(database.url, migrate=migrate, pool=pool_options(database))


def open_existing_store(database: Database) -> SqlTaskStore:
    """Open a database that is there already: looking at tasks makes none."""
    if standing(database).revision is None:
        raise Stop("there are no tasks yet: the database is not there, or empty", PROBLEM)
    return open_store(database)


def standing(database: Database) -> Standing:
    """Say which schema the database has; changes nothing. Blocks."""
    from workflow_bridge.store import schema

    with database_errors():
        return schema.check(database.url, pool_options(database))


def console_url(path: Path, task: Task) -> str | None:
    """Return the page of the engine's console that shows a task's execution, if there is one."""
    adapter = open_adapters(load_config(path)).get(task.backend)
    if task.ref is None or not isinstance(adapter, Narrates):
        return None
    return adapter.console_url(task.ref)


def workflows(config: Config) -> dict[str, dict[str, bool]]:
    """Return the workflows of each backend, and whether they run inline."""
    found: dict[str, dict[str, bool]] = {name: {} for name in config.backends}
    for _, tool in sorted(config.tools.items()):
        found[tool.backend][tool.workflow] = tool.inline
    return found


def core_tools(config: Config) -> dict[str, Tool]:
    """Return what the core needs to know of the tools."""
    return {
        name: Tool(
            name=name,
            backend=tool.backend,
            workflow=tool.workflow,
            inline=tool.inline,
            poll=tool.poll,
            keep_alive=tool.keep_alive,
            failure_completes=tool.on_failure == "tool_error",
            idempotent=tool.idempotent,
            start_within=tool.start_within,
            missing_after=tool.missing_after,
        )
        for name, tool in config.tools.items()
    }


def core_keep_alive(config: Config) -> KeepAlive:
    """Return the bounds on how long tasks are kept."""
    limits = config.limits.keep_alive
    return KeepAlive(default=limits.default, minimum=limits.min, maximum=limits.max)


def bridge(
    config: Config, store: TaskStore, adapters: dict[str, Adapter]
) -> AbstractAsyncContextManager[TaskService]:
    """Run the core until the block is left."""
    from workflow_bridge.core.running import running

    return running(
        store,
        adapters,
        core_tools(config),
        calls_per_second={name: backend.calls for name, backend in config.backends.items()},
        keep_alive=core_keep_alive(config),
        concurrent_tasks=config.limits.concurrent_tasks,
        tombstone=config.retention.tombstone,
    )


def mcp_server(
    config: Config,
    service: TaskService,
    *,
    owner: Owner = lambda _: OWNER,
    hand_over: HandOver | None = None,
) -> Server[Any]:
    """Return the MCP server in front of a service; unless told otherwise for one user alone."""
    from workflow_bridge.protocol.limits import Rates
    from workflow_bridge.protocol.server import build_server
    from workflow_bridge.protocol.tools import ToolSpec

    limits = config.limits
    return build_server(
        service,
        {
            name: ToolSpec(
                name=name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                task=tool.task,
                inline=tool.inline,
                expose_cause=tool.expose_cause,
                max_text=tool.max_text,
            )
            for name, tool in config.tools.items()
        },
        owner=owner,
        hand_over=hand_over,
        rates=Rates(create=limits.create, poll=limits.poll, result=limits.result, list=limits.list),
        plain_max_wait=config.server.plain_call.max_wait,
        facade=config.server.plain_call.facade,
        delete_running=config.delete.running == "cancel",
        name="workflow-bridge",
        version=__version__,
        instructions=INSTRUCTIONS,
    )


@asynccontextmanager
async def closing_adapters(adapters: dict[str, Adapter]) -> AsyncIterator[None]:
    """Close the adapters when the block is left."""
    try:
        yield
    finally:
        for adapter in adapters.values():
            await adapter.aclose()


@asynccontextmanager
async def closing(store: TaskStore, adapters: dict[str, Adapter]) -> AsyncIterator[None]:
    """Close the store and the adapters when the block is left."""
    try:
        async with closing_adapters(adapters):
            yield
    finally:
        await store.aclose()


def still_service(store: TaskStore) -> TaskService:
    """Return a service that reads and records wishes, and never calls an engine."""
    from workflow_bridge.core.service import TaskService
    from workflow_bridge.core.waiters import Waiters
    from workflow_bridge.core.worker import Worker

    waiters = Waiters(store.row)
    worker = Worker(store, {}, {}, waiters)
    return TaskService(store, worker, waiters, {}, {}, keep_alive=KeepAlive())
