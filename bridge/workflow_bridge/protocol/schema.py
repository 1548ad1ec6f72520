"""Whether a value is as a JSON Schema says, and if not, where and why, in bounded words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Objects and arrays within each other; parsers on the way give up not far beyond."""
_MAX_WORDS: Final = 200


def too_deep(value: object) -> bool:
    """Whether a parsed value is nested deeper than `MAX_DEPTH`."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            member for item in level for member in _members(item) if isinstance(member, dict | list)
        ]
    return bool(level)


def fault_of(value: object) -> str | None:
    """Say why a parsed value is not fit to be passed on as JSON; None where it is."""
    if too_deep(value):
        return f"is nested deeper than {MAX_DEPTH} levels"
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return "holds a number that JSON cannot express (NaN, or too large)"
        if isinstance(item, str) and not encodable(item):
            return "holds a lone surrogate, which no UTF-8 text can"
        if isinstance(item, dict):
            rest += item.keys()
        rest += _members(item)
    return None


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def encodable(text: str) -> bool:
    """Whether a string is text: it holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Schema:
    """A compiled JSON Schema (2020-12, unless it names another draft)."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        # Imported here because it costs a tenth of a second that no handshake needs.
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing.jsonschema import EMPTY_REGISTRY

        # With a registry of its own no validator fetches a remote $ref.
        kind = validator_for(schema, default=Draft202012Validator)
        self._validator = kind(schema, registry=EMPTY_REGISTRY)

    def fault(self, value: Any) -> str | None:
        """Say where a value is not as the schema says, and what should be there.

        Never repeats the value: it may be huge, or a secret.
        """
        from jsonschema.exceptions import best_match

        try:
            error = best_match(self._validator.iter_errors(value))
        except RecursionError:
            return "$: is nested too deeply to be checked"
        if error is None:
            return None
        where = _bounded(error.json_path)
        return f"{where}: {_explained(error.validator, error.validator_value, error.instance)}"


def _explained(keyword: object, wanted: Any, value: object) -> str:
    match keyword:
        case "type":
            return f"must be of type {' or '.join(wanted) if isinstance(wanted, list) else wanted}"
        case "required" if isinstance(value, dict):
            return f"lacks {_bounded(', '.join(repr(n) for n in wanted if n not in value))}"
        case "additionalProperties" | "unevaluatedProperties" if wanted is False:
            return "has a property that the schema does not know"
        case "enum":
            return f"must be one of {_json(wanted)}"
        case "const":
            return f"must be {_json(wanted)}"
        case "pattern":
            return f"must match the pattern {_json(wanted)}"
        case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf":
            return f"must satisfy {keyword} {_json(wanted)}"
        case "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties":
            return f"has the wrong size: {keyword} is {_json(wanted)}"
        case None:
            return "is not allowed"
        case _:
            return f"must satisfy {keyword} {_json(wanted)}"


def _json(value: object) -> str:
    return _bounded(json.dumps(value, ensure_ascii=False, default=str))


def _bounded(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_WORDS else text[: _MAX_WORDS - 1] + "…"
