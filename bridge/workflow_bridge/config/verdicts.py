"""What pydantic says of a value, in the operator's words and at its place in the file."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from workflow_bridge.config.document import Document
from workflow_bridge.config.issues import KeyPath, Unfit

_WANTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be a mapping of keys to values",
    "mapping_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
}

_VALUE_FREE = frozenset(
    {
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "multiple_of",
        "string_too_short",
        "string_too_long",
        "string_pattern_mismatch",
        "too_short",
        "too_long",
        "finite_number",
    }
)
"""pydantic's errors whose text holds limits only, nothing of the value."""


def report(
    document: Document,
    prefix: KeyPath,
    model: type[BaseModel],
    error: ValidationError,
    *,
    other_keys: Iterable[str] = (),
) -> None:
    """Note in ``document`` everything that ``model`` refused about the data at ``prefix``.

    ``other_keys`` may stand beside the model's own at that place. Texts show no value that came
    from the environment.
    """
    for verdict in error.errors(include_url=False):
        kind = verdict["type"]
        path = (*prefix, *_inside(document, prefix, model, verdict["loc"], kind))
        if kind == "extra_forbidden":
            keys = [*_keys(model, path[len(prefix) : -1])]
            if len(path) == len(prefix) + 1:
                keys += other_keys
            document.report(path, _unknown_key(str(path[-1]), keys), at_key=True)
        elif kind == "missing":
            document.report(path, "is missing", at_key=True)
        else:
            names = document.variables_of(path)
            message = _message(kind, verdict, blind=bool(names))
            document.report(path, message + origin(names), at_key=kind == "too_short")


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the key that was probably meant."""
    return next(iter(difflib.get_close_matches(key, list(known), n=1)), None)


def _unknown_key(key: str, known: Sequence[str]) -> str:
    if near := nearest_key(key, known):
        return f"unknown key; did you mean {near!r}?"
    return f"unknown key; known here: {', '.join(sorted(known))}" if known else "unknown key"


def origin(variables: Sequence[str]) -> str:
    """Return what to add to a message about a value that is not shown; empty if it may be."""
    if not variables:
        return ""
    return f" (its value comes from {', '.join(f'${{{name}}}' for name in variables)})"


def describe(value: object) -> str:
    """Return what sort of value YAML made of it; never the value."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _message(kind: str, verdict: Any, *, blind: bool) -> str:
    value = verdict["input"]
    if kind in _WANTED:
        quotes = kind == "string_type" and isinstance(value, bool | int | float)
        shown = _shown(value) if kind.endswith("_parsing") and not blind else describe(value)
        return f"{_WANTED[kind]}, is {shown}" + (": put it in quotes" if quotes else "")
    if kind in ("string_too_short", "too_short") and not value:
        return "must not be empty"
    if kind in ("literal_error", "enum"):
        return _choice(verdict, blind=blind)
    if kind in ("value_error", "assertion_error"):
        cause = verdict.get("ctx", {}).get("error")
        if isinstance(cause, Unfit):
            return cause.blind if blind else str(cause)
        return "is not accepted" if blind else str(cause)
    if blind and kind not in _VALUE_FREE:
        return "is not accepted"
    return str(verdict["msg"]).replace("Input should", "must").replace("Value should", "must")


def _choice(verdict: Any, *, blind: bool) -> str:
    expected = str(verdict["ctx"]["expected"])
    value = verdict["input"]
    message = f"must be {expected}"
    if not isinstance(value, str):
        return f"{message}, is {describe(value)}"
    if blind:
        return message
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    near = difflib.get_close_matches(value, choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near and len(choices) > 1 else ""
    return f"{message}, is {_shown(value)}{hint}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def _inside(
    document: Document,
    prefix: KeyPath,
    model: type[BaseModel],
    loc: tuple[int | str, ...],
    kind: str,
) -> Iterable[str | int]:
    """The parts of pydantic's location that are places in the file (not names of union members)."""
    node: Any = document.data
    for part in prefix:
        node = node[part]
    for n, part in enumerate(loc):
        if (isinstance(node, dict) and part in node) or _indexes(node, part):
            node = node[part]
            yield part
        elif n == len(loc) - 1 and (kind == "missing" or (n == 0 and part in model.model_fields)):
            yield part


def _indexes(node: object, part: int | str) -> bool:
    return isinstance(node, list) and isinstance(part, int) and part < len(node)


def _keys(model: type[BaseModel], path: KeyPath) -> Iterable[str]:
    """The keys that a model takes at a path inside it."""
    here: list[type[BaseModel]] = [model]
    for part in path:
        below = []
        for each in here:
            for name, field in each.model_fields.items():
                if part in (name, field.alias):
                    below += _models(field.annotation)
        here = below or (here if isinstance(part, int) else [])
    for each in here:
        for name, field in each.model_fields.items():
            yield field.alias or name


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]
