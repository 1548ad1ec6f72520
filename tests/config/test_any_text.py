"""Whatever a file holds, loading it ends in a `Config` or a `ConfigError`; nothing leaks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.config.adapters import kinds
from tests.config.test_loading import FULL, SMALLEST
from workflow_bridge.config import Config, ConfigError, load

KINDS = kinds()
SECRET = "Zq9#Zq9#"


def attempt(content: bytes) -> Config | ConfigError:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bridge.yaml"
        path.write_bytes(content)
        try:
            return load(path, {"SECRET": SECRET}, kinds=KINDS)
        except ConfigError as error:
            failure = error
    lines = content.count(b"\n") + content.count(b"\r") + 2
    assert failure.issues
    assert all(issue.line is None or 1 <= issue.line <= lines for issue in failure.issues)
    return failure


@given(st.binary())
@example(b"\xff\xfe")
def test_any_bytes(content: bytes) -> None:
    attempt(content)


@given(st.text())
@example('"\\ud800"')
@example('"\\UFFFFFFFF"')
@example('"\\ud800": x')
@example("%YAML 9.9\n---\n")
@example("? [a]\n: b")
@example("a: !<> b")
@example("\u2028: \u0085")
def test_any_text(text: str) -> None:
    attempt(text.encode("utf-8", "surrogatepass"))


MARKUP = st.sampled_from(
    [
        *("a", "5", "5s", ":", ": ", "-", "- ", "\n", "\n  ", "  ", "{", "}", "[", "]", ", ", "#"),
        *(
            "&x ",
            "*x",
            "<<: ",
            "!!map ",
            "!",
            "|",
            ">",
            "'",
            '"',
            "\\",
            "%",
            "@",
            "---",
            "...",
            "?",
        ),
        *("${SECRET}", "${", "$${", "}", "backends", "tools", "adapter: plain", "input_schema"),
        *("~", "true", "0x", "1e9", ".inf", "\t", "\u00e9", "\U0001f600", "\ufeff", "$ref", "#/"),
    ]
)


@given(st.lists(MARKUP, max_size=40).map("".join))
@settings(max_examples=300)
def test_any_markup(text: str) -> None:
    attempt(text.encode())


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            *("5s", "10/s", "1KB", "plain", "flow:x", "sqlite", "object", "#", "#/properties"),
            *("${SECRET}", "x${SECRET}", "${NOPE:-d}", "inline", "a", "$schema", "required"),
        ]
    ),
)


def paths_in(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    match node:
        case dict():
            below = list(node.items())
        case list():
            below = list(enumerate(node))
        case _:
            below = []
    return [path, *(found for key, value in below for found in paths_in(value, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A right configuration in which up to three values were replaced, dropped or added."""
    data = yaml.safe_load(draw(st.sampled_from([SMALLEST, FULL])))
    values = st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.text(max_size=5)
                | st.sampled_from(
                    ["type", "properties", "$ref", "$id", "allOf", "pattern", "items"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    )
    for _ in range(draw(st.integers(1, 3))):
        if not data:
            break
        *parents, last = draw(st.sampled_from(paths_in(data)[1:]))
        node = data
        for parent in parents:
            node = node[parent]
        match draw(st.sampled_from(["replace", "replace", "drop", "add"])):
            case "replace":
                node[last] = draw(values)
            case "drop":
                del node[last]
            case _ if isinstance(node, dict):
                node[draw(st.text(max_size=5))] = draw(values)
    return data


@given(mutated())
@settings(max_examples=300)
def test_any_change_to_a_right_configuration(data: Any) -> None:
    result = attempt(json.dumps(data).encode())
    assert SECRET not in repr(result)
    assert SECRET not in str(result)
