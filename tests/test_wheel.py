"""The wheel that users install: what is in it, and that it works where nothing else is."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from workflow_bridge import __version__

PROJECT = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(600)


def run(*command: str | Path, folder: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed, away from the source tree; return what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    run(*build, PROJECT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an empty environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    pip = (folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--constraint", PROJECT / "constraints.txt", wheel, folder=folder)
    return folder / "bin"


def test_it_holds_two_packages_and_the_migrations(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    info = f"mcp_workflow_bridge-{__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {
        "workflow_bridge",
        "workflow_bridge_adapters",
        info,
    }
    sources = {
        "workflow_bridge/": PROJECT / "bridge/workflow_bridge",
        "workflow_bridge_adapters/": PROJECT / "adapters/workflow_bridge_adapters",
        "workflow_bridge/migrations/": PROJECT / "migrations",
    }
    expected = {
        prefix + path.relative_to(source).as_posix()
        for prefix, source in sources.items()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(info)} == expected
    assert {
        *("workflow_bridge/py.typed", "workflow_bridge_adapters/py.typed"),
        *("workflow_bridge/migrations/env.py", "workflow_bridge/migrations/versions/0001_tasks.py"),
    } <= expected
    assert f"{info}/licenses/LICENSE" in names


def test_what_it_says_of_itself(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"mcp_workflow_bridge-{__version__}.dist-info"
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert metadata["Name"] == "mcp-workflow-bridge"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {"aws", "demo", "all"} <= set(metadata.get_all("Provides-Extra", []))
    entry_points = archive.read(f"{info}/entry_points.txt").decode()
    assert "workflow-bridge = workflow_bridge.cli:main" in entry_points
    assert "step-functions = workflow_bridge_adapters.step_functions:" in entry_points


def test_the_command_runs_where_nothing_else_is_installed(installed: Path) -> None:
    printed = run(installed / "workflow-bridge", "--version", folder=installed)
    assert __version__ in printed
    printed = run(installed / "python", "-m", "workflow_bridge", "--version", folder=installed)
    assert __version__ in printed


def test_both_packages_come_from_there(installed: Path) -> None:
    code = (
        "import workflow_bridge, workflow_bridge_adapters.step_functions as adapter;"
        "print(workflow_bridge.__file__, adapter.__file__)"
    )
    printed = run(installed / "python", "-c", code, folder=installed)
    assert all(str(installed.parent) in path for path in printed.split())


def test_a_database_is_made_by_the_migrations_in_it(installed: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bridge.db'}"
    code = f"""
from workflow_bridge.store import schema
assert schema.upgrade({url!r}).revision is None
assert schema.check({url!r}).current
print(schema._migrations())
"""
    printed = run(installed / "python", "-c", code, folder=installed)
    assert printed.strip().endswith("workflow_bridge/migrations")
    assert str(installed.parent) in printed


def test_without_the_extra_an_adapter_says_what_to_install(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "bridge.yaml"
    config.write_text("backends: {aws: {adapter: step-functions, region: eu-west-1, tools: {}}}")
    code = f"""
import pathlib
from workflow_bridge.config import ConfigError, load
try:
    load(pathlib.Path({str(config)!r}), {{}})
except ConfigError as error:
    print(error)
"""
    printed = run(installed / "python", "-c", code, folder=installed)
    assert "run: pip install 'mcp-workflow-bridge[aws]'" in printed
