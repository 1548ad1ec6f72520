"""The JSON Schema for editors agrees with what `load` accepts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from tests.config.adapters import kinds
from tests.config.test_loading import FULL, SMALLEST
from workflow_bridge.config import Kinds, json_schema
from workflow_bridge.config.docstrings import docstrings


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json_schema(kinds=kinds())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def document(text: str, **changes: Any) -> Any:
    """A configuration with some values changed; the path's parts are joined by ``__``."""
    data = yaml.safe_load(text)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = data
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return data


@pytest.mark.parametrize("text", [SMALLEST, FULL])
def test_it_accepts_right_configurations(validator: Draft202012Validator, text: str) -> None:
    assert list(validator.iter_errors(document(text))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"limits__create": "${RATE}"},
        {"limits__concurrent_tasks": "${MANY:-5}"},
        {"backends__orders__tools__settle__poll": "${POLL:-5s}"},
        {"backends__orders__tools__settle__expose_cause": "${EXPOSE}"},
        {"backends__orders__tools__settle__task": "${TASK}"},
        {"backends__orders__retries": {"attempts": "${ATTEMPTS}"}},
    ],
)
def test_it_accepts_variables_wherever_they_may_stand(
    validator: Draft202012Validator, changes: dict[str, Any]
) -> None:
    assert list(validator.iter_errors(document(SMALLEST, **changes))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"databse": "sqlite"},
        {"limits__create": 10},
        {"limits__create": "10"},
        {"limits__concurrent_tasks": 0},
        {"server__transport": "tcp"},
        {"server__port": 65536},
        {"delete__running": "maybe"},
        {"backends__or/ders": {}},
        {"backends__orders__adapter": "plane"},
        {"backends__orders__regoin": "eu-west-1"},
        {"backends__orders__region": 5},
        {"backends__orders__retries": {"atempts": 5}},
        {"backends__orders__retries": {"attempts": 9}},
        {"backends__orders__tools": {}},
        {"backends__orders__tools__settle__pol": "5s"},
        {"backends__orders__tools__settle__poll": "5 sec"},
        {"backends__orders__tools__settle__task": "require"},
        {"backends__orders__tools__settle__input_schema": {"type": "array"}},
        {"backends__orders__tools__bad name": {}},
        {"backends__orders__tools__other": {"workflow": "flow:x"}},
    ],
)
def test_it_refuses_wrong_ones(validator: Draft202012Validator, changes: dict[str, Any]) -> None:
    assert list(validator.iter_errors(document(SMALLEST, **changes))) != []


def test_keys_of_a_kind_that_cannot_be_imported_are_left_open(
    validator: Draft202012Validator,
) -> None:
    absent = document(SMALLEST, backends__orders__adapter="absent", backends__orders__x=1)
    assert list(validator.iter_errors(absent)) == []


def test_defaults_are_shown_as_they_would_be_written() -> None:
    definitions = json_schema(kinds=kinds())["$defs"]
    assert definitions["tool"]["properties"]["poll"]["default"] == "5s"
    assert definitions["tool"]["properties"]["max_text"]["default"] == "100KB"
    assert definitions["Limits"]["properties"]["create"]["default"] == "10/s"
    assert definitions["KeepAliveLimits"]["properties"]["default"]["default"] == "1d"


def test_keys_are_described_in_the_words_of_their_models() -> None:
    schema = json_schema()
    definitions = schema["$defs"]
    bounds = definitions.pop("KeepAliveLimits")["properties"]
    assert bounds["default"]["description"] == "Where neither the client nor the tool says."
    for name in ("server", "limits", "retention", "delete"):
        del schema["properties"][name]
    adapter = definitions["backend"].pop("allOf")[0]["then"]
    for model in (schema, adapter, *definitions.values()):
        for key, value in model["properties"].items():
            described = value is True or "$ref" in value or value.get("description")
            assert described, key
    assert adapter["properties"]["role_arn"]["description"].startswith("Role to assume")


def test_a_model_whose_source_is_not_at_hand_goes_without_descriptions() -> None:
    made = type("Made", (BaseModel,), {"__annotations__": {"x": int}})
    assert docstrings(made) == {}


def test_it_covers_the_installed_kinds() -> None:
    schema = json_schema()
    assert Kinds().names == tuple(schema["$defs"]["backend"]["properties"]["adapter"]["enum"])
    assert "step-functions" in Kinds().names
