"""How often each owner may ask, per process (A-24)."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from workflow_bridge.protocol.errors import too_fast

MAX_OWNERS: Final = 10_000
"""Owners remembered; one forgotten for being idle longest starts afresh."""
HARD: Final = 4
"""How many times the polling rate is answered from the row before polls are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Requests per second for each owner; None is as many as they like."""

    create: float | None = None
    poll: float | None = None
    result: float | None = None
    list: float | None = None


class Limits:
    """Counts what each owner asks for and refuses what is too much."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._create = _Buckets(rates.create, clock)
        self._poll = _Buckets(rates.poll, clock)
        self._poll_hard = _Buckets(rates.poll, clock, times=HARD)
        self._result = _Buckets(rates.result, clock)
        self._list = _Buckets(rates.list, clock)

    def create(self, owner: str) -> None:
        """Count one task to be created."""
        self._create.take_or_refuse(owner, "Creating tasks too fast")

    def poll(self, owner: str) -> bool:
        """Count one poll; False if it is to be answered from the row, without the engine.

        Raises 429001 only beyond `HARD` times the rate: a poll answered from the row is cheap, and
        tells an impatient client more than a refusal.
        """
        self._poll_hard.take_or_refuse(owner, "Polling too fast")
        return self._poll.take(owner) is None

    def result(self, owner: str) -> None:
        """Count one result read."""
        self._result.take_or_refuse(owner, "Reading results too fast")

    def list(self, owner: str) -> None:
        """Count one page read."""
        self._list.take_or_refuse(owner, "Listing tasks too fast")


class _Buckets:
    """A token bucket per owner, of ``times`` the rate: a second's worth at once, at least one."""

    def __init__(self, rate: float | None, clock: Callable[[], float], *, times: int = 1) -> None:
        self._rate = None if rate is None else rate * times
        self._burst = 1.0 if rate is None else max(rate, 1.0) * times
        self._clock = clock
        self._by_owner: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, owner: str) -> float | None:
        """Take one token; None if there was one, else the seconds until there is."""
        if self._rate is None:
            return None
        now = self._clock()
        tokens, at = self._by_owner.pop(owner, (self._burst, now))
        tokens = min(self._burst, tokens + max(0.0, now - at) * self._rate)
        there = tokens >= 1.0
        self._by_owner[owner] = (tokens - 1.0 if there else tokens, now)
        if len(self._by_owner) > MAX_OWNERS:
            self._by_owner.popitem(last=False)
        return None if there else (1.0 - tokens) / self._rate

    def take_or_refuse(self, owner: str, message: str) -> None:
        wait = self.take(owner)
        if wait is not None:
            raise too_fast("rate", f"{message}; try again in {wait:.1f} s", wait)
