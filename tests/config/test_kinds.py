from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from workflow_bridge.adapter import ENTRY_POINT_GROUP
from workflow_bridge.config import Kinds
from workflow_bridge.config.kinds import NoSuchKind, Unusable


def installed(folder: Path, value: str, *requires: str) -> Kinds:
    """The kinds of a distribution `acme-bridge` that is written to a folder."""
    info = folder / "acme_bridge-1.0.dist-info"
    info.mkdir()
    needs = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-bridge\nVersion: 1\n{needs}")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nacme = {value}\n")
    (found,) = importlib.metadata.distributions(path=[str(folder)])
    return Kinds(found.entry_points)


def test_a_kind_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    kinds = installed(
        tmp_path,
        "tests.config.adapters:Plain [acme]",
        "pydantic>=2",
        'acme-sdk>=1; extra == "acme"',
        "pydantic; extra == 'acme'",
        'other-sdk; extra == "other"',
    )
    assert kinds.names == ("acme",)
    with pytest.raises(Unusable) as caught:
        kinds.factory("acme")
    assert str(caught.value) == (
        "adapter 'acme' needs acme-sdk; run: pip install 'acme-bridge[acme]'"
    )


def test_a_kind_with_its_extra_is_usable(tmp_path: Path) -> None:
    value = "tests.config.adapters:Plain [acme]"
    kinds = installed(tmp_path, value, 'pydantic>=2; extra == "acme"')
    assert kinds.factory("acme").Settings.__name__ == "PlainSettings"


def test_a_kind_whose_import_fails_says_what_to_install(tmp_path: Path) -> None:
    kinds = installed(tmp_path, "tests.config.no_such_module:Acme")
    with pytest.raises(Unusable) as caught:
        kinds.factory("acme")
    assert str(caught.value) == (
        "adapter 'acme' needs tests.config.no_such_module; run: pip install 'acme-bridge'"
    )


def test_a_kind_that_nobody_provides_names_the_nearest() -> None:
    kinds = Kinds([EntryPoint("step-functions", "m:A", ENTRY_POINT_GROUP)])
    with pytest.raises(NoSuchKind) as caught:
        kinds.factory("step-function")
    assert (caught.value.nearest, caught.value.known) == ("step-functions", ("step-functions",))
    with pytest.raises(NoSuchKind) as caught:
        kinds.factory("xyz")
    assert caught.value.nearest is None


def test_nothing_is_imported_until_it_is_asked_for() -> None:
    assert Kinds([EntryPoint("a", "tests.config.no_such_module:A", ENTRY_POINT_GROUP)]).names


def test_this_environment_offers_step_functions() -> None:
    assert "step-functions" in Kinds().names
