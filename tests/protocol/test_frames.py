"""What arrives on the pipe, and what is answered to what is no message."""

from __future__ import annotations

import json

import pytest
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from workflow_bridge.protocol.frames import (
    HEAD,
    Lines,
    TooLong,
    Unreadable,
    parse,
    too_long,
    written,
)


def refusal(line: bytes) -> tuple[int, object]:
    answer = parse(line)
    assert isinstance(answer, Unreadable), answer
    assert len(answer.error.error.message) < 200
    return answer.error.error.code, answer.error.id


def request(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "m"} | members).encode()


def with_params(params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"method":"m","params":' + params + b"}"


LONG = b"9" * 5000


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
        (with_params(b'{"a":' + b"[" * 100_000), -32700, 7),
        (with_params(LONG), -32602, 7),
        (with_params(b'{"a":[-' + LONG + b"]}"), -32602, 7),
        (b'{"jsonrpc":"2.0","method":"m","params":{"a":' + LONG + b'},"id":"x"}', -32602, "x"),
        (b'{"jsonrpc":"2.0","method":"m","id":' + LONG + b"}", -32600, None),
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
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":' + LONG + b"}}",
        b'{"jsonrpc":"2.0","id":7,"result":{"a":' + LONG + b"}}",
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
        (with_params(b'{"a":-' + b"9" * 4300 + b"}"), JSONRPCRequest),
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
    told = [b"abc", b"12345", TooLong(b"123456"), b"", TooLong(b"x" * 50), "é".encode(), b"end"]
    assert [*cut, *lines.end()] == told
    assert lines.end() == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_of_a_line_too_long_only_its_head_is_kept(size: int) -> None:
    lines, data = Lines(limit=300), bytes(range(32, 127)) * 50 + b"\n"
    cut = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert cut == [TooLong(data[:HEAD])]


@pytest.mark.parametrize(
    ("head", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"xx', 7),
        (b'\xef\xbb\xbf { "method" : "m" , "id" : "\\u00e9\\"" , "params" : [', 'é"'),
        (b'{"id":-7,"jsonrpc":"2.0","method":"m","params":{"id":8', -7),
        (b'{"method":"m","id":"\xc3\xa9","params":{', "é"),
        # Nothing says that these are requests, or which one.
        (b"", None),
        (b'{"id":7,"result":{"method":"m', None),
        (b'{"id":7,"params":{"method":"m"', None),
        (b'{"method":"m","params":{"id":7,"method":"m"', None),
        (b'{"method":"m","x":"\\",\\"id\\":7,', None),
        (b'{"method":"m","id":12', None),
        (b'{"method":"m","id":"12', None),
        (b'{"method":"m","id":null,"params":{', None),
        (b'{"method":"m","id":1.5,"params":{', None),
        (b'{"method":"m","id":true,"params":{', None),
        (b'{"method":7,"id":7,"params":{', None),
        (b'{"method":"m","id":"\\ud800","params":{', None),
        (b'{"method":"m","id":"\xff","params":{', None),
        (b'[{"method":"m","id":7,"params":{', None),
        (b'{"method":"m","id":007,"params":{', None),
    ],
)
def test_the_id_of_a_request_is_found_at_its_beginning(head: bytes, request_id: object) -> None:
    assert too_long(TooLong(head)).error.id == request_id
    deep = parse(head + b"[" * 100_000)
    assert isinstance(deep, Unreadable)
    assert deep.error.id in (request_id, None)


def test_a_number_too_long_is_called_that() -> None:
    answer = parse(with_params(b'{"a":' + LONG + b"}"))
    assert isinstance(answer, Unreadable)
    assert answer.error.error.message == (
        "Invalid request parameters: the request holds a number of more than 4300 digits"
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_another_encoding_is_called_that(encoding: str) -> None:
    answer = parse(request().decode().encode(encoding))
    assert isinstance(answer, Unreadable)
    assert answer.error.error.code == -32700
    assert answer.error.error.message == (
        "Parse error: messages are in UTF-8, and this one is in UTF-16 or UTF-32"
    )


def test_a_message_that_cannot_be_written_becomes_an_error() -> None:
    line = written(JSONRPCResponse(jsonrpc="2.0", id=7, result={"a": "\ud800"}))
    assert json.loads(line)["error"] == {"code": -32603, "message": "Internal error"}
    assert json.loads(line)["id"] == 7
    assert written(JSONRPCNotification(jsonrpc="2.0", method="m", params={"a": "\ud800"})) == b""
