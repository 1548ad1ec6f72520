"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from workflow_bridge.cli.exits import Stop

F = TypeVar("F", bound=Callable[..., Any])

CONFIG_VARIABLE: Final = "WORKFLOW_BRIDGE_CONFIG"
DEFAULT_CONFIG: Final = "bridge.yaml"


def text(argument: str) -> str:
    """Take an argument as UTF-8 whatever the locale; not for paths, whose bytes are their names."""
    try:
        return utf8(argument)
    except UnicodeDecodeError as exc:
        raise click.BadParameter("it is not UTF-8") from exc


def utf8(argument: str) -> str:
    """Decode what the locale's encoding could not; raises `UnicodeDecodeError` if nothing can."""
    if not any("\udc80" <= char <= "\udcff" for char in argument):
        return argument
    return os.fsencode(argument).decode("utf-8")


def duration(text: str, option: str) -> timedelta:
    """Read a duration as configuration has it; ends the command where it is none."""
    from workflow_bridge.config import parse_duration

    try:
        return parse_duration(text)
    except ValueError as exc:
        raise Stop(f"{option}: {exc}") from exc


def config_argument(config: Path) -> str:
    """Return what to add to a command that is to use the same configuration."""
    known = (DEFAULT_CONFIG, os.environ.get(CONFIG_VARIABLE))
    return "" if str(config) in known else f" -c {config}"


def config_option(function: F) -> F:
    """Add ``--config``, passed as ``config: Path``."""
    return click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        envvar=CONFIG_VARIABLE,
        default=DEFAULT_CONFIG,
        show_default=True,
        show_envvar=True,
        help="The configuration file.",
    )(function)


def json_option(function: F) -> F:
    """Add ``--json``, passed as ``as_json: bool``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(
        function
    )


def debug_option(function: F) -> F:
    """Add ``--debug``, which `main` looks for by itself."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        help="Show where an unexpected error came from.",
    )(function)


def database_option(function: F) -> F:
    """Add ``--database``, passed as ``database: str | None``."""
    return click.option(
        "--database",
        metavar="URL",
        help="Use this one instead of the configuration's (sqlite:///path, postgresql://host/name).",
    )(function)
