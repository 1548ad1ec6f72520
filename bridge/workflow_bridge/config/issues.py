"""What is wrong with a configuration, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where a value is inside a file: keys of mappings and indexes of lists."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing to correct. Lines and columns count from 1 and are None for a whole file."""

    file: Path
    line: int | None
    column: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = str(self.file)
        if self.line is not None:
            place += f":{self.line}:{self.column}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class ConfigError(Exception):
    """The configuration cannot be used. ``issues`` is everything found, ordered by place.

    Its text is for the operator. It names environment variables and never shows their values.
    """

    def __init__(self, issues: Sequence[Issue]) -> None:
        # One wrong value, used in several places through an alias, is one issue.
        once = {(i.file, i.line, i.column, i.message): i for i in reversed(issues)}
        self.issues: tuple[Issue, ...] = tuple(
            sorted(once.values(), key=lambda i: (i.file, i.line or 0, i.column or 0, i.path))
        )
        super().__init__("\n".join(str(issue) for issue in self.issues))


class Unfit(ValueError):
    """A value that cannot be used. ``blind`` says why without showing any of the value.

    It is what the operator reads where the value came from the environment.
    """

    def __init__(self, message: str, *, blind: str) -> None:
        super().__init__(message)
        self.blind = blind


def dotted(path: KeyPath) -> str:
    """Return ``backends.orders.tools[0]`` for a path."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
