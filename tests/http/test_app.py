"""What is refused before anybody works on it, and how."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tests.http.wire import ENVELOPE, MODERN, HttpWire, site
from tests.protocol.bench import bench, until

pytestmark = pytest.mark.anyio

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def post(wire: HttpWire, body: bytes | AsyncIterator[bytes], **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await wire.client.post(wire.url, content=body, headers=wire.headers | named)


async def alive(wire: HttpWire) -> None:
    assert (await wire.ask("ping"))["result"] == {}


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, None),
        (b" \n", -32700, None),
        (b"\x00\xff\xfe\x80garbage", -32700, None),
        (b"{", -32700, None),
        (b"[" * 200_000, -32700, None),
        (b'{"a":' * 50_000, -32700, None),
        (b"[]", -32600, None),
        (b"[" + json.dumps(PING).encode() + b"]", -32600, None),
        (b"7", -32600, None),
        (b'{"id":5}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":7}', -32600, 6),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"a":"\\ud800"}}', -32602, 6),
        (b'{"result":{},"jsonrpc":"1.0"}', -32600, None),
    ],
    ids=range(16),
)
async def test_a_body_that_is_no_message_is_told_why(
    body: bytes, code: int, request_id: Any, version: str
) -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        answer = await post(wire, body, mcp_protocol_version=version)
        told = answer.json()
        assert answer.status_code == 400
        assert (told["error"]["code"], told["id"]) == (code, request_id)
        assert "pydantic" not in answer.text
        await alive(wire)
        assert not b.engine.calls


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_and_the_connection_lives(chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 20_000

    async with bench() as b, site(b, max_body=100_000) as made, made.connected() as wire:
        answer = await post(wire, chunks() if chunked else b"x" * 1_000_000)
        assert answer.status_code == 413
        assert "100000 bytes" in answer.json()["error"]["message"]
        fits = json.dumps(PING | {"params": {"_meta": {"x": "y" * 99_000}}}).encode()
        assert (await post(wire, fits)).status_code == 200
        await alive(wire)


async def test_a_body_is_refused_as_soon_as_it_is_too_large() -> None:
    """The client that goes on sending for ever has its answer all the same."""
    async with (
        bench() as b,
        site(b, max_body=100_000, headers_within=0.5) as made,
        made.connected() as wire,
        await anyio.connect_tcp("127.0.0.1", int(made.base.rpartition(":")[2])) as stream,
    ):
        session = wire.headers["mcp-session-id"]
        await stream.send(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
            b"content-type: application/json\r\naccept: */*\r\n"
            b"mcp-session-id: " + session.encode() + b"\r\n\r\n"
        )
        with anyio.fail_after(5):
            for _ in range(20):
                await stream.send(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 413")
            with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                while True:
                    await stream.send(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
                    await anyio.lowlevel.checkpoint()
        await alive(wire)


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with bench() as b, site(b, body_within=0.1) as made:
        async with await anyio.connect_tcp("127.0.0.1", int(made.base.rpartition(":")[2])) as s:
            await s.send(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
            with anyio.fail_after(5):
                assert (await s.receive()).startswith(b"HTTP/1.1 408")
        await until(lambda: made.open == 0)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:80", "origin": "http://localhost"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_what_comes_by_another_name_or_from_another_page_is_refused(
    method: str, headers: dict[str, str], status: int
) -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        answer = await wire.client.request(method, wire.url, headers=wire.headers | headers)
        assert answer.status_code == status
        await alive(wire)


async def test_only_what_there_is_is_served() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        for path in ("/", "/mcp/", "/mcp/x", "/healthz/", "/docs", "/openapi.json", "/%2e%2e/mcp"):
            assert (await wire.client.get(made.base + path)).status_code == 404, path
        for method in ("PUT", "PATCH", "OPTIONS", "HEAD", "TRACE"):
            answer = await wire.client.request(method, wire.url, headers=wire.headers)
            assert answer.status_code == 405
            assert answer.headers["allow"] == "GET, POST, DELETE"


async def test_a_page_that_is_allowed_can_read_the_answers() -> None:
    page = {"origin": "https://app.example.com"}
    async with (
        bench() as b,
        site(b, allowed_origins=("https://app.example.com",)) as made,
        made.connected() as wire,
    ):
        asks = page | {
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type, mcp-session-id",
        }
        preflight = await wire.client.options(wire.url, headers=asks)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == page["origin"]
        answer = await post(wire, json.dumps(PING).encode(), **page)
        assert answer.headers["access-control-allow-origin"] == page["origin"]
        assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
        refused = await post(wire, json.dumps(PING).encode(), origin="https://evil.example")
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers


@pytest.mark.req("A-24")
async def test_a_session_has_so_many_requests_open_and_can_still_cancel() -> None:
    async with (
        bench() as b,
        site(b, max_session_streams=3) as made,
        made.connected() as wire,
        made.connected() as other,
    ):
        calls = [await wire.call(task=f"t{n}") for n in range(3)]
        await until(lambda: len(b.engine.executions) == 3)
        answer = await post(wire, json.dumps(PING).encode())
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        told = answer.json()
        assert (told["id"], told["error"]["code"]) == (1, 429001)
        assert told["error"]["data"] == {"retryAfterMs": 1000}
        await alive(other)
        await wire.notify("notifications/cancelled", {"requestId": calls[0]})
        await until(lambda: made.open == 2)
        await alive(wire)


async def test_the_process_has_so_many_requests_open() -> None:
    async with (
        bench() as b,
        site(b, max_streams=2) as made,
        made.connected() as wire,
        made.connected() as other,
    ):
        await wire.call(task="t1")
        await other.open_stream()
        answer = await post(other, json.dumps(PING).encode())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert (await wire.client.get(f"{made.base}/readyz")).status_code == 200
        await other.drop("GET")
        await until(lambda: made.open == 1)
        await alive(other)


async def test_there_are_so_many_sessions_and_idle_ones_end() -> None:
    async with (
        bench() as b,
        site(b, max_sessions=1, session_idle=0.2) as made,
        made.connected() as wire,
    ):
        async with made.connected(handshake=False) as late:
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
            body = json.dumps(PING | {"method": "initialize", "params": hello}).encode()
            answer = await post(late, body)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        await until(lambda: not made.app._sessions._server_instances)
        assert (await post(wire, json.dumps(PING).encode())).status_code == 404
        async with made.connected() as fresh:
            await alive(fresh)


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_no_fault_of_ours_or_the_sdks_reaches_a_client(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if fault == "after":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("secret")

    async def sdk(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"secret"})

    async with bench() as b, site(b) as made, made.connected() as wire:
        with monkeypatch.context() as patched, capture_logs() as log:
            patched.setattr(made.app, "_mcp", broken)
            answer = await post(wire, json.dumps(PING).encode())
            assert "secret" not in answer.text
            assert answer.status_code == (503 if fault == "before" else 200)
            assert [line["event"] for line in log] == ["http_request_failed"]
            patched.setattr(made.app, "_mcp", sdk)
            answer = await post(wire, json.dumps(PING).encode())
            assert answer.status_code == 503
            assert answer.json()["error"] == {"code": -32603, "message": "Internal error"}
        await alive(wire)


async def test_a_session_that_is_unknown_or_ended_is_gone_for_every_method() -> None:
    async with bench() as b, site(b) as made, made.connected() as wire:
        assert (await wire.client.delete(wire.url, headers=wire.headers)).status_code == 200
        for session in (wire.headers["mcp-session-id"], "0" * 32, "x", "a b"):
            headers = wire.headers | {"mcp-session-id": session}
            for method in ("GET", "POST", "DELETE"):
                body = json.dumps(PING).encode() if method == "POST" else b""
                answer = await wire.client.request(method, wire.url, headers=headers, content=body)
                assert answer.status_code == 404, (session, method)


async def test_without_a_session_nothing_can_be_asked_before_a_handshake() -> None:
    async with bench() as b, site(b) as made, made.connected(handshake=False) as wire:
        for method in ("tasks/get", "tasks/list", "tools/call", "tools/list", "ping"):
            params = {"name": "run", "taskId": "t", "arguments": {}}
            body = json.dumps(PING | {"method": method, "params": params}).encode()
            assert (await post(wire, body)).status_code == 400
        assert not b.engine.calls
        assert not made.app._sessions._server_instances


async def test_the_modern_protocol_is_answered_without_a_session() -> None:
    async with bench() as b, site(b) as made, made.connected(handshake=False) as wire:
        listed = await wire.ask("tools/list", {"_meta": ENVELOPE})
        assert {tool["name"] for tool in listed["result"]["tools"]} >= set(b.tools)
        assert "mcp-session-id" not in wire.headers
