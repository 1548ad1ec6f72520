"""``workflow-bridge completion``: what makes shells complete commands, options and tool names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from workflow_bridge.cli import options
from workflow_bridge.cli.exits import OK

VARIABLE: Final = "_WORKFLOW_BRIDGE_COMPLETE"
_SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@options.debug_option
def command(shell: str) -> int:
    """Print the script that SHELL is to read.

    \b
    bash:  workflow-bridge completion bash > ~/.local/share/bash-completion/completions/workflow-bridge
    zsh:   workflow-bridge completion zsh > a file _workflow-bridge in a folder of your $fpath
    fish:  workflow-bridge completion fish > ~/.config/fish/completions/workflow-bridge.fish
    """  # noqa: E501 - lines to copy
    completion = get_completion_class(shell)
    assert completion is not None
    # The script only: `source` would also run the shell to see how old it is.
    made = completion(click.Command("workflow-bridge"), {}, "workflow-bridge", VARIABLE)
    click.echo(made.source_template % made.source_vars())
    return OK


def complete_tool(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001 - click's form
    incomplete: str,
) -> list[CompletionItem]:
    """Return the configured tools that begin so; none if that cannot be told in a moment."""
    if ctx.params.get("url"):
        return []
    path = ctx.params.get("config") or os.environ.get(options.CONFIG_VARIABLE)
    try:
        found = sorted(set(_tools(Path(path or options.DEFAULT_CONFIG))))
    except Exception:  # noqa: BLE001 - a shell waits, and can do nothing about it
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _tools(path: Path) -> Iterator[str]:
    """Read the names alone: judging the configuration takes ten times as long."""
    main = _read(path)
    patterns = main.get("include") or ()
    files = [file for pattern in patterns for file in sorted(path.parent.glob(pattern))]
    for document in (main, *map(_read, files)):
        for backend in (document.get("backends") or {}).values():
            yield from (str(name) for name in backend.get("tools") or ())


def _read(path: Path) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    data = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506 - both are safe ones
    return data if isinstance(data, dict) else {}
