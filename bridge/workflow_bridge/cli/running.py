"""The command ``workflow-bridge`` and its subcommands, none of them imported before it is used."""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from typing import Final, NoReturn

import click

from workflow_bridge import __version__
from workflow_bridge.cli import streams
from workflow_bridge.cli.exits import INTERRUPTED, OK, PROBLEM, UNUSABLE

COMMANDS: Final = {
    "serve": "Serve MCP clients, over stdin and stdout or over HTTP.",
    "call": "Call a tool as a task and follow it to its end.",
    "tasks": "List, show, cancel, delete and reconcile tasks.",
    "check": "Look for problems: configuration, database, engines, permissions.",
    "config": "Check bridge.yaml, or print its JSON Schema.",
    "db": "Check the database, or bring it up to date.",
    "completion": "Print what makes a shell complete commands and tool names.",
    "demo": "See it work: an embedded engine, sample workflows and a scripted client.",
}


class Lazy(click.Group):
    """A group that imports a subcommand when it is called, and not to list it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        # Imports make many objects and no garbage: looking for some takes a tenth of their time.
        gc.disable()
        module = importlib.import_module(f"workflow_bridge.cli.{cmd_name}")
        gc.freeze()
        gc.enable()
        command: click.Command = module.command
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            names = ", ".join(COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}; there are {names}")
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="workflow-bridge", message="%(prog)s %(version)s")
def root() -> None:
    """An MCP server that turns workflows into tools, and calls of them into durable tasks.

    Exit codes: 0 all is well; 1 the task failed or a problem was found; 2 the command line, the
    configuration or the database cannot be used; 130 interrupted.
    """


def main() -> NoReturn:
    """Run the command line and exit."""
    streams.prepare()
    code = run(sys.argv[1:])
    if why := streams.failure():
        click.echo(f"workflow-bridge: stdout cannot be written: {why}", err=True)
        code = code or PROBLEM
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command; return its exit code."""
    try:
        result = root.main(args, prog_name="workflow-bridge", standalone_mode=False)
    except click.UsageError as exc:
        exc.show()
        return UNUSABLE
    except click.ClickException as exc:
        click.echo(f"workflow-bridge: {exc.format_message()}", err=True)
        return exc.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("workflow-bridge: interrupted", err=True)
        return INTERRUPTED
    except SystemExit as exc:  # a shell that completes, or a pipe of ours that broke
        return exc.code if isinstance(exc.code, int) else OK
    except Exception as exc:  # noqa: BLE001 — the last line of defence
        return _unexpected(exc, debug="--debug" in args)
    return result if isinstance(result, int) else OK


def _unexpected(exc: Exception, *, debug: bool) -> int:
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    if isinstance(exc, click.ClickException):
        click.echo(f"workflow-bridge: {exc.format_message()}", err=True)
        return exc.exit_code
    if debug:
        traceback.print_exception(exc)
        return PROBLEM
    what = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
    click.echo(
        f"workflow-bridge: unexpected error ({what}); add --debug to see where, and report it",
        err=True,
    )
    return PROBLEM
