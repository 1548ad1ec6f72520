"""Where tasks live: the SQL store.

Importing this package is cheap; SQLAlchemy and a driver are imported when a store is opened, and
Alembic only when there is something to migrate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workflow_bridge.core.store import StoreError, StoreUnavailable
from workflow_bridge.store.options import PoolOptions

if TYPE_CHECKING:
    from workflow_bridge.store.sql import SqlTaskStore

__all__ = [
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "PoolOptions",
    "SchemaNewer",
    "SchemaOlder",
    "open_store",
]


class DatabaseUnusable(StoreError):
    """The database cannot be opened as it is; the text says why and what to do, for operators."""


class SchemaNewer(DatabaseUnusable):
    """A newer build has upgraded the database to a schema that this one does not know."""


class SchemaOlder(DatabaseUnusable):
    """The database's schema is older than this build wants, or not there yet."""


class DatabaseUnavailable(StoreUnavailable):
    """An open database does not answer or store, or not in time; it may do so later.

    Nothing was changed, unless the text says that it may have been; compare-and-set on the version
    keeps what is then done again from being done twice.
    """


def open_store(
    url: str,
    *,
    migrate: bool = False,
    pool: PoolOptions | None = None,
    clock: Callable[[], float] | None = None,
) -> SqlTaskStore:
    """Open the store at ``sqlite`` (a file of the user's), ``sqlite:///path``, ``sqlite://`` (in
    memory) or ``postgresql://user:password@host:port/database``.

    SQLite's file is made, and an older schema of it brought up to date. PostgreSQL's is brought up
    to date only with ``migrate``; else an older one is `SchemaOlder`, which names the command to
    run. Either waits while another process does so.

    ``clock``, for tests, gives seconds since 1970 in place of the database's clock. Raises
    `DatabaseUnusable`. Blocks (SQLite about 10 ms on a schema that is current): it is called once,
    where there is nothing to serve yet.
    """
    from workflow_bridge.store.schema import opened
    from workflow_bridge.store.sql import SqlTaskStore

    return SqlTaskStore(opened(url, migrate=migrate, pool=pool or PoolOptions(), clock=clock))
