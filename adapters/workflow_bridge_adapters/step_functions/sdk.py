"""The SDK's clients. Loaded at the first call, in a thread: importing botocore takes a while."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any, cast

from botocore import xform_name
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError
from botocore.session import Session

from workflow_bridge_adapters.step_functions.calls import RUN_READ_TIMEOUT, Attempt, Response
from workflow_bridge_adapters.step_functions.errors import Call, NotSent, translate
from workflow_bridge_adapters.step_functions.settings import StepFunctionsSettings


class Lane(Enum):
    """One client each: they differ in retries and patience."""

    RETRIED = "retried"
    ONCE = "once"
    INLINE = "inline"

    @classmethod
    def of(cls, call: Call) -> Lane:
        """Return the lane of a call: what starts something is never sent twice."""
        match call:
            case Call.START:
                return cls.ONCE
            case Call.RUN:
                return cls.INLINE
            case _:
                return cls.RETRIED


class Sdk:
    """Clients made on first use; safe to use from many threads."""

    def __init__(self, settings: StepFunctionsSettings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._clients: dict[Lane, BaseClient] = {}
        self._current = threading.local()

    def send(self, call: Call, parameters: Mapping[str, object], attempt: Attempt) -> Response:
        """Send one request from this thread. Raises `AdapterError`s only."""
        self._current.attempt = attempt
        try:
            method = getattr(self.client(Lane.of(call)), xform_name(call.value))
            return cast("Response", method(**parameters))
        except Exception as exc:
            raise translate(exc, call, sent=attempt.sent) from exc
        finally:
            self._current.attempt = None

    def client(self, lane: Lane) -> BaseClient:
        """Return the client of a lane."""
        with self._lock:
            if lane not in self._clients:
                self._clients[lane] = self._make_client(lane)
            return self._clients[lane]

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()

    def _make_client(self, lane: Lane) -> BaseClient:
        if self._session is None:
            self._session = _session(self._settings)
        client = self._session.create_client(
            "stepfunctions",
            region_name=self._settings.region,
            endpoint_url=self._settings.endpoint_url,
            config=_config(self._settings, lane),
        )
        client.meta.events.register("before-send.sfn", self._before_send)
        return client

    def _before_send(self, **_: object) -> None:
        """Called by the SDK right before each request, retries included."""
        attempt: Attempt | None = getattr(self._current, "attempt", None)
        if attempt is not None and not attempt.may_send():
            raise NotSent


def _config(settings: StepFunctionsSettings, lane: Lane) -> Config:
    read_timeout = RUN_READ_TIMEOUT if lane is Lane.INLINE else settings.read_timeout
    return Config(
        connect_timeout=settings.connect_timeout.total_seconds(),
        read_timeout=read_timeout.total_seconds(),
        max_pool_connections=settings.max_connections,
        retries={"mode": "standard", "total_max_attempts": 3 if lane is Lane.RETRIED else 1},
        tcp_keepalive=True,
        # An emulator has no host called sync-….
        inject_host_prefix=settings.endpoint_url is None,
    )


def _session(settings: StepFunctionsSettings) -> Session:
    session = Session(profile=settings.profile)
    if settings.role_arn is None:
        return session
    assumed = Session()
    resolver = CredentialResolver([_AssumedRole(session, settings.role_arn, settings)])
    assumed.register_component("credential_provider", resolver)
    return assumed


class _AssumedRole(CredentialProvider):
    """Credentials of a role, got at the first call and renewed before they expire."""

    METHOD = "assume-role"

    def __init__(self, source: Session, role_arn: str, settings: StepFunctionsSettings) -> None:
        super().__init__(source)
        self._source = source
        self._role_arn = role_arn
        self._settings = settings

    def load(self) -> Any:
        settings = self._settings
        credentials = self._source.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=partial(
                self._source.create_client,
                region_name=settings.region,
                endpoint_url=settings.endpoint_url,
                config=_config(settings, Lane.RETRIED),
            ),
            source_credentials=credentials,
            role_arn=self._role_arn,
            extra_args={"RoleSessionName": settings.role_session_name},
        )
        return DeferredRefreshableCredentials(
            refresh_using=fetcher.fetch_credentials, method=self.METHOD
        )
