"""``workflow-bridge demo``: see it work."""

from __future__ import annotations

import importlib.util

import click

from workflow_bridge.cli import options
from workflow_bridge.cli.exits import OK, PROBLEM, Stop


@click.command("demo")
@click.option("--keep", is_flag=True, help="Stay up afterwards, for a host to connect to.")
@options.debug_option
def command(keep: bool) -> int:
    """Run an embedded engine, sample workflows and a scripted client; takes half a minute.

    Needs no account and no network. Exit code 0 only if everything came out as it must.
    """
    missing = [name for name in ("moto", "boto3", "flask") if not importlib.util.find_spec(name)]
    if missing:
        raise Stop(
            "the demo needs an embedded engine that is not installed; run:"
            " pip install 'mcp-workflow-bridge[demo]'"
        )
    from workflow_bridge.demo import play

    return OK if play(keep=keep) else PROBLEM
