"""``workflow-bridge db``: the database's schema."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from workflow_bridge.cli import composing, options
from workflow_bridge.cli.exits import OK, PROBLEM, Stop
from workflow_bridge.cli.output import emit
from workflow_bridge.config import Database
from workflow_bridge.store import SchemaNewer, schema


@click.group("db")
def command() -> None:
    """Check the database, or bring it up to date.

    SQLite is brought up to date by whatever opens it; PostgreSQL only by `db upgrade`, or by
    `serve --migrate`.
    """


@command.command("check")
@options.config_option
@options.database_option
@options.json_option
@options.debug_option
def check(config: Path, database: str | None, as_json: bool) -> int:
    """Say which schema the database has; changes nothing. Exit code 1 if it is not current."""
    standing = _standing(composing.database(config, database))
    if as_json:
        emit({**asdict(standing), "current": standing.current})
    elif standing.current:
        click.echo(f"{standing.database}: current (revision {standing.revision})")
    elif standing.revision is None:
        click.echo(f"{standing.database}: not there yet, or empty; run: workflow-bridge db upgrade")
    else:
        click.echo(
            f"{standing.database}: revision {standing.revision}, this build wants"
            f" {standing.head}; run: workflow-bridge db upgrade"
        )
    return OK if standing.current else PROBLEM


@command.command("upgrade")
@options.config_option
@options.database_option
@options.json_option
@options.debug_option
def upgrade(config: Path, database: str | None, as_json: bool) -> int:
    """Bring the database up to date, making SQLite's file if need be.

    Safe while others do the same: one migrates, and the others wait for it.
    """
    where = composing.database(config, database)
    with composing.database_errors():
        before = schema.upgrade(where.url, composing.pool_options(where))
    if as_json:
        emit({"database": before.database, "before": before.revision, "after": before.head})
    elif before.current:
        click.echo(f"{before.database}: was current already (revision {before.head})")
    else:
        click.echo(f"{before.database}: {before.revision or 'empty'} → revision {before.head}")
    return OK


def _standing(database: Database) -> schema.Standing:
    try:
        return composing.standing(database)
    except Stop as exc:
        if isinstance(exc.__cause__, SchemaNewer):
            raise Stop(exc.message, PROBLEM) from exc
        raise
