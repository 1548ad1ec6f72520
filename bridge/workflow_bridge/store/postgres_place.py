"""A PostgreSQL database before it is open: its URL, whether it will do, its schema's lock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from workflow_bridge.store import DatabaseUnusable, PoolOptions
from workflow_bridge.store.postgres_driver import driver_of, lock_number, open_engine
from workflow_bridge.store.postgres_errors import named
from workflow_bridge.store.tables import metadata

OLDEST: Final = 130000
"""PostgreSQL 13: the first that tells what became of a transaction by `pg_xact_status`."""
MIGRATION_LOCK: Final = lock_number("migrations")
_ATTEMPTS: Final = 4
_PAUSE: Final = 0.1
"""Seconds between them."""
_ALONE: Final = (
    "BEGIN ISOLATION LEVEL READ COMMITTED;"
    " SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0;"
    # As long as another process may migrate for; then, briefly, for tables that are in use: whoever
    # waits for such a lock makes all others wait who come after.
    f" SET LOCAL lock_timeout = '10min'; SELECT pg_advisory_xact_lock({MIGRATION_LOCK});"
    " SET LOCAL lock_timeout = '20s'"
).encode()

_SERVER: Final = """
    SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
        current_schema() IS NOT NULL, pg_is_in_recovery()
"""
_TABLES: Final = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"
_MISSING: Final = """
    SELECT lower(wanted) || ' on ' || name FROM
        (SELECT name, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS wanted
            FROM unnest(ARRAY['tasks', 'task_payloads']) AS name
        UNION SELECT 'task_events', unnest(ARRAY['SELECT', 'INSERT'])) AS needed
        WHERE NOT has_table_privilege(name, wanted)
    UNION SELECT 'usage on ' || name FROM pg_get_serial_sequence('task_events', 'id') AS name
        WHERE NOT has_sequence_privilege(name, 'USAGE')
    ORDER BY 1
"""


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """The `Place` of a database on a server; our tables are in the user's current schema."""

    url: URL
    options: PoolOptions
    lasting: bool = True
    migrates_itself: bool = False

    @classmethod
    def of(cls, url: URL, options: PoolOptions) -> PostgresPlace:
        """Read a URL; what is in its query goes to libpq, as ``sslmode`` does."""
        if "@" in (url.host or ""):
            raise DatabaseUnusable(
                "the database URL has an @ too many: write %40 for one in a user or password"
            )
        return cls(url.set(drivername="postgresql+psycopg"), options)

    @property
    def name(self) -> str:
        """The database, host and port, as far as the URL or libpq's environment tell."""
        query = self.url.query
        host = query.get("host") or self.url.host or os.environ.get("PGHOST") or "the local socket"
        hosts = host if isinstance(host, str) else ", ".join(host)
        port = str(query.get("port") or self.url.port or os.environ.get("PGPORT") or "")
        if port and ":" not in hosts:
            hosts = f"{hosts}:{port}"
        database = self.url.database or query.get("dbname") or os.environ.get("PGDATABASE")
        return f"{database or '(default)'} on {hosts}"

    def exists(self) -> bool:
        return True

    def engine(self) -> Engine:
        return open_engine(self.url, self.options)

    @contextmanager
    def connected(self, engine: Engine) -> Iterator[Connection]:
        with named(self.name), self._connect(engine) as connection:
            yield connection

    def _connect(self, engine: Engine) -> Connection:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                connection = engine.connect()
                try:
                    self._judge_server(connection)
                except BaseException:
                    connection.close()
                    raise
            except DBAPIError as exc:
                # A session that ends at once is an old one that a pooler has not yet found dead.
                if not exc.connection_invalidated or attempt == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE)
            else:
                return connection
        raise AssertionError

    def _judge_server(self, connection: Connection) -> None:
        version, encoding, has_schema, standby = connection.exec_driver_sql(_SERVER).one()
        wrong = None
        if version < OLDEST:
            wrong = (
                f"its server is PostgreSQL {version // 10000}; version 13 is the oldest that does"
            )
        elif encoding != "UTF8":
            wrong = f"its encoding is {encoding}; create it with ENCODING 'UTF8' TEMPLATE template0"
        elif standby:
            wrong = "it is a standby, which is read-only; name the primary"
        elif not has_schema:
            wrong = "it has none of the schemas in the user's search_path; create one"
        if wrong:
            raise DatabaseUnusable(f"the database {self.name} cannot be used: {wrong}")

    def tables(self, connection: Connection) -> Collection[str]:
        return set(connection.exec_driver_sql(_TABLES).scalars())

    def foreign(self, tables: Collection[str]) -> bool:
        # Others may have tables beside ours, as extensions do, but not of the same names.
        return not {"alembic_version", *metadata.tables}.isdisjoint(tables)

    def prepare(self, connection: Connection) -> None:
        """Do nothing: the server has been judged, and it is its administrator's."""

    def judge(self, connection: Connection) -> None:
        """Refuse a database whose tables this user may not work with."""
        missing = list(connection.exec_driver_sql(_MISSING).scalars())
        if missing:
            raise DatabaseUnusable(
                f"the database {self.name} cannot be used: its user lacks rights"
                f" ({', '.join(missing)}); grant them, or connect as the owner of the tables"
            )

    def alone(self, connection: Connection, work: Callable[[Connection], None]) -> None:
        driver = driver_of(connection)
        driver.execute(_ALONE)
        try:
            work(connection)
        except BaseException:
            driver.rollback()
            raise
        driver.execute(b"COMMIT")
