"""The clocks of databases: a server's is told without asking it each time."""

from __future__ import annotations

import threading
import time
from typing import Final

STALE_AFTER: Final = 5.0
"""Seconds until the server is asked again, with whatever is asked of it then."""


def in_milliseconds(seconds: float) -> int:
    """Return seconds since 1970 in whole milliseconds, cut."""
    # A float of seconds is good for about a microsecond; rounding to that first keeps a time such
    # as 1.001 from becoming 1000 ms.
    return round(seconds * 1_000_000) // 1000


class ServerClock:
    """The server's clock as our own monotonic one plus an offset.

    Each answer that carries the server's time bounds the offset by the moments of asking and
    hearing. The offset is moved only when it is out of bounds, and then no further than to them: so
    it comes to lie within the quickest round trip of late, and time stands still or jumps only when
    the server's clock did. Between two answers our clocks drift apart by some 0.1 ms a second at
    worst. After a jump of the server's clock it is right again with the next write, or with the
    next read once `STALE_AFTER` has passed.
    """

    def __init__(self) -> None:
        self._offset: float | None = None
        self._heard = float("-inf")
        self._turn = threading.Lock()

    def milliseconds(self) -> int:
        """Return the server's time, in whole milliseconds since 1970."""
        if self._offset is None:
            raise RuntimeError("the server has not been asked yet")
        return int(time.monotonic() * 1000 + self._offset)

    @property
    def stale(self) -> bool:
        """True if the server should be asked again."""
        return time.monotonic() - self._heard > STALE_AFTER

    def learn(self, server_ms: float, asked: float) -> None:
        """Take in an answer just heard; ``asked`` is our monotonic time of asking, in seconds."""
        heard = time.monotonic()
        low, high = server_ms - heard * 1000, server_ms - asked * 1000
        with self._turn:
            self._heard = heard
            if self._offset is None:
                self._offset = (low + high) / 2
            else:
                self._offset = min(max(self._offset, low), high)
