"""Alembic's environment: run from code on a given connection, or by developers on a URL."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy import Connection

from workflow_bridge.store import schema
from workflow_bridge.store.tables import metadata


def run(connection: Connection) -> None:
    """Run what was asked for, inside the transaction that the connection is in."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        compare_server_default=True,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def asked_for() -> str:
    """Return the URL from ``-x url=…`` or the environment."""
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get(
        "WORKFLOW_BRIDGE_DATABASE"
    )
    if not url:
        raise SystemExit("say which database: -x url=sqlite:///path, or WORKFLOW_BRIDGE_DATABASE")
    return url


if context.is_offline_mode():
    raise SystemExit("migrations run on a database: --sql is not supported")
given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    schema.in_transaction(asked_for(), run)
