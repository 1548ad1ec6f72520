"""What has to be true of parts of the configuration beyond their types."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from workflow_bridge.adapter import Adapter, AdapterFactory, Json, RunsInline
from workflow_bridge.config.addresses import is_wildcard
from workflow_bridge.config.document import Document
from workflow_bridge.config.input_schema import flaws
from workflow_bridge.config.issues import KeyPath, Unfit
from workflow_bridge.config.kinds import Kinds, NoSuchKind, Unusable
from workflow_bridge.config.models import RESERVED_TOOLS, KeepAliveLimits, Server
from workflow_bridge.config.units import format_duration, parse_duration
from workflow_bridge.config.verdicts import describe, origin, report

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_FOR_BOTH = ("transport", "isolation", "dialects", "plain_call")
"""Keys of `server` that mean something over stdio too."""

_Model = TypeVar("_Model", bound=BaseModel)
_Made = TypeVar("_Made")


def mapping(document: Document, path: KeyPath) -> Mapping[str, Json] | None:
    """Return the mapping at ``path``; None, and an issue, if something else is there."""
    node: Json = document.data
    for part in path:
        node = node[part]  # type: ignore[index]
    if isinstance(node, dict):
        return node
    if document.data is not None or not document.issues:
        message = f"must be a mapping of keys to values, is {describe(node)}"
        document.report(path, message, at_key=bool(path))
    return None


def without(keys: Mapping[str, Json], names: Iterable[str]) -> dict[str, Json]:
    """Return the other keys."""
    left_out = frozenset(names)
    return {key: value for key, value in keys.items() if key not in left_out}


def validated(
    document: Document,
    path: KeyPath,
    model: type[_Model],
    data: Mapping[str, Json],
    *,
    other_keys: Iterable[str] = (),
) -> _Model | None:
    """Return the model of ``data``; None, and issues, if it is refused."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        report(document, path, model, error, other_keys=other_keys)
        return None


def valid_part(model: type[_Model], data: Mapping[str, Json]) -> tuple[_Model, set[str]]:
    """Return the model of the keys that are right by themselves, and the names of the others.

    Every key of the model must have a default.
    """
    wrong: set[str] = set()
    while True:
        try:
            return model.model_validate(without(data, wrong)), wrong
        except ValidationError as error:
            wrong |= {str(verdict["loc"][0]) for verdict in error.errors()}


def check_name(document: Document, path: KeyPath, noun: str) -> None:
    """A name may hold ASCII letters, digits, `_`, `-` and `.`."""
    name = str(path[-1])
    if not _NAME.fullmatch(name):
        message = f"a {noun} name is 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`"
        document.report(path, message, at_key=True)
    elif noun == "tool" and name in RESERVED_TOOLS:
        message = "this name is reserved for a tool of the bridge's own"
        document.report(path, message, at_key=True)


def check_schema(document: Document, path: KeyPath, schema: Json) -> None:
    """A tool's schema must be one that arguments can be checked with."""
    if isinstance(schema, dict):
        for flaw in flaws(schema):
            place = (*path, *flaw.path)
            names = document.variables_of(place)
            document.report(place, (flaw.blind if names else flaw.message) + origin(names))


def check_workflow(
    document: Document, path: KeyPath, keys: Mapping[str, Json], adapter: Adapter
) -> None:
    """The adapter must be able to run the workflow in the tool's mode."""
    workflow, inline = keys.get("workflow"), keys.get("mode") == "inline"
    if inline and not isinstance(adapter, RunsInline):
        document.report((*path, "mode"), "this kind of adapter has no inline mode")
        return
    if isinstance(workflow, str) and workflow:
        place = (*path, "workflow")
        attempt(document, place, lambda: adapter.check_workflow(workflow, inline=inline))


def attempt(document: Document, path: KeyPath, make: Callable[[], _Made]) -> _Made | None:
    """Return what ``make`` returns; None, and an issue, for a `ValueError`."""
    try:
        return make()
    except ValueError as error:
        names = document.variables_of(path)
        message = "is not accepted by the adapter" if names else str(error)
        document.report(path, message + origin(names))
        return None


