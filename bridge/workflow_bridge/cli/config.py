"""``workflow-bridge config``: the configuration itself."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import click

from workflow_bridge.cli import composing, options
from workflow_bridge.cli.exits import OK, UNUSABLE
from workflow_bridge.cli.output import emit
from workflow_bridge.config import ConfigError, json_schema, load


@click.group("config")
def command() -> None:
    """Check bridge.yaml without asking any network, or print its JSON Schema."""


@command.command("schema")
@options.debug_option
def schema() -> int:
    """Print the JSON Schema of bridge.yaml, for editors."""
    emit(json_schema())
    return OK


@command.command("check")
@options.config_option
@options.json_option
@options.debug_option
def check(config: Path, as_json: bool) -> int:
    """Print everything that is wrong with the configuration. Exit code 2 if anything is."""
    composing.must_exist(config)
    try:
        loaded = load(config, os.environ)
    except ConfigError as exc:
        if as_json:
            emit({"issues": [asdict(issue) for issue in exc.issues]})
        else:
            for issue in exc.issues:
                click.echo(str(issue))
        return UNUSABLE
    if as_json:
        emit({"issues": [], "backends": sorted(loaded.backends), "tools": sorted(loaded.tools)})
    else:
        tools, backends = len(loaded.tools), len(loaded.backends)
        click.echo(f"{config}: in order; tools: {tools}, backends: {backends}")
    return OK
