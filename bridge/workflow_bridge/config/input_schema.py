"""What is wrong with the JSON Schema of a tool, as far as that can be said without arguments."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from workflow_bridge.config.issues import KeyPath

_LONGEST_BYTES = 256_000
_DEEPEST = 40

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_DATA = frozenset({"const", "enum", "default", "examples"})
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something wrong at a path inside the schema. ``blind`` shows nothing of its values."""

    path: KeyPath
    message: str
    blind: str


def flaws(schema: Mapping[str, Any]) -> list[Flaw]:
    """Return why ``schema`` cannot describe a tool's arguments or result; empty if it can.

    It must be a valid JSON Schema of an object (2020-12, or the draft from 6 on that `$schema`
    names), complete in itself: references lead to places inside it and come to an end.
    """
    if schema.get("type") != "object":
        return [_flaw(("type",), "must be `type: object`: arguments have names")]
    if len(json.dumps(schema, ensure_ascii=False).encode()) > _LONGEST_BYTES:
        return [_flaw((), f"is longer than {_LONGEST_BYTES:,} bytes of JSON")]
    if _depth(schema) > _DEEPEST:
        return [_flaw((), f"is nested more than {_DEEPEST} levels deep")]
    return _grammar(schema) or _references(schema)


def _grammar(schema: Mapping[str, Any]) -> list[Flaw]:
    # Imported here: it costs a tenth of a second, and not every command needs it.
    from jsonschema.exceptions import best_match

    validator = _draft(schema)
    if validator is None:
        return [_flaw(("$schema",), "names no draft of JSON Schema that is known here")]
    meta = validator(validator.META_SCHEMA, format_checker=validator.FORMAT_CHECKER)
    found = []
    for error in meta.iter_errors(schema):
        deepest = best_match([error]) or error
        path = tuple(deepest.absolute_path)
        blind = f"is not JSON Schema: it breaks the rule `{deepest.validator}`"
        found.append(Flaw(path, f"is not JSON Schema: {_short(deepest)}", blind))
    return found


def _draft(schema: Mapping[str, Any]) -> Any:
    """The validator class of the draft that a schema names; None if there is none."""
    from jsonschema import (
        Draft6Validator,
        Draft7Validator,
        Draft201909Validator,
        Draft202012Validator,
    )

    name = schema.get("$schema", Draft202012Validator.META_SCHEMA["$id"])
    for draft in (Draft202012Validator, Draft201909Validator, Draft7Validator, Draft6Validator):
        if isinstance(name, str) and name.rstrip("#") == draft.META_SCHEMA["$id"].rstrip("#"):
            return draft
    return None


def _short(error: Any) -> str:
    if "type" in list(error.absolute_path)[-1:] and isinstance(error.instance, str):
        near = difflib.get_close_matches(error.instance, _TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"types are {', '.join(_TYPES)}"
        return f"{_quoted(error.instance)} is no type; {hint}"
    message = str(error.message)
    return message if len(message) <= 200 else message[:200] + "…"


@dataclass(slots=True)
class _Walk:
    """Every subschema by its place, and the references between them."""

    subschemas: dict[KeyPath, Any] = field(default_factory=dict)
    references: list[tuple[KeyPath, str, Any]] = field(default_factory=list)
    identified: list[KeyPath] = field(default_factory=list)

    def visit(self, schema: Any, path: KeyPath) -> None:
        self.subschemas[path] = schema
        if isinstance(schema, list):
            for n, item in enumerate(schema):
                self.visit(item, (*path, n))
        elif isinstance(schema, dict):
            for word, value in schema.items():
                if word == "$id" and path:
                    self.identified.append(path)
                elif word in _REFERENCES:
                    self.references.append((path, word, value))
                elif word in _MAPS and isinstance(value, dict):
                    for name, item in value.items():
                        self.visit(item, (*path, word, name))
                elif word not in _DATA:
                    self.visit(value, (*path, word))


def _references(schema: Mapping[str, Any]) -> list[Flaw]:
    walk = _Walk()
    walk.visit(schema, ())
    message = "belongs at the top only: below, it changes what references mean"
    found = [_flaw((*path, "$id"), message) for path in walk.identified]
    targets: dict[KeyPath, list[KeyPath]] = {}
    for path, word, value in walk.references:
        place = (*path, word)
        if value != "#" and not (isinstance(value, str) and value.startswith("#/")):
            message = "must stay inside this schema: `#` or `#/…`"
            found.append(Flaw(place, f"{_quoted(value)} {message}", message))
            continue
        target = _resolve(schema, value)
        if target is None:
            message = "leads nowhere in this schema"
            found.append(Flaw(place, f"{_quoted(value)} {message}", message))
        else:
            targets.setdefault(path, []).append(target)
    return found or [
        _flaw((*path, "$ref"), "leads back to itself without an end")
        for path in _endless(walk.subschemas, targets)
    ]


def _resolve(schema: Mapping[str, Any], reference: str) -> KeyPath | None:
    """Follow a JSON pointer (RFC 6901) to a schema."""
    node: Any = schema
    path: list[str | int] = []
    for token in unquote(reference).split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            node = node[name]
            path.append(name)
        elif isinstance(node, list) and name.isascii() and name.isdigit() and int(name) < len(node):
            node = node[int(name)]
            path.append(int(name))
        else:
            return None
    return tuple(path) if isinstance(node, dict | bool) else None


def _endless(
    subschemas: Mapping[KeyPath, Any], targets: Mapping[KeyPath, list[KeyPath]]
) -> Iterator[KeyPath]:
    """Places whose references come back to them with no step into the value in between."""

    def next_from(path: KeyPath) -> Iterator[KeyPath]:
        yield from targets.get(path, ())
        schema = subschemas.get(path)
        if isinstance(schema, dict):
            for word in _IN_PLACE:
                branch = schema.get(word)
                if isinstance(branch, dict) and word != "dependentSchemas":
                    yield (*path, word)
                elif isinstance(branch, dict | list):
                    names = branch if isinstance(branch, dict) else range(len(branch))
                    yield from ((*path, word, name) for name in names)

    for start in targets:
        seen: set[KeyPath] = set()
        ahead = list(next_from(start))
        while ahead:
            place = ahead.pop()
            if place == start:
                yield start
                break
            if place not in seen:
                seen.add(place)
                ahead.extend(next_from(place))


def _depth(value: object) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(item) for item in below), default=0)


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def _flaw(path: KeyPath, message: str) -> Flaw:
    return Flaw(path, message, message)
