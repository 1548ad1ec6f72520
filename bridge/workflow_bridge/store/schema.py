"""The schema of the database: which one it has, and bringing it up to date from code."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from workflow_bridge.store import DatabaseUnusable, SchemaNewer
from workflow_bridge.store.sqlite import (
    SqliteDatabase,
    connected,
    create_file,
    keep_journal,
    open_engine,
    transact,
)
from workflow_bridge.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

REVISIONS: Final = ("0001",)
"""The revisions of `migrations/versions`, oldest first; here, so that a database can be judged
without importing Alembic, which takes as long as all the rest."""
HEAD: Final = REVISIONS[-1]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """Which schema a database has and which this build wants."""

    database: str
    revision: str | None
    """None: the database is empty, or not there."""
    head: str = HEAD

    @property
    def current(self) -> bool:
        """True if there is nothing to upgrade."""
        return self.revision == self.head


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a database is: a path, or memory (None)."""

    path: Path | None
    ours: bool = False
    """It is the default path, whose folders we make."""


def default_path() -> Path:
    """Return the file of the user's that ``sqlite`` stands for."""
    from platformdirs import user_data_path

    return user_data_path("workflow-bridge") / "bridge.db"


def check(url: str) -> Standing:
    """Say which schema the database has; changes nothing and makes no file.

    Raises `SchemaNewer` and `DatabaseUnusable`.
    """
    place = _place(url)
    if place.path is None or not place.path.exists():
        return Standing(str(place.path or "in memory"), None)
    create_file(place.path, private_folder=False)  # it is there: only judges the path
    engine = open_engine(place.path)
    try:
        with connected(engine) as connection:
            return Standing(str(place.path), revision(connection))
    finally:
        engine.dispose()


def upgrade(url: str) -> Standing:
    """Bring the database up to date, making it if need be; returns how it stood before.

    One process migrates, in one transaction, while others that want to wait for it. Raises
    `SchemaNewer` and `DatabaseUnusable`.
    """
    place = _place(url)
    before = check(url)
    _open(place).dispose()
    return before


def opened(url: str, *, clock: Callable[[], float] | None) -> SqliteDatabase:
    """Open the database with its schema up to date, as `upgrade` does."""
    return SqliteDatabase(_open(_place(url)), clock)


def revision(connection: Connection) -> str | None:
    """Return the revision of the database, None if it is empty.

    Raises `SchemaNewer` for one that this build does not know, and `DatabaseUnusable` if the
    database is somebody else's.
    """
    found = connection.exec_driver_sql(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).scalars()
    names = set(found)
    name = connection.engine.url.database or "in memory"
    if "alembic_version" in names:
        known = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if known is None or known in REVISIONS:
            return known
        raise SchemaNewer(
            f"the database's schema (revision {known}) is newer than this build, which knows"
            f" revision {HEAD} at most: run the newer mcp-workflow-bridge with {name}, or name"
            " another database"
        )
    if names:
        raise DatabaseUnusable(
            f"the database {name} cannot be used: it holds another program's tables; name a file of"
            " the bridge's own"
        )
    return None


def in_transaction(url: str, work: Callable[[Connection], None]) -> None:
    """Run Alembic's own commands (`alembic.ini`) on a database, with nobody else writing to it."""
    place = _place(url)
    if place.path is not None:
        create_file(place.path, private_folder=place.ours)
    engine = open_engine(place.path)
    try:
        with connected(engine) as connection:
            _migrating(connection, work)
    finally:
        engine.dispose()


def _migrate(connection: Connection) -> None:
    from alembic import command

    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def alembic_config() -> Config:
    """Return Alembic's configuration, with the migrations of this build."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _open(place: _Place) -> Engine:
    if place.path is not None:
        create_file(place.path, private_folder=place.ours)
    engine = open_engine(place.path)
    try:
        with connected(engine) as connection:
            if place.path is None:
                # New by nature, and made in a hundredth of the time; a test holds the two equal.
                metadata.create_all(connection)
                return engine
            # Judged before anything of it is changed: it may be somebody else's.
            found = revision(connection)
            keep_journal(connection)
            if found != HEAD:
                _upgrade(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _upgrade(connection: Connection) -> None:
    def work(connection: Connection) -> None:
        # Again, now that we have the lock: another process may have been faster.
        before = revision(connection)
        if before != HEAD:
            _migrate(connection)
            _log.info("schema_upgraded", extra={"before": before, "after": HEAD})

    _migrating(connection, work)


def _migrating(connection: Connection, work: Callable[[Connection], None]) -> None:
    # A migration that rebuilds a table drops the old one, which must not cascade into others.
    connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    try:
        transact(connection, work)
    finally:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")


def _migrations() -> Path:
    """Return the folder of migrations: in the wheel inside the package, else in the source tree."""
    package = Path(__file__).parents[1]
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parents[1] / "migrations"


def _place(url: str) -> _Place:
    """Read what the configuration calls the database; never repeats it, as it may hold secrets."""
    if url == "sqlite":
        return _Place(default_path(), ours=True)
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise DatabaseUnusable(
            "the database is no URL: write sqlite, or sqlite:///path/of/a/file"
        ) from None
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise DatabaseUnusable(
            f"databases of kind {parsed.get_backend_name()} are not supported by this build: write"
            " sqlite, or sqlite:///path/of/a/file"
        )
    if parsed.host or parsed.query:
        raise DatabaseUnusable(
            "the database URL has parts that SQLite has no use for: write sqlite:///path/of/a/file"
            " (four slashes for an absolute path) and nothing after the path"
        )
    if not parsed.database or parsed.database == ":memory:":
        return _Place(None)
    return _Place(Path(parsed.database).expanduser().absolute())
