"""What the demo shows: readable at 80 columns, in colour on a terminal."""

from __future__ import annotations

import json
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from workflow_bridge.demo.ledger import Entry, Ledger

_COLOURS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "working": "cyan",
    "submitted": "cyan",
}
_WIDTH = 116
"""Lines longer than this are hard to read, however wide the terminal is."""


class Screen:
    """Prints scenes as they are played."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._console.width = min(self._console.width, _WIDTH)
        self._began = time.monotonic()
        self._scene_began = self._began
        self._scenes = 0

    def title(self, facts: dict[str, str]) -> None:
        """Print what the demo plays on."""
        self._console.print(Text("workflow-bridge demo", style="bold"))
        for name, value in facts.items():
            self._line(Text.assemble((f"  {name:<9}", "dim"), value))

    def scene(self, name: str) -> None:
        """Begin a scene."""
        self._scenes += 1
        self._scene_began = time.monotonic()
        self._console.print()
        self._line(Text.assemble((f"{self._scenes:>2}  ", "bold blue"), (name, "bold")))

    def asks(self, text: str) -> None:
        """Print what the client sends."""
        self._line(Text.assemble(("    → ", "blue"), text))

    def sees(self, status: str, step: str | None = None) -> None:
        """Print a state of a task, with the time since the scene began."""
        took = f"{time.monotonic() - self._scene_began:7.1f} s  "
        line = Text.assemble((took, "dim"), (status, _COLOURS.get(status, "")))
        if step:
            line.append(f"  {step}", "bold" if status == "working" else "")
        self._line(line)

    def says(self, text: str) -> None:
        """Print a remark."""
        self._line(Text(f"    {text}", style="dim"))

    def judged(self, entry: Entry) -> None:
        """Print whether an expectation held."""
        if entry.ok:
            self._line(Text.assemble(("    ✓ ", "bold green"), entry.what))
            return
        self._line(Text.assemble(("    ✗ ", "bold red"), entry.what))
        self._line(Text.assemble(("      expected  ", "dim"), entry.expected))
        self._line(Text.assemble(("      got       ", "dim"), (entry.got, "red")))

    def summary(self, ledger: Ledger) -> None:
        """Print the table of all expectations, and the verdict."""
        table = Table(
            box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0)
        )
        table.add_column("")
        table.add_column("task", no_wrap=True)
        table.add_column("tool", no_wrap=True)
        table.add_column("expected", overflow="fold")
        table.add_column("got", overflow="fold")
        table.add_column("execution", no_wrap=True)
        for entry in ledger.entries:
            table.add_row(
                Text("✓", "bold green") if entry.ok else Text("✗", "bold red"),
                Text(entry.task_id),
                Text(entry.tool),
                Text(entry.expected),
                Text(entry.got, "" if entry.ok else "red"),
                Text(_shortened(entry.execution), "dim"),
            )
        self._console.print()
        self._console.print(table)
        held = sum(entry.ok for entry in ledger.entries)
        took = time.monotonic() - self._began
        verdict = f"{held} of {len(ledger.entries)} expectations held, in {took:.0f} s"
        self._line(Text(verdict, style="bold green" if ledger.ok else "bold red"))

    def keep(self, host_config: dict[str, Any], lines: list[str]) -> None:
        """Print how a host is connected to what stays up."""
        self._console.print()
        self._console.print(Text("The engine stays up. In your host's mcp.json:", style="bold"))
        snippet = json.dumps(host_config, indent=2)
        if self._console.is_terminal:
            syntax = Syntax(snippet, "json", background_color="default", word_wrap=True)
            self._console.print(Padding(syntax, (0, 2)))
        else:
            self._console.print(Text(snippet), soft_wrap=True)
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=not self._console.is_terminal)


def _shortened(name: str) -> str:
    """Cut an execution's name to what tells it from the others."""
    return name if len(name) <= 12 else f"{name[:11]}…"
