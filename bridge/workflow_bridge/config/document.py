"""One file that was read: its data, and where each value stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from workflow_bridge.adapter import Json
from workflow_bridge.config.issues import Issue, KeyPath, dotted


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, counted from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Document:
    """One file that was read.

    ``variables`` names, per value, the environment variables whose values are part of it: no
    message may show such a value. ``broken`` are values already reported as wrong.
    """

    file: Path
    data: Json = None
    values: dict[KeyPath, Mark] = field(default_factory=dict)
    keys: dict[KeyPath, Mark] = field(default_factory=dict)
    variables: dict[KeyPath, tuple[str, ...]] = field(default_factory=dict)
    broken: set[KeyPath] = field(default_factory=set)
    issues: list[Issue] = field(default_factory=list)

    def report(self, path: KeyPath, message: str, *, at_key: bool = False) -> None:
        """Note an issue at a value, or at its key; once something is broken, nothing below it."""
        if any(path[:length] in self.broken for length in range(len(path) + 1)):
            return
        mark = self.mark(path, at_key=at_key)
        self.issues.append(Issue(self.file, mark.line, mark.column, dotted(path), message))

    def mark(self, path: KeyPath, *, at_key: bool = False) -> Mark:
        """Return where a value (or its key) begins; for one that is absent, where it belongs."""
        key, value = self.keys.get(path), self.values.get(path)
        if key and (at_key or value is None or value.line > key.line):
            return key
        if value:
            return value
        while path:
            path = path[:-1]
            if found := self.keys.get(path) or self.values.get(path):
                return found
        return Mark(1, 1)

    def variables_of(self, path: KeyPath) -> tuple[str, ...]:
        """Return the variables in a value, in what it is part of, and in what is part of it."""
        names: dict[str, None] = {}
        for place, found in self.variables.items():
            shorter = min(len(place), len(path))
            if place[:shorter] == path[:shorter]:
                names.update(dict.fromkeys(found))
        return tuple(names)
