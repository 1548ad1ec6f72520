"""Set the stage, play the script, say whether all of it came out right."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import anyio

from workflow_bridge.demo.ledger import Ledger
from workflow_bridge.demo.scenes import Script
from workflow_bridge.demo.screen import Screen
from workflow_bridge.demo.stage import TOOLS, Stage
from workflow_bridge.testing.moto_engine import MotoEngine


def play(*, keep: bool = False, screen: Screen | None = None) -> bool:
    """Play the demo; True if every expectation held.

    ``keep``: afterwards stay up, saying how a host is connected, until interrupted.
    """
    screen = screen or Screen()
    for name in ("werkzeug", "moto"):  # what the emulator says of requests and failing workflows
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="workflow-bridge-demo-") as folder,
        MotoEngine() as engine,
    ):
        stage = Stage(engine, Path(folder))
        stage.build()
        screen.title(
            {
                "engine": f"Step Functions, emulated by moto at {engine.url}",
                "bridge": "a child process, MCP over its stdin and stdout",
                "tools": ", ".join(TOOLS),
                "folder": folder,
            }
        )
        ledger = Ledger()
        anyio.run(_perform, Script(stage, screen, ledger), stage)
        screen.summary(ledger)
        if keep:
            screen.keep(
                stage.host_config,
                [
                    "",
                    "Or from another terminal:",
                    *(f"  export {name}={value}" for name, value in _environment(stage).items()),
                    """  workflow-bridge call settle_order '{"order_id": "o-1"}'""",
                    "  workflow-bridge tasks list",
                    "",
                    "Ctrl-C ends it and removes the folder.",
                ],
            )
            _until_interrupted()
    return ledger.ok


async def _perform(script: Script, stage: Stage) -> None:
    async with stage.bridge() as bridge:
        await script.quick(bridge)
        await script.slow(bridge)
        await script.failing(bridge)
        await script.fan_out(bridge)
        await script.duplicate(bridge)
        await script.cancelled(bridge)
        survivors = await script.killed(bridge)
    async with stage.bridge() as bridge:
        await script.restarted(bridge, survivors)
        await script.listed(bridge)


def _environment(stage: Stage) -> dict[str, str]:
    env = stage.host_config["mcpServers"]["workflow-bridge"]["env"]
    return {"WORKFLOW_BRIDGE_CONFIG": str(stage.config), **env}


def _until_interrupted() -> None:
    try:
        anyio.run(anyio.sleep_forever)
    except KeyboardInterrupt:
        return
