"""Which dialect a request is in. Pure; the table at the top of the requirements, as code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from workflow_bridge.core.task import Dialect
from workflow_bridge.protocol.errors import invalid

TASK: Final = "modelcontextprotocol.io/task"
"""A's metadata on a request that shall become a task (SEP-1686 §3.1)."""
RELATED_TASK: Final = "modelcontextprotocol.io/related-task"
"""A's mark on all that is tied to one task (SEP-1686 §4.7)."""
EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""C's name among a client's extensions."""

CORE_TASKS: Final = "2025-11-25"
"""The one protocol version that has B."""
MODERN: Final = "2026-07-28"
"""From this version on neither A nor B exists (A-2, C-20)."""

_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"


def recognise(
    method: str,
    params: Mapping[str, Any] | None,
    version: str,
    *,
    used_a: bool,
    spoken: Collection[Dialect],
) -> Dialect:
    """Return the dialect of a `tools/call` or a task request.

    ``used_a``: the connection spoke A before. ``spoken``: what this server speaks; a dialect that
    it does not speak is as good as absent. Both A's and B's marker on one request are an error.
    """
    params = params or {}
    meta = members(params.get("_meta"))
    if version >= MODERN:
        extensions = members(members(meta.get(_CLIENT_CAPABILITIES)).get("extensions"))
        return Dialect.C if EXTENSION in extensions and Dialect.C in spoken else Dialect.PLAIN
    if method == "tools/call":
        in_a, in_b = TASK in meta, params.get("task") is not None
        if in_a and in_b:
            raise invalid("two_dialects", f"send either _meta['{TASK}'] or params.task, not both")
        if in_a and Dialect.A in spoken:
            return Dialect.A
        if in_b and version == CORE_TASKS and Dialect.B in spoken:
            return Dialect.B
        return Dialect.PLAIN
    sure_of_a = (
        version < CORE_TASKS or method == "tasks/delete" or RELATED_TASK in meta or used_a
    )  # fmt: skip
    if not sure_of_a and Dialect.B in spoken:
        return Dialect.B
    return Dialect.A if Dialect.A in spoken else Dialect.PLAIN


def knows_tasks(
    params: Mapping[str, Any] | None, version: str, *, used_a: bool, spoken: Collection[Dialect]
) -> bool:
    """Whether a client is known to speak of tasks itself, in a dialect that this server speaks.

    Below `MODERN` nothing tells before it does so: what a client declares there is that it *takes*
    tasks. Whoever is not known to is taken for one that does not: a tool too many does less harm
    than a result that cannot be fetched.
    """
    if version < MODERN:
        return used_a
    return recognise("tools/list", params, version, used_a=used_a, spoken=spoken) is Dialect.C


def members(value: object) -> Mapping[str, Any]:
    """Return an object's members; none for what is no object."""
    return value if isinstance(value, Mapping) else {}
