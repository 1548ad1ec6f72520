"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

CONFIG_VARIABLE: Final = "WORKFLOW_BRIDGE_CONFIG"
DEFAULT_CONFIG: Final = "bridge.yaml"


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
        help="Use this database instead of the configuration's (sqlite:///path).",
    )(function)
