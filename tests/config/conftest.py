from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.config.adapters import kinds
from workflow_bridge.config import Config, ConfigError, Issue, load

Load = Callable[..., Config]
Problems = Callable[..., list[Issue]]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    """Load a configuration given as text, and the files beside it given by name."""

    def read_text(text: str, env: Mapping[str, str] | None = None, **files: str) -> Config:
        main = tmp_path / "bridge.yaml"
        main.write_text(dedent(text), encoding="utf-8")
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(dedent(content), encoding="utf-8")
        return load(main, env or {}, kinds=kinds())

    return read_text


@pytest.fixture
def problems(read: Load) -> Problems:
    """Return the issues of a configuration that must have some."""

    def problems_of(text: str, env: Mapping[str, str] | None = None, **files: str) -> list[Issue]:
        with pytest.raises(ConfigError) as caught:
            read(text, env, **files)
        assert str(caught.value) == "\n".join(map(str, caught.value.issues))
        return list(caught.value.issues)

    return problems_of
