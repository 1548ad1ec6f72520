"""Short answers of our own: JSON, never more than the client may know."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData, JSONRPCError, RequestId
from starlette.responses import Response

from workflow_bridge.protocol.errors import RATE_LIMITED


class Refusal(Exception):
    """A request is answered with ``response`` and goes no further."""

    def __init__(self, reason: str, response: Response) -> None:
        super().__init__(reason)
        self.reason = reason
        self.response = response


def says(status: int, body: Mapping[str, Any], **headers: str) -> Response:
    """Return an answer in JSON; header names have underscores."""
    return Response(
        json.dumps(body),
        status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        media_type="application/json",
    )


def error(status: int, told: JSONRPCError, **headers: str) -> Response:
    """Return a JSON-RPC error as an answer."""
    body = told.model_dump(by_alias=True, exclude_unset=True)
    return says(status, body, **headers)


def refused(reason: str, status: int, message: str, **headers: str) -> Refusal:
    """Return the refusal of a request for what its HTTP says."""
    told = JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message=message)
    )
    return Refusal(reason, error(status, told, **headers))


def busy(
    reason: str, status: int, message: str, *, retry_after: float, request_id: RequestId | None
) -> Refusal:
    """Return the refusal of what may be asked for again later."""
    data = {"retryAfterMs": math.ceil(retry_after * 1000)}
    told = JSONRPCError(
        jsonrpc="2.0",
        id=request_id,
        error=ErrorData(code=RATE_LIMITED, message=message, data=data),
    )
    return Refusal(reason, error(status, told, retry_after=str(math.ceil(retry_after))))


def internal() -> Response:
    """Return the answer to a request that we failed: nothing but that it may be tried again."""
    told = JSONRPCError(
        jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message="Internal error")
    )
    return error(503, told, retry_after="1")
