"""Clients that behave badly, many at once: afterwards the process is as it was before."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.timeout(90)]

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0
WAITING = 300
META = "modelcontextprotocol.io/task"


def eventually(read: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not holds(value := read()):
        assert time.monotonic() < deadline, f"still {value!r}"
        time.sleep(0.02)
    return value


class Process:
    """The server, from outside."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.log = folder / "log.jsonl"
        command = [sys.executable, "-m", "tests.http.program", str(folder / "bridge.db")]
        with self.log.open("wb") as errors:
            self.popen = subprocess.Popen(
                [*command, json.dumps(options)], cwd=ROOT, stderr=errors, stdin=subprocess.DEVNULL
            )
        try:
            (said,) = eventually(lambda: self.events("listening"), bool)
        except BaseException:
            self.kill()
            raise
        self.port = int(said["url"].removesuffix("/mcp").rpartition(":")[2])

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        assert self.popen.poll() is None, self.log.read_text()
        lines = self.log.read_text().split("\n")[:-1]
        return [line for line in map(json.loads, lines) if line["event"] == name]

    def told(self, number: signal.Signals) -> dict[str, Any]:
        before = len(self.events("told"))
        self.popen.send_signal(number)
        told: dict[str, Any] = eventually(
            lambda: self.events("told"), lambda lines: len(lines) > before
        )[-1]
        return told

    @property
    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.popen.pid}/fd"))  # noqa: PTH208

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.popen.pid}/task"))  # noqa: PTH208

    @property
    def database_files(self) -> int:
        folder = Path(f"/proc/{self.popen.pid}/fd")
        return sum("bridge.db" in str(file.readlink()) for file in folder.iterdir())

    @property
    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def dial(self, *, buffer: int | None = None) -> socket.socket:
        made = socket.socket()
        if buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(PATIENCE)
        made.connect(("127.0.0.1", self.port))
        return made

    def session(self) -> Session:
        return Session(self)


class Session:
    """A session, by hand: what is sent, over which connection, and what of it is read."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.id: str | None = None
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "rude", "version": "1"},
        }
        with process.dial() as connection:
            connection.sendall(self.request("initialize", hello, 0, close=True))
            answer = read_all(connection)
        head = answer.partition(b"\r\n\r\n")[0].decode().lower()
        self.id = head.partition("mcp-session-id: ")[2].partition("\r\n")[0]
        with process.dial() as connection:
            connection.sendall(self.request("notifications/initialized", close=True))
            assert b"202" in read_all(connection)[:20]

    def request(
        self, method: str, params: Any = None, number: int | None = None, *, close: bool = False
    ) -> bytes:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        body = json.dumps(message | ({} if number is None else {"id": number})).encode()
        return self.head("POST", len(body), close=close) + body

    def head(self, verb: str, size: int = 0, *, close: bool = False) -> bytes:
        lines = [
            f"{verb} /mcp HTTP/1.1",
            "host: localhost",
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            f"content-length: {size}",
            *([f"mcp-session-id: {self.id}"] if self.id else []),
            *(["connection: close"] if close else []),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def call(
        self, number: int, task_id: str | None = None, *, close: bool = False, **arguments: Any
    ) -> bytes:
        meta = {} if task_id is None else {META: {"taskId": task_id}}
        params = {"name": "run", "arguments": arguments, "_meta": meta}
        return self.request("tools/call", params, number, close=close)

    def ask(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request and read its answer."""
        with self.process.dial() as connection:
            connection.sendall(self.request(method, params, 99, close=True))
            return message_in(read_all(connection))

    def finished(self, task_id: str, **arguments: Any) -> bytes:
        """Call, and return all that is sent."""
        with self.process.dial() as connection:
            connection.sendall(self.call(98, task_id, close=True, **arguments))
            return read_all(connection)

    def delete(self) -> None:
        with self.process.dial() as connection:
            connection.sendall(self.head("DELETE", close=True))
            assert b"200" in read_all(connection)[:20]


def read_all(connection: socket.socket) -> bytes:
    data = b""
    while chunk := connection.recv(65_536):
        data += chunk
    return data


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        chunk = connection.recv(65_536)
        assert chunk, data
        data += chunk
    return data


def message_in(answer: bytes) -> dict[str, Any]:
    line = answer.partition(b"data: ")[2].partition(b"\r\n")[0]
    message: dict[str, Any] = json.loads(line)
    return message


@contextmanager
def process(folder: Path, **options: Any) -> Iterator[Process]:
    made = Process(folder, **options)
    try:
        yield made
        made.popen.send_signal(signal.SIGTERM)
        assert made.popen.wait(20) == 0
        said = [json.loads(line) for line in made.log.read_text().splitlines()]
        assert not [line for line in said if line.get("level") in ("error", "warning")]
        assert "Traceback" not in made.log.read_text()
    finally:
        made.kill()


def warm(made: Process) -> None:
    """Have everything that is made once be made: threads, pools, code."""
    session = made.session()
    with ExitStack() as stack:
        connections = [stack.enter_context(made.dial()) for _ in range(40)]
        for number, connection in enumerate(connections):
            connection.sendall(session.call(number, f"warm{number}", end=True))
            connection.sendall(session.request("tasks/list", None, 100 + number))
        for connection in connections:
            read_until(connection, b'"tasks":[')
    session.delete()


