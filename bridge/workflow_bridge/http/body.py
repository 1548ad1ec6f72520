"""A request's body, read once, within limits, and judged before anybody works on it."""

from __future__ import annotations

import anyio
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from workflow_bridge.http.answers import Refusal, error, refused
from workflow_bridge.protocol.frames import Unreadable, parse


async def read_body(headers: Headers, receive: Receive, *, limit: int, within: float) -> bytes:
    """Return the body. Raises `Refusal` for one too large or too slow, and `ClientDisconnect`.

    One that announces its size is refused unread; at no time more than the limit is held.
    """
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(within):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > limit:
                    raise _too_large(limit)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        what = f"Request body did not arrive within {within:g} s"
        raise refused("body_slow", 408, what) from None


def _too_large(limit: int) -> Refusal:
    return refused("body_large", 413, f"Request body too large; the most is {limit} bytes")


def message_in(body: bytes) -> JSONRPCMessage:
    """Return the message in a body. Raises `Refusal`: 400, with the JSON-RPC error that it is."""
    message = parse(body)
    if isinstance(message, Unreadable):
        raise Refusal("unreadable", error(400, message.error))
    if message is None:
        # On a pipe nobody would wait for an answer; here somebody does.
        code, what = (
            (INVALID_REQUEST, "Invalid request: no JSON-RPC message")
            if body.strip()
            else (PARSE_ERROR, "Parse error: the body is empty")
        )
        told = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=what))
        raise Refusal("unreadable", error(400, told))
    return message


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once more, and then what comes after it."""
    held: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return held.pop() if held else await receive()

    return replay
