"""What goes to people and to programs: data to stdout, all else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click

LEGIBLE: Final = 8
"""What the columns of a table beside one that is kept whole need on average."""
SHORT: Final = 9
"""Beside a column that is kept whole, one that is no wider is kept whole too."""


def emit(data: object) -> None:
    """Print JSON for programs."""
    click.echo(json.dumps(data, ensure_ascii=False, indent=2, default=_plain))


def note(text: str) -> None:
    """Say something that is not data."""
    click.echo(text, err=True)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: str | None = None
) -> None:
    """Print a table: drawn on a terminal, tab-separated without one.

    What is in the column `whole` is never broken over two lines, so that it can be copied; on a
    terminal that is too narrow for that, nothing is drawn.
    """
    if not sys.stdout.isatty():
        _plainly(columns, rows)
        return
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = {
        column: max(map(cell_len, cells))
        for column, *cells in zip(columns, columns, *rows, strict=True)
    }
    if whole is not None and widths[whole] + LEGIBLE * (len(columns) - 1) > console.width:
        _plainly(columns, rows)
        return
    drawn = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        if whole is not None and (column == whole or widths[column] <= SHORT):
            drawn.add_column(column, no_wrap=True, min_width=widths[column])
        else:
            drawn.add_column(column, overflow="fold")
    for row in rows:
        styles = [
            STYLES.get(c, "") if n == "status" else "" for n, c in zip(columns, row, strict=True)
        ]
        drawn.add_row(*map(Text, row, styles))
    console.print(drawn)


def _plainly(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in [columns, *rows]:
        click.echo("\t".join(row))


STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "unknown": "magenta",
    "working": "cyan",
    "submitted": "cyan",
}
"""The colours of the statuses."""


def pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one below the other."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        label = click.style(f"{name:<{width}}", dim=True)
        click.echo(f"{label}  {value}")


def moment(at: datetime | None) -> str:
    """Return a time for people, in UTC."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def age(span: timedelta) -> str:
    """Return a duration for people: its two largest units."""
    seconds = max(0, round(span.total_seconds()))
    for unit, size, smaller, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{seconds}s"


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value // timedelta(milliseconds=1)
        case _:
            return str(value)
