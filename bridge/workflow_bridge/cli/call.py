"""``workflow-bridge call``: a real MCP client, of a bridge of its own or of one over HTTP."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from workflow_bridge.cli import composing, options
from workflow_bridge.cli.calling import Caller, Order, OverHttp
from workflow_bridge.cli.completion import complete_tool
from workflow_bridge.cli.exits import Stop

if TYPE_CHECKING:
    from workflow_bridge.config import Server


@click.command("call")
@click.argument("tool", type=options.text, shell_complete=complete_tool)
@click.argument("arguments", default="{}", metavar="[JSON|@FILE|-]")
@options.config_option
@click.option("--url", metavar="URL", help="Call the bridge that listens there (http://…/mcp).")
@click.option(
    "--token-env",
    metavar="VARIABLE",
    help="Over HTTP: the environment variable that holds a bearer token.",
)
@click.option(
    "--header-env",
    "headers",
    metavar="NAME=VARIABLE",
    multiple=True,
    help="Over HTTP: a header, and the environment variable that holds its value.",
)
@click.option("--task-id", type=options.text, help="The id of the task; a random one if left out.")
@click.option(
    "--keep-alive", metavar="DURATION", help="How long to keep the result, as in 30m or 7d."
)
@click.option("--detach", is_flag=True, help="Leave as soon as the task is created.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing while it runs.")
@options.json_option
@options.debug_option
def command(
    tool: str,
    arguments: str,
    config: Path,
    url: str | None,
    token_env: str | None,
    headers: tuple[str, ...],
    task_id: str | None,
    keep_alive: str | None,
    detach: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Call TOOL with JSON arguments, as a task, and follow it to its end.

    Starts a bridge of its own; with --url, or a configuration of `transport: http`, it calls the
    one that listens there. Prints the result on stdout; --json prints the whole CallToolResult.
    Exit code 1 says that the task did not end well. Ctrl-C cancels the task and waits until it is;
    a second Ctrl-C leaves at once.
    """
    server = None if url else composing.load_config(config).server
    over_http = None
    if server is None or server.transport == "http":
        over_http = OverHttp(
            url=_endpoint(url) if server is None else _listening(server),
            headers=_headers(token_env, headers),
        )
    elif token_env or headers:
        raise Stop("--token-env and --header-env are for HTTP: name the bridge with --url")
    order = Order(
        config=config,
        over_http=over_http,
        tool=tool,
        arguments=_arguments(arguments),
        task_id=task_id,
        keep_alive=None if keep_alive is None else options.duration(keep_alive, "--keep-alive"),
        detach=detach,
        as_json=as_json,
        quiet=quiet,
    )
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        return anyio.run(Caller(order, log).run)


def _endpoint(url: str | None) -> str:
    """Judge a URL; one without a path means the bridge's own."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url or "")
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise Stop("--url: must be http://HOST:PORT/mcp, or https://…")
    if parts.username or parts.password:
        raise Stop("--url: must not hold credentials; see --token-env and --header-env")
    return parts._replace(path=parts.path if parts.path.strip("/") else "/mcp").geturl()


def _listening(server: Server) -> str:
    """Return where the bridge of this configuration can be reached from this machine."""
    if server.port == 0:
        raise Stop(
            "the bridge of this configuration listens on any free port: name it with --url, as its"
            " log line `listening` does"
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}/mcp"


def _headers(token_env: str | None, pairs: tuple[str, ...]) -> dict[str, str]:
    """Read what may be secret from the environment: a command line can be seen by others."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, found, variable = pair.partition("=")
        if not found or not name or not variable:
            raise Stop("--header-env: must be NAME=VARIABLE, as in X-Api-Key=BRIDGE_API_KEY")
        headers[name] = _from_environment(variable, "--header-env")
    if token_env:
        headers["Authorization"] = f"Bearer {_from_environment(token_env, '--token-env')}"
    return headers


def _from_environment(variable: str, option: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise Stop(f"{option}: the environment variable {variable} is not set")
    if not value.isascii() or not value.isprintable():
        raise Stop(f"{option}: what {variable} holds cannot be a header")
    return value


def _arguments(given: str) -> dict[str, Any]:
    """Read the arguments: JSON itself, ``@file`` or ``-`` for stdin."""
    try:
        if given == "-":
            source = "stdin"
            given = sys.stdin.buffer.read().decode("utf-8")
        elif given.startswith("@"):
            source = given[1:]
            given = Path(source).read_text(encoding="utf-8")
        else:
            source = "the command line"
            given = options.utf8(given)
    except (OSError, UnicodeDecodeError) as exc:
        raise Stop(f"the arguments cannot be read from {source}: {_reason(exc)}") from exc
    try:
        arguments = json.loads(given)
    except ValueError as exc:
        raise Stop(f"the arguments are not JSON: {exc}") from exc
    if not isinstance(arguments, dict):
        raise Stop("the arguments must be a JSON object, as in '{\"key\": 1}'")
    return arguments


def _reason(exc: Exception) -> str:
    return exc.strerror or str(exc) if isinstance(exc, OSError) else "they are not UTF-8"
