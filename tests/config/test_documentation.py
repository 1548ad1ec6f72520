"""docs/configuration.md says what is so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from workflow_bridge.config import json_schema, load
from workflow_bridge.config.models import BackendKeys, Root, ToolKeys
from workflow_bridge_adapters.step_functions import StepFunctions

PAGE = Path(__file__).parents[2].joinpath("docs/configuration.md").read_text(encoding="utf-8")
EXAMPLE = max(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), key=len)


def keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from (f"{name}.{below}" for below in keys(kind))
        else:
            yield name


def table(heading: str) -> str:
    return PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0]


def test_the_example_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "bridge.yaml"
    path.write_text(EXAMPLE)
    config = load(path, {"DATABASE_PASSWORD": "p"})
    assert config.tools["settle_order"].backend == "orders"
    validator = Draft202012Validator(json_schema())
    assert list(validator.iter_errors(yaml.safe_load(EXAMPLE))) == []


def test_the_example_has_every_key_with_its_default() -> None:
    data = yaml.safe_load(EXAMPLE)
    tool = data["backends"]["orders"]["tools"]["settle_order"]

    def at(node: Any, path: str) -> Any:
        for part in path.split("."):
            node = node[part]
        return node

    def written(model: type[BaseModel], path: str) -> Any:
        values = model.model_construct().model_dump(mode="json", warnings=False)
        return at(values, path)

    for path in keys(Root):
        assert path == "database.url" or at(data, path) == written(Root, path), path
    for path in keys(ToolKeys):
        assert path in tool
        if path not in {"workflow", "description", "title", "input_schema", "output_schema",
                        "keep_alive"}:  # fmt: skip
            assert tool[path] == written(ToolKeys, path), path


def test_every_key_is_described() -> None:
    file = table("## Keys of the file")
    for path in keys(Root):
        assert f"`{path}`" in file or f"`.{path.rpartition('.')[2]}`" in file, path
    for heading, model in (
        ("## Keys of a backend", BackendKeys),
        ("### `step-functions`", StepFunctions.Settings),
        ("## Keys of a tool", ToolKeys),
    ):
        described = re.findall(r"^\| `(\w+)` \|", table(heading), re.MULTILINE)
        assert sorted(described) == sorted(model.model_fields)
