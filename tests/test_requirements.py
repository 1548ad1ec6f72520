"""Every requirement and every case is proven by a test that names it, or listed as not built yet.

The ids are those of the protocol checklist and of the field cases; this is their register here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from tests.everywhere.exceptions import ALL, EXCEPTIONS

TESTS: Final = Path(__file__).parent


def ids(prefix: str, last: int) -> frozenset[str]:
    return frozenset(f"{prefix}{n}" for n in range(1, last + 1))


REQUIREMENTS: Final = (
    ids("A-", 40) | ids("B-", 21) | ids("C-", 21) - {"C-19"} | ids("P-", 3) | ids("X-", 2)
)
NOT_BUILT: Final = {
    "questions during a task": {"A-11", "A-12"},
    "statements about the world, not about the bridge": {"A-27", "A-28", "A-29"},
    "dialect B": ids("B-", 21),
    "dialect C": ids("C-", 21) - {"C-19"},
    "keys and views across dialects": ids("X-", 2),
}
"""A test may name one of these all the same: where the core already does its part of it."""

ELSEWHERE: Final = {
    "what is documented and measured": {"A-32", "A-33"},
    "our own client": {"A-40"},
}
"""What no client can be shown over a wire."""

CASES: Final = (
    frozenset(f"T{n}" for n in (1, 2, 3, 6, 8, 11))
    | frozenset(f"S{n}" for n in (1, 3, 4, 6, 8))
    | frozenset(f"D{n}" for n in (1, 2, 3, 5, 7, 10))
    | frozenset(f"R{n}" for n in (1, 2, 3, 4, 5, 6, 10, 12, 13))
    | frozenset(f"F{n}" for n in (1, 3, 4, 5, 6, 7, 10, 11, 13, 14))
    | frozenset(f"G{n}" for n in (1, 4, 5, 8, 9))
    | frozenset(f"K{n}" for n in (1, 3, 4, 6, 9, 12))
    | frozenset(f"Q{n}" for n in (1, 2, 4))
    | ids("X-", 2)
)
LATER: Final = frozenset({"S1", "R1", "G1", "G4", "G5", "G8", "G9", "X-1", "X-2"})
"""Authentication, dialects B and C, Google Cloud Workflows."""


@cache
def named(mark: str) -> frozenset[str]:
    """Return the ids that some test carries as ``@pytest.mark.<mark>(…)``."""
    return frozenset(
        argument.value
        for path in sorted(TESTS.rglob("*.py"))
        for call in _marks(path, mark)
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )


def _marks(path: Path, mark: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    attr=attr,
                    value=ast.Attribute(attr="mark", value=ast.Name(id="pytest")),
                )
            ) if attr == mark:
                yield node


@pytest.mark.parametrize(("mark", "known"), [("req", REQUIREMENTS), ("case", CASES)])
def test_no_test_names_an_id_that_there_is_not(mark: str, known: frozenset[str]) -> None:
    assert named(mark) <= known


def test_every_requirement_is_proven_or_listed_as_not_built() -> None:
    not_built = frozenset[str]().union(*NOT_BUILT.values())
    assert not_built <= REQUIREMENTS
    assert sorted(REQUIREMENTS - not_built - named("req")) == []


@pytest.mark.parametrize("setting", ALL)
def test_every_requirement_on_the_wire_is_proven_in_every_setting(setting: str) -> None:
    """`tests/everywhere` runs, of each test with a requirement, a case in each setting."""
    proven = {
        requirement
        for path in sorted((TESTS / "everywhere").glob("test_*.py"))
        for name, test in vars(import_module(f"tests.everywhere.{path.stem}")).items()
        if name.startswith("test_") and setting not in EXCEPTIONS.get(name, ())
        for mark in getattr(test, "pytestmark", ())
        if mark.name == "req"
        for requirement in mark.args
    }
    wanted = {requirement for requirement in REQUIREMENTS if requirement.startswith(("A-", "P-"))}
    for without in (*NOT_BUILT.values(), *ELSEWHERE.values()):
        wanted -= without
    assert sorted(wanted - proven) == []


def test_an_exception_is_one_of_a_test_that_there_is() -> None:
    names = {
        name
        for path in (TESTS / "everywhere").glob("test_*.py")
        for name in vars(import_module(f"tests.everywhere.{path.stem}"))
    }
    assert EXCEPTIONS.keys() <= names


def test_every_case_is_proven_or_listed_as_later() -> None:
    assert LATER <= CASES
    assert sorted(CASES - LATER - named("case")) == []
