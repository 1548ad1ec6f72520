"""What operators may set about the connections to a database server."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Connections to PostgreSQL; SQLite has no use for them.

    ``connect_timeout``, ``statement_timeout`` and ``lock_timeout`` bound one attempt, ``patience``
    all attempts of one call, the time it queues included.
    """

    size: int = 10
    """Connections of this process at most, and threads: half of them write, half read."""
    connect_timeout: timedelta = timedelta(seconds=5)
    statement_timeout: timedelta = timedelta(seconds=10)
    lock_timeout: timedelta = timedelta(seconds=5)
    idle: timedelta = timedelta(minutes=5)
    """A connection unused for longer is replaced: something on the way may have forgotten it."""
    recycle: timedelta = timedelta(minutes=30)
    """A connection older than that is replaced: addresses, certificates and servers change."""
    patience: timedelta = timedelta(seconds=15)
    application_name: str = "workflow-bridge"

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError("a pool has two connections at least: one reads and one writes")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, timedelta) and value < timedelta(milliseconds=1):
                raise ValueError(f"{field.name} is a millisecond at least")
