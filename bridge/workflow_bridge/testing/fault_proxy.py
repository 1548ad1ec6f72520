"""An HTTP proxy that makes an AWS emulator as unreliable as a test wants it.

It stands before an emulator of AWS (moto's server) and goes by operation::

    with FaultProxy(moto.url) as proxy:
        proxy.fault("StartExecution", LostAnswer(), times=1)
        ...                                   # the client's endpoint_url is proxy.url
        assert proxy.calls("StartExecution") == 2

Every request gets a connection of its own, so that a fault never hits a neighbour.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, TypeAlias, assert_never
from urllib.parse import parse_qs, urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_UPSTREAM_TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Error:
    """Refuse with an AWS error; nothing is forwarded."""

    code: str
    status: int = 400
    message: str = "refused by the fault proxy: arn:aws:states:eu-west-1:123456789012:secret"


@dataclass(frozen=True, slots=True)
class Throttle:
    """Refuse as AWS does when it is asked too often."""

    retry_after_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with a bare HTTP status, as a load balancer does; nothing is forwarded."""

    status: int = 503


@dataclass(frozen=True, slots=True)
class Reset:
    """Reset the connection before anything is forwarded."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """Forward, then reset the connection: it has happened, and nobody is told."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Forward, and keep the answer back for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Forward, and keep the answer back until the event is set or the proxy is closed."""

    until: threading.Event


@dataclass(frozen=True, slots=True)
class Stale:
    """Give the previous answer to the same request again; forward if there is none."""


@dataclass(frozen=True, slots=True)
class Canned:
    """Give this answer; nothing is forwarded."""

    body: bytes
    status: int = 200
    content_type: str = "application/x-amz-json-1.0"


Fault: TypeAlias = Error | Throttle | Status | Reset | LostAnswer | Slow | Hold | Stale | Canned


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def operation(self) -> str:
        """The JSON protocol names it in a header, the query protocol (STS) in the body."""
        target = dict(self.headers).get("x-amz-target")
        if target is not None:
            return target.rpartition(".")[2]
        form = parse_qs(self.body.decode(errors="replace"))
        return form.get("Action", [""])[0]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class FaultProxy:
    """A context manager, with and without ``async``; `url` is valid inside it."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._lasting: dict[str, Fault] = {}
        self._answers: dict[tuple[str, bytes], _Answer] = {}
        self._closing = threading.Event()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address to use in place of the emulator's."""
        if self._server is None:
            raise RuntimeError("the proxy runs only inside its with block")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fault(self, operation: str, fault: Fault, *, times: int | None = 1) -> None:
        """Queue a fault for the next calls of an operation; for all of them if times is None."""
        with self._lock:
            if times is None:
                self._lasting[operation] = fault
            else:
                self._faults[operation].extend([fault] * times)

    def clear(self) -> None:
        """Drop all faults that have not happened yet."""
        with self._lock:
            self._faults.clear()
            self._lasting.clear()

    def calls(self, operation: str) -> int:
        """Return how many requests of an operation have arrived."""
        with self._lock:
            return self._calls[operation]

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, exc, traceback)

    def answer(self, request: _Request) -> _Answer | None:
        """Return what to answer; None means to reset the connection."""
        match self._arrived(request.operation):
            case None:
                return self._forward(request)
            case Error(code, status, message):
                return _error(code, status, message)
            case Throttle(retry_after):
                return _error("ThrottlingException", 400, "Rate exceeded", retry_after)
            case Status(status):
                return _Answer(status, (("content-type", "text/html"),), b"<html></html>")
            case Reset():
                return None
            case LostAnswer():
                self._forward(request)
                return None
            case Slow(seconds):
                answer = self._forward(request)
                self._closing.wait(seconds)
                return answer
            case Hold(until):
                answer = self._forward(request)
                while not until.wait(0.02) and not self._closing.is_set():
                    pass
                return answer
            case Canned(body, status, content_type):
                return _Answer(status, (("content-type", content_type),), body)
            case Stale():
                known = self._answers.get((request.operation, request.body))
                return known or self._forward(request)
            case unknown:
                assert_never(unknown)

    def _arrived(self, operation: str) -> Fault | None:
        with self._lock:
            self._calls[operation] += 1
            queued = self._faults[operation]
            return queued.popleft() if queued else self._lasting.get(operation)

    def _forward(self, request: _Request) -> _Answer:
        connection = http.client.HTTPConnection(*self._upstream, timeout=_UPSTREAM_TIMEOUT_SECONDS)
        try:
            headers = {n: v for n, v in request.headers if n not in _HOP_BY_HOP}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            kept = tuple((n, v) for n, v in response.getheaders() if n.lower() not in _HOP_BY_HOP)
            answer = _Answer(response.status, kept, response.read())
        finally:
            connection.close()
        self._answers[request.operation, request.body] = answer
        return answer


def _error(code: str, status: int, message: str, retry_after_seconds: int | None = None) -> _Answer:
    headers = [("content-type", "application/x-amz-json-1.0")]
    if retry_after_seconds is not None:
        headers.append(("retry-after", str(retry_after_seconds)))
    body = json.dumps({"__type": f"com.amazonaws.states#{code}", "message": message})
    return _Answer(status, tuple(headers), body.encode())


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, proxy: FaultProxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        headers = tuple((name.lower(), value) for name, value in self.headers.items())
        request = _Request(self.command, self.path, headers, self.rfile.read(length))
        answer = self.server.proxy.answer(request)
        if answer is None:
            self._reset()
        else:
            self._send(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _send(self, answer: _Answer) -> None:
        try:
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # The client has given up waiting.

    def _reset(self) -> None:
        # Lingering for zero seconds makes closing send RST in place of FIN.
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()
