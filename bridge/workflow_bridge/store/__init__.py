"""Where tasks live: the SQL store.

Importing this package is cheap; SQLAlchemy is imported when a store is opened, and Alembic only
when there is something to migrate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workflow_bridge.core.store import StoreError

if TYPE_CHECKING:
    from workflow_bridge.store.sql import SqlTaskStore

__all__ = ["DatabaseUnusable", "SchemaNewer", "open_store"]


class DatabaseUnusable(StoreError):
    """The database cannot be used as it is; the text says why and what to do, for operators."""


class SchemaNewer(DatabaseUnusable):
    """A newer build has upgraded the database to a schema that this one does not know."""


def open_store(url: str, *, clock: Callable[[], float] | None = None) -> SqlTaskStore:
    """Open the store at ``sqlite`` (a file of the user's), ``sqlite:///path`` or ``sqlite://``.

    Makes the file and brings an older schema up to date, waiting while another process does so.
    ``clock`` gives seconds since 1970. Raises `DatabaseUnusable` or `SchemaNewer`. Blocks (about
    10 ms on a schema that is current): it is called once, where there is nothing to serve yet.
    """
    from workflow_bridge.store.schema import opened
    from workflow_bridge.store.sql import SqlTaskStore

    return SqlTaskStore(opened(url, clock=clock))
