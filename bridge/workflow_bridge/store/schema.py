"""The schema of the database: which one it has, and bringing it up to date from code."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from workflow_bridge.store import DatabaseUnusable, PoolOptions, SchemaNewer, SchemaOlder
from workflow_bridge.store.database import Database, Place
from workflow_bridge.store.sqlite import SqliteDatabase
from workflow_bridge.store.sqlite_file import SqliteFile, default_path
from workflow_bridge.store.tables import metadata, tasks

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["HEAD", "REVISIONS", "Standing", "check", "default_path", "opened", "upgrade"]

REVISIONS: Final = ("0001",)
"""The revisions of `migrations/versions`, oldest first; here, so that a database can be judged
without importing Alembic, which takes as long as all the rest."""
HEAD: Final = REVISIONS[-1]
UPGRADE: Final = "workflow-bridge db upgrade"
"""The command that brings a database up to date."""

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


def check(url: str, pool: PoolOptions | None = None) -> Standing:
    """Say which schema the database has; changes nothing and makes no file.

    Raises `SchemaNewer` and `DatabaseUnusable`.
    """
    place = _place(url, pool)
    if not place.exists():
        return Standing(place.name, None)
    engine = place.engine()
    try:
        with place.connected(engine) as connection:
            return Standing(place.name, revision(place, connection))
    finally:
        engine.dispose()


def upgrade(url: str, pool: PoolOptions | None = None) -> Standing:
    """Bring the database up to date, making a file if need be; returns how it stood before.

    One process migrates, in one transaction, while others that want to wait for it. Raises
    `SchemaNewer` and `DatabaseUnusable`.
    """
    before = check(url, pool)
    _open(_place(url, pool), migrate=True).dispose()
    return before


def opened(
    url: str,
    *,
    migrate: bool = False,
    pool: PoolOptions | None = None,
    clock: Callable[[], float] | None = None,
) -> Database:
    """Open the database, as `open_store` says."""
    place = _place(url, pool)
    engine = _open(place, migrate=migrate or place.migrates_itself)
    if isinstance(place, SqliteFile):
        return SqliteDatabase(engine, clock)
    from workflow_bridge.store.postgres import PostgresDatabase

    try:
        return PostgresDatabase(engine, place.name, pool or PoolOptions(), clock)
    except BaseException:
        engine.dispose()
        raise


def revision(place: Place, connection: Connection) -> str | None:
    """Return the revision of the database, None if it has none of our tables.

    Raises `SchemaNewer` for one that this build does not know, and `DatabaseUnusable` if the
    database is somebody else's.
    """
    tables = place.tables(connection)
    if "alembic_version" in tables:
        query = "SELECT version_num FROM alembic_version"
        known: str | None = connection.exec_driver_sql(query).scalar()
        if known in REVISIONS:
            return known
        if known is not None and tasks.name in tables:
            raise SchemaNewer(
                f"the database's schema (revision {known}) is newer than this build, which knows"
                f" revision {HEAD} at most: run the newer mcp-workflow-bridge with {place.name},"
                " or name another database"
            )
        if known is None:
            tables = set(tables) - {"alembic_version"}
    if place.foreign(tables):
        raise DatabaseUnusable(
            f"the database {place.name} cannot be used: it holds another program's tables; name one"
            " of the bridge's own"
        )
    return None


def in_transaction(url: str, work: Callable[[Connection], None]) -> None:
    """Run Alembic's own commands (`alembic.ini`) on a database, with nobody else migrating it."""
    place = _place(url)
    engine = place.engine()
    try:
        with place.connected(engine) as connection:
            place.alone(connection, work)
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


def _open(place: Place, *, migrate: bool) -> Engine:
    engine = place.engine()
    try:
        with place.connected(engine) as connection:
            if not place.lasting:
                # New by nature, and made in a hundredth of the time; a test holds the two equal.
                metadata.create_all(connection)
                return engine
            # Judged before anything of it is changed: it may be somebody else's.
            found = revision(place, connection)
            if not migrate:
                _refuse_older(place, found)
            place.prepare(connection)
            if found != HEAD:
                _upgrade(place, connection)
            place.judge(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _refuse_older(place: Place, found: str | None) -> None:
    if found == HEAD:
        return
    has = "holds no tables of the bridge yet"
    if found is not None:
        has = f"has schema revision {found}, and this build wants {HEAD}"
    raise SchemaOlder(f"the database {place.name} {has}; run: {UPGRADE}")


def _upgrade(place: Place, connection: Connection) -> None:
    def work(connection: Connection) -> None:
        # Again, now that we have the lock: another process may have been faster.
        before = revision(place, connection)
        if before != HEAD:
            _migrate(connection)
            _log.info("schema_upgraded", extra={"before": before, "after": HEAD})

    place.alone(connection, work)


def _migrations() -> Path:
    """Return the folder of migrations: in the wheel inside the package, else in the source tree."""
    package = Path(__file__).parents[1]
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parents[1] / "migrations"


def _place(url: str, pool: PoolOptions | None = None) -> Place:
    """Read what the configuration calls the database; never repeats it, as it may hold secrets."""
    if url == "sqlite":
        return SqliteFile(default_path(), ours=True)
    known = "write sqlite, sqlite:///path/of/a/file, or postgresql://user:password@host/database"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number, for one
        raise DatabaseUnusable(f"the database is no URL: {known}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return SqliteFile.of(parsed)
    if parsed.drivername in ("postgresql", "postgresql+psycopg", "postgres"):
        try:
            from workflow_bridge.store.postgres_place import PostgresPlace
        except ImportError:
            raise DatabaseUnusable(
                "PostgreSQL needs its driver: pip install 'mcp-workflow-bridge[postgres]'"
            ) from None
        return PostgresPlace.of(parsed, pool or PoolOptions())
    raise DatabaseUnusable(
        f"databases of kind {parsed.drivername} are not supported by this build: {known}"
    )
