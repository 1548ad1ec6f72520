"""A SQLite file before it is open: its path, its permissions, its journal, its schema's lock."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine

from workflow_bridge.store import DatabaseUnusable
from workflow_bridge.store.sqlite import (
    READ_ONLY,
    connected,
    driver_of,
    open_engine,
    patiently,
    transact,
)


def default_path() -> Path:
    """Return the file of the user's that ``sqlite`` stands for."""
    from platformdirs import user_data_path

    return user_data_path("workflow-bridge") / "bridge.db"


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """The `Place` of a path, or of a database in memory (None)."""

    path: Path | None
    ours: bool = False
    """It is the default path, whose folders we make."""
    migrates_itself: bool = True

    @classmethod
    def of(cls, url: URL) -> SqliteFile:
        """Read a URL; never repeats it, as it may hold secrets."""
        if url.host or url.query:
            raise DatabaseUnusable(
                "the database URL has parts that SQLite has no use for: write"
                " sqlite:///path/of/a/file (four slashes for an absolute path) and nothing after"
                " the path"
            )
        if not url.database or url.database == ":memory:":
            return cls(None)
        return cls(Path(url.database).expanduser().absolute())

    @property
    def name(self) -> str:
        return "in memory" if self.path is None else str(self.path)

    @property
    def lasting(self) -> bool:
        return self.path is not None

    def exists(self) -> bool:
        if self.path is None or not self.path.exists():
            return False
        _create(self.path, private_folder=False)  # it is there: only judges the path
        return True

    def engine(self) -> Engine:
        if self.path is not None:
            _create(self.path, private_folder=self.ours)
        return open_engine(self.path)

    @contextlib.contextmanager
    def connected(self, engine: Engine) -> Iterator[Connection]:
        with connected(engine) as connection:
            yield connection

    def tables(self, connection: Connection) -> Collection[str]:
        return set(
            connection.exec_driver_sql(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).scalars()
        )

    def foreign(self, tables: Collection[str]) -> bool:
        return bool(tables)

    def prepare(self, connection: Connection) -> None:
        """Give the file a write-ahead journal, so that readers and the writer do not wait."""
        if self.path is None:
            return

        def work() -> None:
            (mode,) = driver_of(connection).execute("PRAGMA journal_mode = WAL").fetchone()
            if mode not in ("wal", "memory"):
                raise DatabaseUnusable(
                    "the database cannot have a write-ahead journal, as on some network drives;"
                    " name a file on a local disk"
                )

        patiently(work, connection.engine.url.database)

    def judge(self, connection: Connection) -> None:
        """Do nothing: opening it has shown what it allows."""

    def alone(self, connection: Connection, work: Callable[[Connection], None]) -> None:
        # A migration that rebuilds a table drops the old one, which must not cascade into others.
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        try:
            transact(connection, work)
        finally:
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")


def _create(path: Path, *, private_folder: bool) -> None:
    """Make the file, readable for its user only, if it is not there yet.

    ``private_folder``: make its folders too. Raises `DatabaseUnusable` for a path that cannot be.
    """

    def wrong(what: str) -> DatabaseUnusable:
        return DatabaseUnusable(f"the database {path} cannot be used: {what}")

    try:
        if private_folder:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_dir():
            raise wrong("it is a folder; name a file in it")
        if not path.parent.is_dir():
            raise wrong(f"there is no folder {path.parent}; make it first")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as exc:
        raise wrong(
            f"it cannot be made ({exc.strerror}); make the folder writable for this user, or name"
            " another file"
        ) from exc
    # The journal lies beside the file, so the folder must be writable as well.
    effective = os.access in os.supports_effective_ids
    for place in (path, path.parent):
        if not os.access(place, os.R_OK | os.W_OK, effective_ids=effective):
            raise wrong(READ_ONLY)
