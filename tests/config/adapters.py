"""Kinds of adapters that exist for the tests of configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.metadata import EntryPoint
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from workflow_bridge.adapter import (
    ENTRY_POINT_GROUP,
    Ended,
    Execution,
    ExecutionRef,
    Found,
    Json,
    Problem,
    Started,
)
from workflow_bridge.config import Kinds


class Retries(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    attempts: Annotated[int, Field(ge=0, le=5)] = 2
    pause: float = 0.5


class PlainSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    region: str
    secret: str | None = None
    retries: Retries = Retries()
    zones: tuple[Retries, ...] = ()

    @field_validator("region")
    @classmethod
    def _region(cls, region: str) -> str:
        if "-" not in region:
            raise ValueError(f"{region!r} is no region: say eu-west-1")
        return region

    @model_validator(mode="after")
    def _secret(self) -> PlainSettings:
        if self.secret and len(self.secret) < 8:
            raise ValueError(f"secret {self.secret!r} is too short")
        return self


class Plain:
    """An adapter without inline runs. Workflows are called ``flow:NAME``."""

    Settings = PlainSettings

    start_is_idempotent = True
    start_timeout = timedelta(seconds=20)
    fingerprint = "plain"

    def __init__(self, settings: BaseModel) -> None:
        assert isinstance(settings, PlainSettings)
        if settings.region == "no-land":
            raise ValueError(f"{settings.region} cannot be served")
        self.settings = settings

    def check_workflow(self, workflow: str, *, inline: bool) -> None:
        if not workflow.startswith("flow:"):
            raise ValueError(f"{workflow!r} is no workflow: say flow:NAME")

    def prepare(self, workflow: str, arguments: Json) -> bytes:
        raise NotImplementedError

    async def start(self, workflow: str, payload: bytes, *, key: str) -> Started:
        raise NotImplementedError

    async def find(self, workflow: str, *, key: str, since: datetime) -> list[Found]:
        raise NotImplementedError

    async def observe(self, ref: ExecutionRef) -> Execution:
        raise NotImplementedError

    async def stop(self, ref: ExecutionRef, reason: str) -> None:
        raise NotImplementedError

    async def check(self, workflows: Mapping[str, bool]) -> list[Problem]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


class Inline(Plain):
    """An adapter that also runs inline."""

    run_timeout = timedelta(seconds=300)

    async def run(self, workflow: str, payload: bytes, *, key: str) -> Ended:
        raise NotImplementedError


def kinds() -> Kinds:
    """Two kinds that work, one whose module is missing, and one whose module is broken."""
    places = {
        "plain": "tests.config.adapters:Plain",
        "plain-inline": "tests.config.adapters:Inline",
        "absent": "tests.config.no_such_module:Absent",
        "broken": "tests.config.adapters:Broken",
    }
    return Kinds(EntryPoint(name, place, ENTRY_POINT_GROUP) for name, place in places.items())
