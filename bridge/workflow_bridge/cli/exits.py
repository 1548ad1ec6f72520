"""How commands end early: one clear sentence and an exit code."""

from __future__ import annotations

from typing import Final

import click

OK: Final = 0
PROBLEM: Final = 1
"""The task failed, or something was found to be wrong."""
UNUSABLE: Final = 2
"""The command line, the configuration or the database cannot be used as it is."""
INTERRUPTED: Final = 130


class Stop(click.ClickException):
    """End the command; the message says what is the case and what to do."""

    def __init__(self, message: str, code: int = UNUSABLE) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click documents it as settable
