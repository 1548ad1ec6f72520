"""Markdown of what was measured, and where."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

PACKAGES = ("mcp", "pydantic", "sqlalchemy", "uvicorn", "psycopg")


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], *notes: str) -> None:
    """Print a section with one table."""
    print(f"\n## {title}\n")
    print(f"| {' | '.join(head)} |")
    print("|---" + "|--:" * (len(head) - 1) + "|")
    for row in rows:
        print(f"| {' | '.join(shown(cell) for cell in row)} |")
    for note in notes:
        print(f"\n{note}")
    print(flush=True)


def shown(value: object) -> str:
    """Return a number with as many digits as it deserves."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def machine(folder: Path) -> str:
    """Say what the numbers were measured on; ``folder`` holds the databases."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in cpus if line.startswith("model name")), "?")
    load = os.getloadavg()[0]
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    return (
        f"{os.cpu_count()} CPUs ({model}), Linux {platform.release()}, databases on"
        f" {_file_system(folder)}; Python {platform.python_version()},"
        f" SQLite {sqlite3.sqlite_version} (WAL, `synchronous=FULL`), {packages}."
        f" Load average at the beginning: {load:.1f}."
    )


def _file_system(folder: Path) -> str:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    on = [m for m in mounts if folder.resolve().is_relative_to(m[1])]
    return max(on, key=lambda mount: len(mount[1]))[2]
