"""How many calls a backend is asked to bear: a token bucket that learns from throttling."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta


class Budget:
    """Calls per second to one backend: additively up after success, halved when throttled.

    Per process; replicas share an account's limit by each learning from its own throttling.
    """

    def __init__(self, rate: float, *, clock: Callable[[], float]) -> None:
        self._full = rate
        self._rate = rate
        self._clock = clock
        self._tokens = max(rate, 1.0)
        self._at = clock()
        self._promised = self._at

    def ready(self, *, spoken_for: int = 0) -> bool:
        """Whether a call may be made now, beside those that are about to be taken."""
        self._refill()
        return self._tokens >= 1.0 + spoken_for

    def take(self) -> timedelta | None:
        """Take one call; None if it may be made now, else when to come back.

        Those sent away are told to come back one after the other, so that a thousand rows that
        are due at once do not all return at the next free call.
        """
        if self.ready():
            self._tokens -= 1.0
            return None
        self._promised = max(self._promised, self._at) + 1.0 / self._rate
        return timedelta(seconds=self._promised - self._at)

    def throttled(self) -> None:
        """Learn that the engine asked for fewer calls."""
        self._rate = max(self._rate / 2, self._full / 64)
        self._tokens = 0.0

    def succeeded(self) -> None:
        """Learn that the engine bears this rate."""
        self._rate = min(self._full, self._rate + self._full / 100)

    @property
    def stretch(self) -> float:
        """How much longer than configured clients should wait between polls; at least 1."""
        return self._full / self._rate

    def _refill(self) -> None:
        now = self._clock()
        burst = max(self._rate, 1.0)
        self._tokens = min(burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
