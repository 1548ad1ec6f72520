"""What arrives on the pipe, and what is answered to what is no message."""

from __future__ import annotations

import json

import pytest
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from workflow_bridge.protocol.frames import Lines, Unreadable, parse, written


def refusal(line: bytes) -> tuple[int, object]:
    answer = parse(line)
    assert isinstance(answer, Unreadable), answer
    assert len(answer.error.error.message) < 200
    return answer.error.error.code, answer.error.id


def request(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "m"} | members).encode()


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"hello", -32700, None),
        (b"\xff\xfe\x00garbage", -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"m"}{}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"{}", -32600, None),
        (b"7", -32600, None),
        (b"null", -32600, None),
        (b'"text"', -32600, None),
        (b"[]", -32600, None),
        (b"[" + request() + b"]", -32600, None),
        (b'{"id": 7, "method": "m"}', -32600, 7),
        (request(jsonrpc="1.0"), -32600, 7),
        (request(method=None), -32600, 7),
        (request(method=7), -32600, 7),
        (request(params=[1]), -32600, 7),
        (request(params="x"), -32600, 7),
        (request(id=None), -32600, None),
        (request(id=1.5), -32600, None),
        (request(id=True), -32600, None),
        (request(id={}), -32600, None),
        (request(id="\ud800"), -32600, None),
        (request(id="é", method=7), -32600, "é"),
        (request(params={"a": "\ud800"}), -32602, 7),
        (request(params={"\udfff": 1}), -32602, 7),
        (request(params={"a": json.loads("[" * 300 + "]" * 300)}), -32602, 7),
    ],
)
def test_what_is_no_message_is_answered(line: bytes, code: int, request_id: object) -> None:
    assert refusal(line) == (code, request_id)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  \r",
        b'{"jsonrpc":"2.0","id":7,"result":7}',
        b'{"jsonrpc":"2.0","id":7,"error":"no"}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":[1]}',
    ],
)
def test_what_needs_no_answer_gets_none(line: bytes) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (request(), JSONRPCRequest),
        (request(id="a") + b"\r", JSONRPCRequest),
        (b"\xef\xbb\xbf" + request(), JSONRPCRequest),
        (request(params={"id": "é🦊"}), JSONRPCRequest),
        (b'{"jsonrpc":"2.0","method":"notifications/x"}', JSONRPCNotification),
        (b'{"jsonrpc":"2.0","method":"notifications/x","id":null}', JSONRPCNotification),
        (b'{"jsonrpc":"2.0","method":"notifications/x","params":{"id":1}}', JSONRPCNotification),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', JSONRPCResponse),
    ],
)
def test_messages_pass(line: bytes, kind: type) -> None:
    assert isinstance(parse(line), kind)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_are_cut_however_they_arrive(size: int) -> None:
    lines, data = Lines(limit=5), b"abc\n12345\n123456\n\n" + b"x" * 50 + "\né\nend".encode()
    cut = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert [*cut, *lines.end()] == [b"abc", b"12345", None, b"", None, "é".encode(), b"end"]
    assert lines.end() == []


def test_a_message_that_cannot_be_written_becomes_an_error() -> None:
    line = written(JSONRPCResponse(jsonrpc="2.0", id=7, result={"a": "\ud800"}))
    assert json.loads(line)["error"] == {"code": -32603, "message": "Internal error"}
    assert json.loads(line)["id"] == 7
    assert written(JSONRPCNotification(jsonrpc="2.0", method="m", params={"a": "\ud800"})) == b""
