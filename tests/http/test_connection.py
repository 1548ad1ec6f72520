"""Clients that do not go on: with their request, or with taking its answer."""

from __future__ import annotations

import socket
from contextlib import suppress

import anyio
import anyio.abc
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.http.wire import Site, site
from tests.protocol.bench import bench, until
from workflow_bridge.adapter import Succeeded

pytestmark = pytest.mark.anyio


async def dial(made: Site) -> anyio.abc.SocketStream:
    return await anyio.connect_tcp("127.0.0.1", int(made.base.rpartition(":")[2]))


async def closed(stream: anyio.abc.SocketStream) -> bytes:
    """Return what is still sent, once the connection is closed."""
    data = b""
    with anyio.fail_after(5):
        try:
            while True:
                data += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return data


HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize("sent", [b"", b"G", HEAD, b"GET /" + b"x" * 1000])
async def test_a_connection_without_a_whole_request_is_closed(sent: bytes) -> None:
    async with bench() as b, site(b, headers_within=0.1) as made, await dial(made) as stream:
        if sent:
            await stream.send(sent)
        assert await closed(stream) == b""
        await until(lambda: not made.state.connections)


async def test_trickling_in_gains_no_time() -> None:
    async with bench() as b, site(b, headers_within=0.3) as made, await dial(made) as stream:
        await stream.send(HEAD)
        with anyio.fail_after(3), suppress(anyio.BrokenResourceError, anyio.EndOfStream):
            while True:
                await stream.send(b"x: y\r\n")
                with anyio.move_on_after(0.05):
                    await stream.receive()


async def test_a_connection_kept_alive_is_closed_likewise_in_its_next_request() -> None:
    async with (
        bench() as b,
        site(b, headers_within=0.2, keep_alive=60) as made,
        await dial(made) as stream,
    ):
        for _ in range(3):
            await stream.send(HEAD + b"\r\n")
            assert b"200 OK" in await stream.receive()
        await stream.send(HEAD)
        assert await closed(stream) == b""


async def test_a_request_under_way_is_not_hurried() -> None:
    async with bench() as b, site(b, headers_within=0.1) as made, made.connected() as wire:
        call = await wire.create("t")
        await until(lambda: b.engine.executions)
        # Longer than a head may take: it has long been read.
        for _ in range(10):
            with anyio.move_on_after(0.03):
                await wire.client.get(f"{made.base}/readyz")
                await anyio.sleep_forever()
        ((ref),) = b.engine.executions
        b.engine.finish(ref, Succeeded(1, None))
        while (await wire.get("t"))["status"] != "completed":
            b.clock.seconds += 10
        assert "result" in await wire.answer(call)


async def test_too_many_connections_are_cut_off_and_the_others_live() -> None:
    async with (
        bench() as b,
        site(b, max_streams=2, max_sessions=2, headers_within=60) as made,
        made.connected() as wire,
    ):
        streams = [await dial(made) for _ in range(8)]
        await until(lambda: len(made.state.connections) <= 4)
        assert (await wire.ask("ping"))["result"] == {}
        for stream in streams:
            await stream.aclose()


async def test_a_client_that_takes_nothing_is_cut_off_and_its_session_goes_on() -> None:
    """A stalled stream must not hold up the session's other answers for ever."""
    big = {"text": "x" * 200_000}
    done = {"run": lambda arguments: Succeeded(arguments, None)}
    async with (
        bench(behaviours=done) as b,
        site(b, taken_within=0.3) as made,
        made.connected() as wire,
    ):
        await wire.answer(await wire.call(task="t", arguments=big))
        others = set(made.state.connections)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", int(made.base.rpartition(":")[2])))
        body = b'{"jsonrpc":"2.0","id":"slow","method":"tasks/result","params":{"taskId":"t"}}'
        with sock:
            head = "".join(f"{name}: {value}\r\n" for name, value in wire.headers.items())
            # As many answers as it takes to fill what the kernel buffers.
            for _ in range(60):
                sock.sendall(
                    f"POST /mcp HTTP/1.1\r\nhost: localhost\r\n{head}"
                    f"content-length: {len(body)}\r\n\r\n".encode()
                    + body
                )
            await until(lambda: made.state.connections - others)
            (slow,) = made.state.connections - others
            assert isinstance(slow, H11Protocol)
            await until(lambda: slow.flow.write_paused)
            await until(lambda: slow not in made.state.connections)
        assert (await wire.ask("ping"))["result"] == {}
        await until(lambda: made.open == 0)
