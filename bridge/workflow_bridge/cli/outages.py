"""A bridge that was there and is not: what counts as that, and how long we go on trying."""

from __future__ import annotations

from typing import Final

import anyio

OUTAGE_PATIENCE: Final = 120.0
"""Seconds that we try to reach a bridge again that we were connected to."""
_LONGEST_PAUSE: Final = 5.0


class Outage:
    """How long we go on trying, with longer and longer pauses."""

    def __init__(self) -> None:
        self.is_over()

    def is_over(self) -> None:
        """Learn that the bridge answers: patience begins anew."""
        self._until = anyio.current_time() + OUTAGE_PATIENCE
        self._pause = 0.1

    async def pause(self, error: Exception) -> None:
        """Wait a while; raises ``error`` if it has lasted too long."""
        if anyio.current_time() > self._until:
            raise error
        await anyio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def is_outage(error: Exception) -> bool:
    """Whether it is the connection that failed, and not what was asked."""
    from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

    from workflow_bridge.client.wire import RATE_LIMITED

    # -32603: a proxy says that nobody is behind it. RATE_LIMITED: the bridge is ending, or full.
    code = getattr(error, "code", None)
    return code in (CONNECTION_CLOSED, INTERNAL_ERROR, RATE_LIMITED) or session_is_over(error)


def session_is_over(error: Exception) -> bool:
    """Whether the server says that it has no such session."""
    from mcp_types import INVALID_REQUEST

    return getattr(error, "code", None) == INVALID_REQUEST
