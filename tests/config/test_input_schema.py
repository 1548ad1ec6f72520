from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from workflow_bridge.config.input_schema import flaws


def obj(**keys: Any) -> dict[str, Any]:
    return {"type": "object", **keys}


@pytest.mark.parametrize(
    "schema",
    [
        obj(),
        obj(properties={"a": {"type": "string"}}, required=["a"], additionalProperties=False),
        obj(**{"$schema": "https://json-schema.org/draft/2020-12/schema"}),
        obj(**{"$schema": "http://json-schema.org/draft-07/schema#"}, definitions={"a": {}}),
        obj(**{"$schema": "http://json-schema.org/draft-07/schema"}),
        obj(**{"$id": "https://example.com/order", "$defs": {"a": {"$ref": "#"}}}),
        obj(properties={"a": {"$ref": "#/$defs/a"}}, **{"$defs": {"a": {"type": "string"}}}),
        obj(properties={"a": {"$ref": "#"}}),
        obj(properties={"a": {"items": {"$ref": "#/properties/a"}}}),
        obj(**{"$defs": {"a/b~c d": {}}}, properties={"a": {"$ref": "#/$defs/a~1b~0c%20d"}}),
        obj(properties={"a": {"$ref": "#/allOf/0"}}, allOf=[{}]),
        obj(properties={"$ref": {"type": "string"}, "$id": {}, "const": {"type": "string"}}),
        obj(default={"$ref": "http://x"}, examples=[{"$ref": "http://x"}]),
        obj(properties={"a": {"const": {"$ref": "http://x"}, "enum": [{"$id": "http://x"}]}}),
        obj(properties={"a": True, "b": False}),
        obj(unknown_word={"a": 5}),
    ],
)
def test_schemas_of_objects_that_are_complete_in_themselves_are_accepted(
    schema: dict[str, Any],
) -> None:
    assert flaws(schema) == []


def endless(**keys: Any) -> dict[str, Any]:
    return obj(properties={"a": {"$ref": "#/$defs/a"}}, **{"$defs": keys})


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ({}, ("type",), "must be `type: object`"),
        ({"type": "array"}, ("type",), "must be `type: object`"),
        ({"type": ["object", "null"]}, ("type",), "must be `type: object`"),
        (obj(required="a"), ("required",), "'a' is not of type 'array'"),
        (obj(properties={"a": 5}), ("properties", "a"), "5 is not of type 'object', 'boolean'"),
        (
            obj(properties={"a": {"type": "sting"}}),
            ("properties", "a", "type"),
            "'sting' is no type; did you mean 'string'?",
        ),
        (
            obj(properties={"a": {"type": "uuid"}}),
            ("properties", "a", "type"),
            "'uuid' is no type; types are array, boolean",
        ),
        (obj(pattern="("), ("pattern",), "'(' is not a 'regex'"),
        (obj(minLength=-1), ("minLength",), "-1 is less than the minimum of 0"),
        (obj(**{"$schema": "http://x/y"}), ("$schema",), "names no draft"),
        (obj(**{"$schema": "http://["}), ("$schema",), "names no draft"),
        (obj(**{"$schema": ["x"]}), ("$schema",), "names no draft"),
        (
            obj(properties={"a": {"$ref": "https://example.com/a.json"}}),
            ("properties", "a", "$ref"),
            "'https://example.com/a.json' must stay inside this schema",
        ),
        (
            obj(items=[{"$ref": "file:///etc/passwd"}], **{"$schema": "http://json-schema.org/draft-07/schema#"}),
            ("items", 0, "$ref"),
            "must stay inside this schema",
        ),
        (obj(allOf=[{"$ref": "#a"}]), ("allOf", 0, "$ref"), "must stay inside this schema"),
        (obj(allOf=[{"$dynamicRef": "x"}]), ("allOf", 0, "$dynamicRef"), "must stay inside"),
        (obj(allOf=[{"$ref": "#/$defs/a"}]), ("allOf", 0, "$ref"), "leads nowhere"),
        (obj(allOf=[{"$ref": "#/allOf/1"}]), ("allOf", 0, "$ref"), "leads nowhere"),
        (obj(allOf=[{"$ref": "#/type"}]), ("allOf", 0, "$ref"), "leads nowhere"),
        (
            obj(properties={"a": {"$id": "http://x", "$ref": "#"}}),
            ("properties", "a", "$id"),
            "belongs at the top only",
        ),
        (obj(**{"$ref": "#"}), ("$ref",), "leads back to itself without an end"),
        (obj(allOf=[{"not": {"$ref": "#"}}]), ("allOf", 0, "not", "$ref"), "leads back to itself"),
        (
            endless(a={"$ref": "#/$defs/b"}, b={"anyOf": [{"$ref": "#/$defs/a"}]}),
            ("$defs", "a", "$ref"),
            "leads back to itself",
        ),
        (
            endless(a={"dependentSchemas": {"x": {"$ref": "#/$defs/a"}}}),
            ("$defs", "a", "dependentSchemas", "x", "$ref"),
            "leads back to itself",
        ),
        (obj(**{"$id": "http://[", "allOf": [{"$ref": "#"}]}), ("allOf", 0, "$ref"), "leads back"),
        (obj(**{"$schema": "http://json-schema.org/draft-04/schema#"}), ("$schema",), "names no"),
        (obj(description="x" * 256_000), (), "is longer than 256,000 bytes of JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(
    schema: dict[str, Any], path: tuple[str | int, ...], message: str
) -> None:
    found = {flaw.path: flaw.message for flaw in flaws(schema)}
    assert message in found[path]


def test_a_schema_may_be_deep_but_not_bottomless() -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema = obj()
        for _ in range(levels):
            schema = obj(properties={"a": schema})
        return schema

    assert flaws(nested(19)) == []
    assert Draft202012Validator(nested(19)).is_valid(json.loads('{"a":' * 19 + "{}" + "}" * 19))
    assert flaws(nested(20))[0].message == "is nested more than 40 levels deep"


def test_every_flaw_of_a_schema_is_reported() -> None:
    schema = obj(properties={"a": {"type": "x"}, "b": {"pattern": "("}, "c": 1})
    assert {flaw.path[1] for flaw in flaws(schema)} == {"a", "b", "c"}


def test_the_validator_is_imported_only_when_a_schema_is_checked() -> None:
    code = "import sys, workflow_bridge.config; sys.exit('jsonschema' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
