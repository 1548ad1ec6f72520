"""``workflow-bridge check``: is everything that is configured there, and may we use it?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import anyio
import click

from workflow_bridge.cli import composing, options
from workflow_bridge.cli.checking import of_backends, of_configuration, of_database
from workflow_bridge.cli.exits import OK, PROBLEM
from workflow_bridge.cli.output import emit, note, table


@click.command("check")
@options.config_option
@options.json_option
@options.debug_option
def command(config: Path, as_json: bool) -> int:
    """Look at the configuration, the database, and every engine, workflow and permission.

    Prints each problem and what to do about it. Changes nothing. Exit code 1 if there is any.
    """
    composing.must_exist(config)
    loaded, findings = of_configuration(config)
    if loaded is not None:
        findings = of_database(loaded, config)
        findings += anyio.run(of_backends, loaded)
    if as_json:
        emit([asdict(finding) for finding in findings])
    elif findings:
        rows = [(f.part, f.subject, f.message, f.action) for f in findings]
        table(("part", "subject", "problem", "what to do"), rows)
    elif loaded is not None:
        note(f"no problems; tools: {len(loaded.tools)}, backends: {len(loaded.backends)}")
    return PROBLEM if findings else OK
