"""An event loop whose time passes only when nothing else is left to do, and then at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = 1_772_366_400.0
"""2026-03-01 12:00 UTC, in seconds since 1970."""
A_MOMENT = 0.0001
"""Seconds that a round of the loop takes: anyio goes round without rest while it cancels."""


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: all wait for one another")
        self.waited += max(timeout, A_MOMENT)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Waiting takes no time: an hour of sleeping passes in the time of its wake-ups.

    For code without threads and sockets.
    """

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.waited


class WallClock:
    """The wall clock of our machines, in seconds since 1970, and how the engines' differs."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._slept = 0.0
        self._wrong = 0.0

    def __call__(self) -> float:
        return START + self._elapsed() + self._slept + self._wrong

    def right(self) -> datetime:
        """The time by the engines' clock, which nobody sets."""
        return datetime.fromtimestamp(START + self._elapsed() + self._slept, UTC)

    def jump(self, by: timedelta) -> None:
        """Let time pass everywhere with our machines asleep."""
        self._slept += by.total_seconds()

    def be_set(self, by: timedelta) -> None:
        """Set ours, backwards too."""
        self._wrong += by.total_seconds()
