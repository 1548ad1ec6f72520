"""``workflow-bridge serve``: the bridge itself."""

from __future__ import annotations

import gc
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import click

from workflow_bridge import __version__
from workflow_bridge.cli import composing, journal, options, streams, transports
from workflow_bridge.cli.exits import Stop
from workflow_bridge.store import SchemaOlder

if TYPE_CHECKING:
    from workflow_bridge.config import Config, Database
    from workflow_bridge.core.store import TaskStore
    from workflow_bridge.store.sql import SqlTaskStore

RESOURCE_USE_EVERY: Final = 60.0
"""Seconds between two `resource_use` lines (A-33)."""
GARBAGE: Final = (10_000, 20, 50)
"""Objects made until garbage is collected, and of how many such times older ones are looked
through, and all. With Python's own (700, 10, 10) a thousand sessions spend half of the time on
looking through one another's objects; this costs some 10 MB."""

log = journal.logger(__name__)


@click.command("serve")
@options.config_option
@click.option(
    "--log-level",
    type=click.Choice(journal.LEVELS),
    default="info",
    show_default=True,
    help="Log from this level on.",
)
@click.option(
    "--migrate", is_flag=True, help="Bring an older PostgreSQL schema up to date before serving."
)
@options.debug_option
def command(config: Path, log_level: str, migrate: bool) -> None:
    """Serve MCP clients over stdin and stdout, until stdin ends or SIGTERM or SIGINT comes.

    Or over HTTP, where the configuration says `server: {transport: http}`, until such a signal.
    Over stdio stdout belongs to the protocol. The log goes to stderr, one JSON object per line.
    Ending gives starts and stops in flight five seconds; what is left is taken up by the next
    bridge.
    """
    # Hosts wait for us. Collecting garbage while a thousand classes are made costs a tenth of the
    # time and finds none; `_serve` turns it on again.
    gc.disable()
    # Looking for plug-ins of pydantic means reading the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    journal.configure(log_level)
    configuration = composing.load_config(config)
    if configuration.server.transport == "stdio" and streams.was_closed("stdout"):
        raise Stop("stdout is closed, and over stdio it is where the client gets its answers")
    sockets = transports.open_sockets(configuration)
    store = _opened(configuration.database, config, migrate=migrate)
    anyio.run(_serve, configuration, store, sockets)


def _opened(database: Database, config: Path, *, migrate: bool) -> SqlTaskStore:
    try:
        return composing.open_store(database, migrate=migrate)
    except Stop as exc:
        if not isinstance(exc.__cause__, SchemaOlder):
            raise
        # It ends with the command that upgrades the database.
        argument = options.config_argument(config)
        raise Stop(f"{exc.message}{argument}, or serve with --migrate") from exc


async def _serve(config: Config, store: SqlTaskStore, sockets: list[socket.socket]) -> None:
    adapters = composing.open_adapters(config)
    serving = anyio.CancelScope()
    ended_by: list[str] = []

    async def listen(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                ended_by.append(signal.Signals(number).name)
                serving.cancel()

    async with anyio.create_task_group() as helpers:
        # First in, last out: a second signal must not end the ending.
        await helpers.start(listen)
        async with (
            composing.closing(store, adapters),
            composing.bridge(config, store, adapters) as service,
            anyio.create_task_group() as within,
        ):
            within.start_soon(resource_use, store)
            log.info("serving", version=__version__, pid=os.getpid(), tools=sorted(config.tools))
            gc.freeze()
            gc.set_threshold(*GARBAGE)
            gc.enable()
            with serving:
                await transports.serve(config, service, store, sockets)
            within.cancel_scope.cancel()
        log.info("ended", by=ended_by[0] if ended_by else "client")
        helpers.cancel_scope.cancel()


async def resource_use(store: TaskStore, every: float = RESOURCE_USE_EVERY) -> None:
    """Log, again and again, what this process and its database hold."""
    while True:
        await anyio.sleep(every)
        try:
            tasks = dict(await store.census())
        except Exception:
            log.exception("census_failed")
            tasks = {}
        log.info("resource_use", tasks=tasks, rss_bytes=_rss(), open_files=_open_files())


def _rss() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int | None:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return sum(1 for _ in Path(folder).iterdir())
        except OSError:
            continue
    return None
