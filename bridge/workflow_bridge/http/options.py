"""What can be set about serving HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Isolation: TypeAlias = Literal["auto", "session", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where to listen, whom to let in, how much at a time, and for how long; times in seconds."""

    host: str = "127.0.0.1"
    """An IP address, or ``localhost``, which is 127.0.0.1."""
    port: int = 8080
    """0 is any free one."""
    isolation: Isolation = "auto"
    stateless: bool = False
    """No sessions: each request is served by itself, by whichever replica it reaches."""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body: int = 4_000_000
    max_streams: int = 1000
    max_session_streams: int = 200
    max_sessions: int = 2000
    session_idle: float = 1800.0
    headers_within: float = 10.0
    """A connection without a whole request head for that long is closed."""
    body_within: float = 30.0
    taken_within: float = 30.0
    """A client that takes nothing for that long, while more is to be sent, is cut off."""
    keep_alive: float = 75.0
    """Longer than load balancers keep idle connections, or they run into ours closing."""
    drain: float = 2.0
    """How long requests under way get once the server is to end."""
