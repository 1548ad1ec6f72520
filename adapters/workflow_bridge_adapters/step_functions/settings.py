"""The keys of a Step Functions backend in YAML."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
# Not \w, which holds the letters of all scripts: IAM's does not, and pydantic takes 25 ms over it.
_NAME = "A-Za-z0-9_+=,.@-"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a duration needs a unit, as in 500ms, 5s or 1m")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": rf"^{_DURATION.pattern}$", "examples": ["5s"]}),
    Field(gt=timedelta(0)),
]


class StepFunctionsSettings(BaseModel):
    """One AWS account and region, and how to reach it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    region: Annotated[str, Field(validate_default=True)] = ""
    """Region of the state machines; AWS_REGION or AWS_DEFAULT_REGION where it is left out."""
    profile: str | None = None
    """Profile of the shared AWS configuration whose credentials are used."""
    role_arn: str | None = Field(
        default=None, pattern=rf"^arn:[a-z0-9-]+:iam::[0-9]{{12}}:role/[/{_NAME}]+$"
    )
    """Role to assume through STS, renewed before it expires; for another account, say."""
    role_session_name: str = Field(default="workflow-bridge", pattern=rf"^[{_NAME}]{{2,64}}$")
    """Name that the role's sessions get in CloudTrail."""
    endpoint_url: str | None = None
    """Where the APIs are instead of at AWS: emulators. STS is asked there as well."""
    connect_timeout: Duration = timedelta(seconds=3)
    """Longest wait for a connection."""
    read_timeout: Duration = timedelta(seconds=10)
    """Longest silence while waiting for an answer."""
    call_timeout: Duration = timedelta(seconds=10)
    """Longest that looking at or stopping an execution may take, quick retries included."""
    start_timeout: Duration = timedelta(seconds=20)
    """Longest that starting an execution may take; it is never sent twice."""
    max_connections: int = Field(default=10, ge=1, le=1000)
    """Calls in flight at most; as many inline runs beside them."""

    @field_validator("region")
    @classmethod
    def _known_region(cls, region: str) -> str:
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
        if not region:
            raise ValueError("no region: set region (eu-west-1, say) or AWS_REGION")
        if not re.fullmatch(r"[a-z]{2,}(-[a-z0-9]+)+", region):
            raise ValueError(f"{region!r} is not the name of a region such as eu-west-1")
        return region

    @field_validator("endpoint_url")
    @classmethod
    def _http_url(cls, url: str | None) -> str | None:
        if url is not None:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError("endpoint_url must be http://HOST[:PORT] or https://HOST[:PORT]")
            if parts.username or parts.password:
                raise ValueError("endpoint_url must not hold credentials")
        return url

    @model_validator(mode="after")
    def _room_to_send(self) -> StepFunctionsSettings:
        if self.start_timeout <= self.connect_timeout + self.read_timeout:
            raise ValueError("start_timeout must exceed connect_timeout plus read_timeout")
        return self

    @property
    def endpoint_host(self) -> str | None:
        """Host and port of the endpoint, if one is set."""
        return urlsplit(self.endpoint_url).netloc if self.endpoint_url else None
