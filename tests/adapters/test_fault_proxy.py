"""The proxy does to a call what it was told to, and nothing to the others."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from workflow_bridge.testing.fault_proxy import (
    Canned,
    Error,
    FaultProxy,
    Hold,
    LostAnswer,
    Reset,
    Slow,
    Stale,
    Status,
    Throttle,
)


class Upstream(ThreadingHTTPServer):
    """Answers with the number of requests so far."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Counting)
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Counting(BaseHTTPRequestHandler):
    server: Upstream

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.requests += 1
        body = str(self.server.requests).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def post(
    proxy: FaultProxy, operation: str = "Do", body: str = "{}", timeout: float = 10
) -> tuple[int, str]:
    address = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=timeout)
    try:
        connection.request("POST", "/", body, {"X-Amz-Target": f"AWSStepFunctions.{operation}"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_without_a_fault_everything_passes_and_is_counted(upstream: Upstream) -> None:
    with FaultProxy(upstream.url) as proxy:
        assert [post(proxy), post(proxy)] == [(200, "1"), (200, "2")]
        assert (proxy.calls("Do"), proxy.calls("Other")) == (2, 0)


@pytest.mark.parametrize(
    ("fault", "status", "text"),
    [
        (Throttle(), 400, "ThrottlingException"),
        (Error("InvalidArn"), 400, "InvalidArn"),
        (Status(503), 503, "html"),
        (Canned(b"mine", 201), 201, "mine"),
    ],
    ids=str,
)
def test_a_refused_call_is_not_forwarded(
    upstream: Upstream, fault: Throttle | Error | Status | Canned, status: int, text: str
) -> None:
    with FaultProxy(upstream.url) as proxy:
        proxy.fault("Do", fault)
        answer = post(proxy)
        assert answer[0] == status
        assert text in answer[1]
        assert upstream.requests == 0
        assert post(proxy) == (200, "1")


@pytest.mark.parametrize(("fault", "forwarded"), [(Reset(), 0), (LostAnswer(), 1)], ids=str)
def test_a_reset_comes_before_or_after_the_effect(
    upstream: Upstream, fault: Reset | LostAnswer, forwarded: int
) -> None:
    with FaultProxy(upstream.url) as proxy:
        proxy.fault("Do", fault)
        with pytest.raises(ConnectionResetError):
            post(proxy)
        assert upstream.requests == forwarded


def test_a_fault_meets_its_own_operation_only_and_as_often_as_told(upstream: Upstream) -> None:
    with FaultProxy(upstream.url) as proxy:
        proxy.fault("Do", Status(500), times=2)
        assert post(proxy, "Other")[0] == 200
        assert [post(proxy)[0] for _ in range(3)] == [500, 500, 200]
        proxy.fault("Do", Status(500), times=None)
        assert [post(proxy)[0] for _ in range(3)] == [500, 500, 500]
        proxy.clear()
        assert post(proxy)[0] == 200


def test_a_stale_answer_is_the_one_before_to_the_same_request(upstream: Upstream) -> None:
    with FaultProxy(upstream.url) as proxy:
        proxy.fault("Do", Stale(), times=None)
        assert post(proxy, body="a") == (200, "1")
        assert post(proxy, body="b") == (200, "2")
        assert post(proxy, body="a") == (200, "1")


def test_a_held_answer_comes_when_it_is_released(upstream: Upstream) -> None:
    released = threading.Event()
    with FaultProxy(upstream.url) as proxy:
        proxy.fault("Do", Hold(released))
        with pytest.raises(TimeoutError):
            post(proxy, timeout=0.1)
        assert upstream.requests == 1
        proxy.fault("Do", Hold(released))
        released.set()
        assert post(proxy) == (200, "2")


def test_closing_does_not_wait_for_slow_answers(upstream: Upstream) -> None:
    with FaultProxy(upstream.url) as proxy:
        proxy.fault("Do", Slow(3600))
        with pytest.raises(TimeoutError):
            post(proxy, timeout=0.1)


@pytest.mark.anyio
async def test_it_is_an_async_context_manager_too(upstream: Upstream) -> None:
    async with FaultProxy(upstream.url) as proxy:
        assert post(proxy) == (200, "1")
    with pytest.raises(OSError, match="refused"):
        post(proxy)
