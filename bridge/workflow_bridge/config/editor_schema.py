"""The JSON Schema of bridge.yaml, for editors: completion, descriptions and early warnings.

It is no stricter than `load`, and less strict where JSON Schema cannot say it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from workflow_bridge.config.docstrings import docstrings
from workflow_bridge.config.kinds import Kinds, Unusable
from workflow_bridge.config.models import BackendKeys, Database, Root, ToolKeys
from workflow_bridge.config.units import format_duration

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NAME_PATTERN = "^[A-Za-z0-9_.-]{1,128}$"
_VARIABLE = {"type": "string", "pattern": r"\$\{", "description": "${ENV} or ${ENV:-default}"}
_SCALARS = frozenset({"integer", "number", "boolean"})


def json_schema(*, kinds: Kinds | None = None) -> dict[str, Any]:
    """Return the schema, with the keys of every kind of adapter that is installed and usable."""
    known = kinds or Kinds()
    definitions: dict[str, Any] = {}
    root = _schema_of(Root, "", definitions)
    tool = _schema_of(ToolKeys, "", definitions)
    backend = _schema_of(BackendKeys, "", definitions)
    for schema in ("input_schema", "output_schema"):
        tool["properties"][schema] = _object_schema(tool["properties"][schema])
    backend["properties"]["adapter"] = {
        "enum": list(known.names),
        "description": backend["properties"]["adapter"].get("description", ""),
    }
    backend["properties"]["tools"] |= {
        "additionalProperties": {"$ref": "#/$defs/tool"},
        "propertyNames": {"pattern": _NAME_PATTERN},
    }
    del backend["additionalProperties"]
    backend["allOf"] = [
        {
            "if": {"properties": {"adapter": {"const": kind}}, "required": ["adapter"]},
            "then": _adapter_keys(kind, known, backend, definitions),
        }
        for kind in known.names
    ]
    root["properties"]["backends"] = {
        "type": "object",
        "description": "The engines, by a name of your choice.",
        "additionalProperties": {"$ref": "#/$defs/backend"},
        "propertyNames": {"pattern": _NAME_PATTERN},
    }
    return {
        "$schema": _DRAFT,
        "title": "bridge.yaml",
        **{key: value for key, value in root.items() if key != "title"},
        "$defs": {**definitions, "backend": backend, "tool": tool},
    }


def _adapter_keys(
    kind: str, kinds: Kinds, backend: dict[str, Any], definitions: dict[str, Any]
) -> dict[str, Any]:
    try:
        settings = kinds.factory(kind).Settings
    except Unusable:
        return {}  # its keys cannot be known here
    schema = _schema_of(settings, f"{kind}.", definitions)
    schema.pop("title", None)
    schema["properties"] = {
        **dict.fromkeys(backend["properties"], True),
        **schema.get("properties", {}),
    }
    return schema


class _Generator(GenerateJsonSchema):
    """Describes keys by their docstrings, and shows defaults as YAML writes them."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        properties = made.get("properties", {})
        for name, words in docstrings(schema["cls"]).items():
            if name in properties:
                properties[name].setdefault("description", words)
        return made

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Database):
            return dft.url
        if isinstance(dft, timedelta):
            return format_duration(dft)
        return super().encode_default(dft)


def _schema_of(model: type[BaseModel], prefix: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a model's schema; what it refers to goes into ``definitions`` under the prefix."""
    # Of our own models what is written is what is read, and pydantic shows defaults as written.
    schema = model.model_json_schema(
        ref_template=f"#/$defs/{prefix}{{model}}",
        schema_generator=_Generator,
        mode="validation" if prefix else "serialization",
    )
    for name, definition in schema.pop("$defs", {}).items():
        definitions[prefix + name] = _with_variables(definition)
    return _with_variables(schema)


def _with_variables(schema: dict[str, Any]) -> dict[str, Any]:
    """Let `${ENV}` stand wherever a scalar may."""
    schema = dict(schema)
    if "properties" in schema:
        schema["properties"] = {
            name: _with_variables(value) for name, value in schema["properties"].items()
        }
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            schema[word] = _with_variables(schema[word])
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if word in schema:
            schema[word] = [_with_variables(branch) for branch in schema[word]]
    if not _is_limited_scalar(schema):
        return schema
    kept: dict[str, Any] = {
        key: schema.pop(key) for key in ("title", "description", "default") if key in schema
    }
    return {**kept, "anyOf": [schema, dict(_VARIABLE)]}


def _is_limited_scalar(schema: dict[str, Any]) -> bool:
    if schema.get("type") in _SCALARS or "enum" in schema or "const" in schema:
        return True
    return schema.get("type") == "string" and ("pattern" in schema or "format" in schema)


def _object_schema(field: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": field.get("description", ""),
        "type": "object",
        "properties": {"type": {"const": "object"}},
        "required": ["type"],
    }
