"""What the tests of the store share."""

from __future__ import annotations

import pytest

from tests.store.postgres_server import PostgresServer, running


@pytest.fixture
def server() -> PostgresServer:
    """A PostgreSQL server, the same for all tests."""
    return running()


@pytest.fixture
def database_url(server: PostgresServer) -> str:
    """A PostgreSQL database with the schema and no rows; leave the schema as it is."""
    return server.emptied()
