"""The kinds of adapters that are installed: found by entry point, imported only when named."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from typing import cast

from workflow_bridge.adapter import ENTRY_POINT_GROUP, AdapterFactory

_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


class NoSuchKind(Exception):
    """No installed package provides this kind of adapter. ``nearest`` is one it may have meant."""

    def __init__(self, kind: str, known: Iterable[str]) -> None:
        self.known = tuple(sorted(known))
        self.nearest = next(iter(difflib.get_close_matches(kind, self.known, n=1)), None)
        super().__init__("no such kind of adapter")


class Unusable(Exception):
    """An installed kind of adapter cannot be imported; the text says what to do."""


class Kinds:
    """The installed kinds. Nothing is imported before `factory` asks for it."""

    def __init__(self, entry_points: Iterable[metadata.EntryPoint] | None = None) -> None:
        """Take the entry points of this environment, or the ones given."""
        self._entry_points: dict[str, metadata.EntryPoint] = {}
        for entry_point in _installed() if entry_points is None else entry_points:
            self._entry_points.setdefault(entry_point.name, entry_point)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `adapter:` may have, sorted."""
        return tuple(sorted(self._entry_points))

    def factory(self, kind: str) -> AdapterFactory:
        """Import and return what makes adapters of this kind.

        Raises `NoSuchKind` or `Unusable`. An entry point that names an extra is unusable without
        that extra's packages, although importing it would work: it imports its SDK on first use.
        """
        entry_point = self._entry_points.get(kind)
        if entry_point is None:
            raise NoSuchKind(kind, self._entry_points)
        missing = _missing(entry_point)
        if missing:
            raise Unusable(_install(entry_point, f"needs {', '.join(missing)}"))
        try:
            return cast(AdapterFactory, entry_point.load())
        except ImportError as error:
            reason = f"needs {error.name}" if error.name else "cannot be imported"
            raise Unusable(_install(entry_point, reason)) from error
        except Exception as error:  # a plug-in may do anything while it is imported
            name = type(error).__name__
            raise Unusable(f"adapter {kind!r} cannot be loaded: {name}: {error}") from error


@cache
def _installed() -> metadata.EntryPoints:
    """Read this environment once: each time all packages in it are looked into."""
    return metadata.entry_points(group=ENTRY_POINT_GROUP)


def _missing(entry_point: metadata.EntryPoint) -> list[str]:
    """The packages of the entry point's extras that are not installed."""
    if entry_point.dist is None:
        return []
    missing = []
    for requirement in entry_point.dist.requires or ():
        extra = _EXTRA.search(requirement)
        name = _REQUIREMENT.match(requirement)
        if extra and name and extra.group(1) in entry_point.extras:
            try:
                metadata.distribution(name.group())
            except metadata.PackageNotFoundError:
                missing.append(name.group())
    return missing


def _install(entry_point: metadata.EntryPoint, reason: str) -> str:
    message = f"adapter {entry_point.name!r} {reason}"
    if entry_point.dist is None:
        return f"{message}, which is not installed"
    extras = f"[{','.join(entry_point.extras)}]" if entry_point.extras else ""
    return f"{message}; run: pip install '{entry_point.dist.name}{extras}'"
