"""What `call` shows of a task while it runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from workflow_bridge.cli.output import STYLES, age, note

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console
    from rich.text import Text

    from workflow_bridge.client import Progress, TaskState


class Reporter:
    """A context manager, on stderr: stdout is for the result."""

    def __init__(
        self, tool: str, *, quiet: bool = False, status: str = "starting the bridge"
    ) -> None:
        self._tool = tool
        self._quiet = quiet
        self._task_id: str | None = None
        self._status = status
        self._step: str | None = None
        self._remark: str | None = None
        self._said: object = None
        self._began = time.monotonic()
        self._stack = ExitStack()
        self._console: Console | None = None
        self._live = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def __enter__(self) -> Self:
        if self._live:
            from rich.console import Console
            from rich.live import Live

            self._console = Console(stderr=True, highlight=False)
            self._stack.enter_context(
                Live(
                    get_renderable=self._line,
                    console=self._console,
                    transient=True,
                    redirect_stdout=False,
                    refresh_per_second=8,
                )
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the live line away; what is printed from here on stays where it is printed."""
        self._stack.close()
        self._console = None

    def called(self) -> None:
        """Learn that the bridge is there and is being called."""
        self._began = time.monotonic()
        self._status = "submitted"

    def created(self, task_id: str) -> None:
        """Learn which task it is."""
        self._task_id = task_id
        self.say(f"task {task_id}")

    def state(self, state: TaskState) -> None:
        """Take a polled state."""
        self._status = state.status
        self._step = state.step or self._step
        self._remark = None if state.final else state.remark
        self._changed()

    def progress(self, progress: Progress) -> None:
        """Take a progress notification: its message is the status and the step."""
        _, _, step = (progress.message or "").partition(": ")
        self._step = step or self._step
        self._changed()

    def say(self, text: str) -> None:
        """Say something that stays."""
        if self._console is not None:
            self._console.print(text, markup=False, soft_wrap=True)
        elif not self._quiet:
            note(text)

    @property
    def elapsed(self) -> float:
        """Seconds since the call."""
        return time.monotonic() - self._began

    def _changed(self) -> None:
        now = (self._status, self._step, self._remark)
        if self._task_id is not None and not self._live and now != self._said:
            self._said = now
            step = f" · {self._step}" if self._step else ""
            remark = f" · {self._remark}" if self._remark else ""
            self.say(f"{self._status}{step}{remark} ({age_exactly(self.elapsed)})")

    def _line(self) -> Text:
        from rich.text import Text

        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[int(self.elapsed * 8) % 10] + " ", "cyan")
        line.append(self._tool, "bold").append("  ")
        line.append(self._status, STYLES.get(self._status, ""))
        if self._step:
            line.append(" · ", "dim").append(self._step)
        if self._remark:
            line.append(" · ", "dim").append(self._remark, "yellow")
        line.append(f"  {age_exactly(self.elapsed)}", "dim")
        return line


def age_exactly(seconds: float) -> str:
    """Return a short time with tenths of a second, a long one in its two largest units."""
    from datetime import timedelta

    return f"{seconds:.1f}s" if seconds < 60 else age(timedelta(seconds=seconds))
