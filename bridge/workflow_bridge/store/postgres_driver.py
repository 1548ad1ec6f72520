"""psycopg under the store: the engine, and what is said to the driver itself."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, Final

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError

from workflow_bridge.store import PoolOptions

CLOCK: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::float8"
"""The moment in milliseconds, in SQL."""


class Undecided(Exception):
    """The server still works on a transaction whose commit we lost the answer of."""


def open_engine(url: URL, options: PoolOptions) -> Engine:
    """Make the engine; connects to nothing. What the URL's query sets wins over our settings.

    Every connection is in the driver's autocommit mode: transactions are begun and ended by their
    own words, and a read by primary key needs none.
    """
    settings: dict[str, Any] = {
        "application_name": options.application_name,
        "client_encoding": "utf8",
        "connect_timeout": max(2, round(seconds(options.connect_timeout))),  # libpq's least
        # A peer that is gone without a word is noticed within half a minute.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    return create_engine(
        url,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        use_native_hstore=False,
        connect_args={
            **{name: value for name, value in settings.items() if name not in url.query},
            "prepare_threshold": None,
        },
        pool_size=options.size,
        max_overflow=0,
        pool_use_lifo=True,
        pool_recycle=seconds(options.recycle),
    )


def begin(level: str, options: PoolOptions, what: str) -> bytes:
    """Return what begins a transaction and asks for something and the time, in one round trip."""
    limits = "".join(
        f" SET LOCAL {setting} = {limit // timedelta(milliseconds=1)};"
        for setting, limit in (
            ("statement_timeout", options.statement_timeout),
            ("lock_timeout", options.lock_timeout),
            # Should this process be cut off, the server does not keep its locks for hours.
            ("idle_in_transaction_session_timeout", options.patience),
        )
    )
    isolation = f"BEGIN ISOLATION LEVEL READ COMMITTED {level};"
    return f"{isolation}{limits} SELECT {what}, {CLOCK}".encode()


def driver_of(connection: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's connection."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def lock_number(name: str) -> int:
    """Return the number of an advisory lock of ours, the same in every process and version."""
    return int.from_bytes(
        hashlib.sha256(f"workflow-bridge {name}".encode()).digest()[:8], signed=True
    )


def roll_back(connection: Connection) -> None:
    """End a transaction without a trace, or its connection."""
    if not connection.invalidated:
        try:
            driver_of(connection).rollback()
        except psycopg.Error:
            connection.invalidate()


def committed(connection: Connection, xid: str) -> bool:
    """Whether a transaction was committed; raises `Undecided`."""
    try:
        query = "SELECT pg_xact_status(%s::text::xid8)"
        status = connection.exec_driver_sql(query, (xid,)).scalar_one()
    except DBAPIError as exc:
        if isinstance(exc.orig, psycopg.errors.InvalidParameterValue):
            return False  # still to come: the server is a standby of old that never heard of it
        raise
    if status not in ("committed", "aborted"):
        raise Undecided
    return bool(status == "committed")


def seconds(duration: timedelta) -> float:
    """Return a duration as Python's own functions take it."""
    return duration.total_seconds()
