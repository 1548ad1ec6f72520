"""Whether the bridge can do its work: `/readyz`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import structlog

log = structlog.get_logger(__name__)

WITHIN: Final = 1.0
"""Seconds in which the database has to answer."""
GOOD_FOR: Final = 1.0
"""Seconds for which an answer is used again: however often we are asked, the database is not."""


class Readiness:
    """Asks ``probe``, which raises what is wrong; one at a time, and not more than once a second.

    Engines are not asked: their outage must not take replicas out of service.
    """

    def __init__(
        self, probe: Callable[[], Awaitable[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._probe = probe
        self._clock = clock
        self._turn = anyio.Lock()
        self._ready: bool | None = None
        self._until = float("-inf")

    async def ready(self) -> bool:
        """Whether the database answered in time, now or in the last second."""
        async with self._turn:
            if self._clock() >= self._until:
                ready, why = await self._asked()
                self._until = self._clock() + GOOD_FOR
                if ready is not self._ready and not (ready and self._ready is None):
                    (log.info if ready else log.warning)("readiness", ready=ready, error=why)
                self._ready = ready
            return bool(self._ready)

    async def _asked(self) -> tuple[bool, str | None]:
        try:
            with anyio.fail_after(WITHIN):
                await self._probe()
        except Exception as exc:  # noqa: BLE001 — whatever it is, we cannot do our work
            # The type alone: an operator finds the text in the log of what failed for it.
            return False, type(exc).__name__
        return True, None
