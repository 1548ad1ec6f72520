"""moto's Step Functions in this process, with state machines that really run.

What it cannot show is tested with stubs: EXPRESS, redrive, versions and aliases, KMS, throttling.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import urllib.request
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from moto.server import ThreadedMotoServer

REGION = "eu-west-1"
ACCOUNT = "123456789012"
_ROLE = f"arn:aws:iam::{ACCOUNT}:role/state-machine"

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
"""What a process needs in its environment to call moto: it accepts any."""


class MotoEngine:
    """A context manager; one at a time per process, since moto's state is global."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._server: ThreadedMotoServer | None = None
        self._previous_port: str | None = None
        self._client: Any = None
        self._making = threading.Lock()

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        from moto.server import ThreadedMotoServer

        self._port = self._port or _free_port()
        # Read by moto when a state machine calls another service of its own.
        self._previous_port = os.environ.get("MOTO_PORT")
        os.environ["MOTO_PORT"] = str(self._port)
        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()
        self._post("reset", {})
        self._post("config", {"stepfunctions": {"execute_state_machine": True}})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._server is not None:
            self._server.stop()
            self._server = None
        if self._previous_port is None:
            os.environ.pop("MOTO_PORT", None)
        else:
            os.environ["MOTO_PORT"] = self._previous_port

    def create_state_machine(self, name: str, definition: Mapping[str, Any]) -> str:
        """Create a STANDARD state machine from its Amazon States Language; return its ARN."""
        answer = self.step_functions.create_state_machine(
            name=name, definition=json.dumps(definition), roleArn=_ROLE
        )
        return str(answer["stateMachineArn"])

    @property
    def step_functions(self) -> Any:
        """A client that is made once, which takes longer than a hundred calls; leave it open."""
        with self._making:
            if self._client is None:
                self._client = self.client("stepfunctions")
            return self._client

    def client(self, service: str) -> Any:
        """Return a botocore client of this engine; the caller closes it."""
        from botocore.session import Session

        return Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def _post(self, what: str, body: Mapping[str, Any]) -> None:
        request = urllib.request.Request(  # noqa: S310 - our own http address
            f"{self.url}/moto-api/{what}",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310
            pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