def find_factory(
    document: Document, path: KeyPath, kinds: Kinds, kind: str
) -> AdapterFactory | None:
    """Return what makes adapters of this kind; None, and an issue, if there is none."""
    names = document.variables_of(path)
    try:
        return kinds.factory(kind)
    except NoSuchKind as error:
        installed = ", ".join(error.known) or "none"
        hint = f"; did you mean {error.nearest!r}?" if error.nearest and not names else ""
        message = f"no such kind of adapter{hint} (installed: {installed})"
        document.report(path, message + origin(names))
    except Unusable as error:
        document.report(path, str(error))
    return None


def check_limits(document: Document, limits: KeepAliveLimits) -> None:
    """The default must lie between the bounds."""
    path: KeyPath = ("limits", "keep_alive")
    shown = not document.variables_of(path)
    default, low, high = limits.default, limits.min, limits.max
    for wrong, name, bound, relation in (
        (low > high, "min", high, "longer than max"),
        (default < low <= high, "default", low, "shorter than min"),
        (default > high >= low, "default", high, "longer than max"),
    ):
        if wrong:
            values = ""
            if shown:
                own = low if name == "min" else default
                values = f": {format_duration(own)} against {format_duration(bound)}"
            document.report((*path, name), f"is {relation}{values}")


def check_keep_alive(
    document: Document, path: KeyPath, value: Json, limits: KeepAliveLimits, *, shown: bool
) -> None:
    """A tool's own default must lie between the bounds too. ``shown``: the bounds may be."""
    try:
        keep_alive = parse_duration(value)
    except Unfit:
        return  # absent, or reported with the tool's other keys
    for wrong, name, bound, relation in (
        (keep_alive < limits.min, "min", limits.min, "shorter"),
        (keep_alive > limits.max, "max", limits.max, "longer"),
    ):
        if wrong:
            length = f" ({format_duration(bound)})" if shown else ""
            message = f"is {relation} than limits.keep_alive.{name}{length}"
            document.report((*path, "keep_alive"), message)


def check_server(document: Document, server: Server) -> None:
    """The keys must fit the transport, and nobody else's client may be let in by oversight."""
    if server.transport == "stdio":
        _check_stdio(document, server)
        return
    if server.sessions == "stateless" and server.isolation != "none":
        message = (
            "without sessions nothing tells clients apart: say `isolation: none` too (all see all"
            " tasks), or leave sessions stateful"
        )
        document.report(("server", "sessions"), message)
    if not server.loopback and server.isolation == "auto":
        message = (
            "others can reach this address, and there is no authentication: say `isolation:"
            " session` (each session sees its own tasks) or `isolation: none` (all see all tasks)"
        )
        document.report(("server", "host"), message)
    if is_wildcard(server.host) and not server.allowed_hosts:
        message = (
            "with this address `allowed_hosts` must say what clients call this server (or `*`),"
            " so that no web page can reach it under a name of its own"
        )
        document.report(("server", "host"), message)


def _check_stdio(document: Document, server: Server) -> None:
    said = server.model_fields_set
    for key in () if "transport" in said else sorted(said.difference(_FOR_BOTH)):
        if getattr(server, key) != Server.model_fields[key].default:
            message = "belongs to transport http: say `transport: http` too"
            document.report(("server", key), message, at_key=True)
    if server.isolation == "session":
        message = "over stdio there is one user, and no session: say auto or none"
        document.report(("server", "isolation"), message)


def included(document: Document, patterns: Iterable[str]) -> Iterator[Path]:
    """Yield the files that the patterns match, each once, in order of name within a pattern."""
    folder = document.file.parent
    seen = {document.file.resolve()}
    for n, pattern in enumerate(patterns):
        path = ("include", n)
        if document.variables_of(path):
            document.report(path, "variables are not supported here")
            continue
        matches = _glob(pattern, folder)
        if not matches:
            document.report(path, "matches no file; paths are relative to this file's folder")
        for match in matches:
            if (resolved := match.resolve()) not in seen:
                seen.add(resolved)
                yield match
            elif resolved == document.file.resolve():
                document.report(path, "matches this file itself")


def _glob(pattern: str, folder: Path) -> list[Path]:
    try:
        # not Path.glob: that refuses absolute patterns
        names = glob.glob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207
        return [folder / name for name in sorted(names)]
    except (OSError, ValueError, re.error, RecursionError):
        return []
