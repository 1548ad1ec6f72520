"""``workflow-bridge check``: ask the engines whether everything configured can be used."""

from __future__ import annotations

from pathlib import Path

import anyio
import click

from workflow_bridge.adapter import Adapter, AdapterError, Problem
from workflow_bridge.cli import composing, options
from workflow_bridge.cli.exits import OK, PROBLEM
from workflow_bridge.cli.output import emit, note, table


@click.command("check")
@options.config_option
@options.json_option
@options.debug_option
def command(config: Path, as_json: bool) -> int:
    """Ask the engines whether every workflow exists, is of the right type, and may be used.

    Prints each problem and what to do about it. Exit code 1 if there is any.
    """
    loaded = composing.load_config(config)
    workflows: dict[str, dict[str, bool]] = {name: {} for name in loaded.backends}
    for _, tool in sorted(loaded.tools.items()):
        workflows[tool.backend][tool.workflow] = tool.inline
    found = anyio.run(_ask, composing.open_adapters(loaded), workflows)
    if as_json:
        emit([
            {"backend": name, "subject": p.subject, "message": p.message, "action": p.action}
            for name, p in found
        ])  # fmt: skip
    elif found:
        rows = [(name, p.subject, p.message, p.action) for name, p in found]
        table(("backend", "subject", "problem", "what to do"), rows)
    else:
        note(f"no problems; tools: {len(loaded.tools)}, backends: {len(loaded.backends)}")
    return PROBLEM if found else OK


async def _ask(
    adapters: dict[str, Adapter], workflows: dict[str, dict[str, bool]]
) -> list[tuple[str, Problem]]:
    found: list[tuple[str, Problem]] = []

    async def ask(name: str, adapter: Adapter) -> None:
        try:
            problems = await adapter.check(workflows[name])
        except AdapterError as exc:
            problems = [Problem(name, str(exc), "check the network and the credentials")]
        found.extend((name, problem) for problem in problems)
        await adapter.aclose()

    async with anyio.create_task_group() as group:
        for name, adapter in adapters.items():
            group.start_soon(ask, name, adapter)
    return sorted(found, key=lambda item: (item[0], item[1].subject))