@pytest.mark.req("P-1")
@pytest.mark.case("T3")
def test_hundreds_of_waiting_calls_cost_neither_threads_nor_connections_nor_calls(
    tmp_path: Path,
) -> None:
    with process(tmp_path, max_session_streams=WAITING) as made, ExitStack() as stack:
        warm(made)
        files, database, before = made.files, made.database_files, made.told(signal.SIGUSR2)
        session = made.session()
        connections = []
        for number in range(WAITING):
            connection = stack.enter_context(made.dial())
            connection.sendall(session.call(number))
            connections.append(connection)
        started = WAITING + before["asked"]["start"]
        told = eventually(
            lambda: made.told(signal.SIGUSR2), lambda told: told["asked"]["start"] == started
        )
        assert made.files == files + WAITING
        # Let a few poll intervals pass.
        eventually(
            lambda: made.told(signal.SIGUSR2),
            lambda now: now["seconds"] > told["seconds"] + 3,
        )
        assert made.threads <= 12
        assert made.database_files <= max(database, 12)
        made.told(signal.SIGUSR1)
        for number, connection in enumerate(connections):
            assert f'"id":{number},'.encode() in read_until(connection, b"structuredContent")
        after = made.told(signal.SIGUSR2)
        seconds = after["seconds"] - before["seconds"]
        observed = after["asked"].get("observe", 0) - before["asked"].get("observe", 0)
        # One for each second that passes, one when it begins and one when it ends.
        assert observed <= WAITING * (seconds + 2)
        assert after["asked"]["start"] == started
        for connection in connections:
            connection.close()
        eventually(lambda: made.files, lambda now: now <= files)
        print(f"{WAITING} calls: {made.threads} threads, {observed} observed in {seconds:.1f} s")


@pytest.mark.req("A-22")
@pytest.mark.case("T1", "S6")
def test_connections_dropped_at_every_stage_leave_nothing_behind(tmp_path: Path) -> None:
    with process(tmp_path, max_session_streams=1000) as made:
        warm(made)
        # The second round shows what stays for good and what is merely made the first time.
        files, threads, megabytes = made.files, made.threads, []
        for round_ in range(3):
            abuse(made, round_)
            eventually(lambda: made.files, lambda now: now <= files)
            eventually(lambda: made.threads, lambda now: now <= threads)
            megabytes.append(made.megabytes)
        print("MB after each round", megabytes)
        assert megabytes[-1] - megabytes[1] < 5


def abuse(made: Process, round_: int) -> None:
    session = made.session()
    whole = session.call(7, f"t{round_}")
    # At every stage of the request, in a clean way and with a reset.
    for cut in range(0, len(whole), len(whole) // 40):
        for reset in (False, True):
            with made.dial() as connection:
                connection.sendall(whole[:cut])
                hang_up(connection, reset=reset)
    # While the task is made, when it was announced, and as it waits.
    for number in range(30):
        with made.dial() as connection:
            connection.sendall(session.call(100 + number, f"d{round_}-{number}"))
            if number % 2:
                read_until(connection, b"tasks/created")
            hang_up(connection, reset=number % 3 == 0)
    # The session's own stream, again and again.
    for _ in range(10):
        with made.dial() as connection:
            connection.sendall(session.head("GET"))
            read_until(connection, b"\r\n\r\n")
    ids = [f"d{round_}-{number}" for number in range(30)]

    def made_all() -> list[Any]:
        return [session.ask("tasks/get", {"taskId": task_id}) for task_id in ids]

    answers = eventually(made_all, lambda all_: all("result" in answer for answer in all_))
    assert {answer["result"]["status"] for answer in answers} <= {"submitted", "working"}
    made.told(signal.SIGUSR1)
    eventually(
        made_all,
        lambda all_: {answer["result"]["status"] for answer in all_} == {"completed"},
    )
    session.delete()


def hang_up(connection: socket.socket, *, reset: bool) -> None:
    if reset:
        linger = b"\1\0\0\0\0\0\0\0"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def test_clients_that_never_read_and_half_open_sockets_are_got_rid_of(tmp_path: Path) -> None:
    with (
        process(tmp_path, headers_within=1.0, body_within=1.0, taken_within=1.0) as made,
        ExitStack() as stack,
    ):
        warm(made)
        files, threads = made.files, made.threads
        session = made.session()
        # Big answers that nobody takes, on many connections, and more than the kernel takes.
        text = "x" * 200_000
        assert b"structuredContent" in session.finished("t", end=True, text=text)
        for number in range(20):
            connection = stack.enter_context(made.dial(buffer=4096))
            for again in range(30):
                asked = session.request("tasks/result", {"taskId": "t"}, number * 100 + again)
                connection.sendall(asked)
        # Nothing at all, half a head, half a body.
        for part in (b"", session.head("POST", 10)[:40], session.head("POST", 10) + b"{"):
            for _ in range(30):
                connection = stack.enter_context(made.dial())
                connection.sendall(part)
        eventually(lambda: made.files, lambda now: now <= files)
        eventually(lambda: made.threads, lambda now: now <= threads)
        assert session.ask("ping")["result"] == {}
        stack.close()
        eventually(lambda: made.files, lambda now: now <= files)
        session.delete()


def test_sessions_opened_and_left_cost_little_and_end_by_themselves(tmp_path: Path) -> None:
    with process(tmp_path, session_idle=2.0) as made:
        warm(made)
        before = made.megabytes
        sessions = [made.session() for _ in range(200)]
        each = (made.megabytes - before) / len(sessions)
        print(f"{each * 1000:.0f} kB a session")
        assert each < 0.15

        def gone() -> bytes:
            with made.dial() as connection:
                connection.sendall(sessions[0].request("ping", None, 1, close=True))
                return read_all(connection)[:12]

        time.sleep(2.5)
        assert gone() == b"HTTP/1.1 404"
        again = [made.session() for _ in range(200)]
        assert made.megabytes - before < 1.7 * each * len(again) + 5
