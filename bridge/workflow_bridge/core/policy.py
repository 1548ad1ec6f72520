"""What configuration and adapters tell the core, as small frozen records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What the core needs to know of a tool."""

    name: str
    backend: str
    workflow: str
    inline: bool = False
    poll: timedelta = timedelta(seconds=5)
    keep_alive: timedelta | None = None
    """The default for this tool; None is the bridge's default."""
    failure_completes: bool = False
    """``on_failure: tool_error``: a failed execution completes the task (A-10)."""
    idempotent: bool = False
    """Its workflow may be started again after a start that left no trace."""
    start_within: timedelta = timedelta(minutes=15)
    missing_after: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAlive:
    """Bounds on how long a task is kept after it became final (A-20)."""

    default: timedelta = timedelta(days=1)
    minimum: timedelta = timedelta(minutes=1)
    maximum: timedelta = timedelta(days=30)

    def grant(self, wanted: timedelta | None, default: timedelta | None = None) -> timedelta:
        """Return what is granted of what was asked for; None asks for the default."""
        if wanted is None:
            wanted = default if default is not None else self.default
        return min(max(wanted, self.minimum), self.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that `next_step` and the transitions weigh, for one row."""

    start_is_idempotent: bool
    start_timeout: timedelta
    fingerprint: str
    run_timeout: timedelta = timedelta(0)
    idempotent: bool = False
    failure_completes: bool = False
    start_within: timedelta = timedelta(minutes=15)
    missing_after: timedelta = timedelta(hours=1)
    settling: timedelta = timedelta(minutes=1)
    """How long after its deadline a start may still come to light."""
    tombstone: timedelta = timedelta(days=1)
    """How long the name of a deleted or expired task stays taken (A-3)."""
    slowest_look: timedelta = timedelta(minutes=15)
    slowest_retry: timedelta = timedelta(minutes=1)
    """How long failed calls back off, unless the task is old enough to be looked at more rarely."""

    @property
    def doubt(self) -> timedelta:
        """How long after the call a start may still come to light."""
        return self.start_timeout + self.settling
