"""The PostgreSQL of the tests, made as durable as it is meant to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.store.postgres_server import PostgresServer


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Run a server until the block is left."""
    server = PostgresServer()
    try:
        server.start()
        for setting in ("fsync = on", "full_page_writes = on", "log_statement = 'none'"):
            server.execute(f"ALTER SYSTEM SET {setting}")
        server.restart("fast")
        yield server
    finally:
        server.stop()
