"""What was expected and what really happened."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One expectation that was compared with the facts."""

    what: str
    task_id: str
    tool: str
    expected: str
    got: str
    execution: str = ""
    """The name of the execution at the engine; empty where there must be none."""

    @property
    def ok(self) -> bool:
        """True if what was expected is what happened."""
        return self.expected == self.got


@dataclass(slots=True)
class Ledger:
    """All expectations so far."""

    entries: list[Entry] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if there were expectations and all of them held."""
        return bool(self.entries) and all(entry.ok for entry in self.entries)
