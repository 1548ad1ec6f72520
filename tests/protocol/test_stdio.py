"""A real process on real pipes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.protocol.stdio_server"]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "pipe", "version": "1"},
}


class Pipe:
    """A client of bytes. A time-out of the test run ends what hangs."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            COMMAND, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.stderr = self.process.stderr

    def write(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def send(self, method: str, params: Any = None, request_id: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        message |= {} if request_id is None else {"id": request_id}
        self.write(json.dumps(message).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, "the server closed its stdout"
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
        self.send(method, params, request_id)
        while (message := self.read()).get("id") != request_id:
            assert "method" in message, message
        return message

    def shake_hands(self) -> None:
        assert "result" in self.ask("initialize", HELLO)
        self.send("notifications/initialized")

    def hang_up(self) -> str:
        """Close; returns what the server wrote to stderr."""
        self.stdin.close()
        errors = self.stderr.read().decode()
        assert self.process.wait(timeout=30) == 0, errors
        return errors


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    opened = Pipe()
    yield opened
    opened.process.kill()
    opened.process.wait()
    for stream in (opened.stdin, opened.stdout, opened.stderr):
        with suppress(BrokenPipeError):
            stream.close()


def call(task_id: str, **arguments: Any) -> dict[str, Any]:
    meta = {"modelcontextprotocol.io/task": {"taskId": task_id}}
    return {"name": "run", "arguments": arguments, "_meta": meta}


@pytest.mark.req("A-1", "A-4", "A-5", "A-13", "A-14")
def test_a_task_goes_through_real_pipes(pipe: Pipe) -> None:
    pipe.shake_hands()
    pipe.send("tools/call", call("🦊", text="é" * 50_000), 2)
    created, answer = pipe.read(), pipe.read()
    assert created["method"] == "notifications/tasks/created"
    assert answer["result"]["structuredContent"] == {"text": "é" * 50_000}
    result = pipe.ask("tasks/result", {"taskId": "🦊"}, 3)["result"]
    assert result == answer["result"]
    assert "served 1 0" in pipe.hang_up()


def test_garbage_is_answered_and_the_server_lives(pipe: Pipe) -> None:
    pipe.shake_hands()
    for line, code, request_id in (
        (b"\x00\xff\xfe\x80garbage\n", -32700, None),
        (b"[" * 200_000 + b"\n", -32700, None),
        (b"[]\n", -32600, None),
        (b'{"id":5}\n', -32600, 5),
        (b'{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{"a":"\\ud800"}}\n', -32602, 6),
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"' + b"x" * 5_000_000 + b'"}}\n',
         -32600, 7),
        (b'{"jsonrpc":"2.0","id":8,"method":"x","params":{"a":' + b"9" * 5000 + b"}}\n", -32602, 8),
    ):  # fmt: skip
        pipe.write(line)
        answer = pipe.read()
        assert (answer["error"]["code"], answer["id"]) == (code, request_id)
    assert pipe.ask("ping", request_id=8)["result"] == {}
    assert "served 0 0" in pipe.hang_up()


def test_before_the_handshake_a_client_is_told_to_shake_hands(pipe: Pipe) -> None:
    told = {"code": -32602, "message": "Not initialized yet: send initialize first"}
    assert pipe.ask("tools/list")["error"] == told
    assert pipe.ask("tools/call", call("t"), 2)["error"] == told
    assert pipe.ask("tasks/get", {"taskId": "t"}, 3)["error"] == told
    assert pipe.ask("ping", request_id=4)["result"] == {}
    assert pipe.ask("no/such", request_id=5)["error"]["code"] == -32601
    pipe.shake_hands()
    assert "result" in pipe.ask("tools/list", request_id=6)
    assert "served 0 0" in pipe.hang_up()


REQUESTS = 3000


def fill(pipe: Pipe) -> bytes:
    """Ask for more than 800 kB until the server takes no more; returns what it did not take."""
    line = '{"jsonrpc":"2.0","id":%d,"method":"tools/list"' + " " * 200 + "}\n"
    rest = "".join(line % number for number in range(REQUESTS)).encode()
    os.set_blocking(pipe.stdin.fileno(), False)
    while rest and select.select([], [pipe.stdin], [], 2)[1]:
        rest = rest[os.write(pipe.stdin.fileno(), rest) :]
    os.set_blocking(pipe.stdin.fileno(), True)
    return rest


def test_a_client_that_does_not_read_is_not_read_from(pipe: Pipe) -> None:
    pipe.shake_hands()
    rest = fill(pipe)
    assert len(rest) > 400_000
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(pipe.write, rest)
        answered = {pipe.read()["id"] for _ in range(REQUESTS)}
        sent.result()
    assert answered == set(range(REQUESTS))
    assert pipe.ask("ping", request_id=REQUESTS)["result"] == {}
    assert "served 0 0" in pipe.hang_up()


def test_a_client_that_never_reads_can_hang_up(pipe: Pipe) -> None:
    pipe.shake_hands()
    assert fill(pipe)
    pipe.stdin.close()
    assert pipe.process.wait(timeout=30) == 0


@pytest.mark.req("A-21")
def test_waiting_calls_keep_nobody_from_being_read(pipe: Pipe) -> None:
    pipe.shake_hands()
    for number in range(300):
        pipe.send("tools/call", call(f"t{number}", hold=True), number)
        assert pipe.read()["method"] == "notifications/tasks/created"
    assert pipe.ask("ping", request_id=300)["result"] == {}
    pipe.send("notifications/cancelled", {"requestId": 7})
    while pipe.ask("tasks/get", {"taskId": "t7"}, 301)["result"]["status"] != "cancelled":
        pass


def test_only_the_protocol_is_on_stdout(pipe: Pipe) -> None:
    pipe.shake_hands()
    assert "result" in pipe.ask("tools/call", call("t"), request_id=2)
    assert "stray output" in pipe.hang_up()


@pytest.mark.req("A-22")
def test_hanging_up_cancels_nothing(pipe: Pipe) -> None:
    pipe.shake_hands()
    pipe.send("tools/call", call("t", hold=True), 2)
    assert pipe.read()["method"] == "notifications/tasks/created"
    assert "served 1 0" in pipe.hang_up()


@pytest.mark.req("A-21")
def test_cancelling_and_hanging_up_at_once_cancels(pipe: Pipe) -> None:
    pipe.shake_hands()
    pipe.send("tools/call", call("t", hold=True), 2)
    assert pipe.read()["method"] == "notifications/tasks/created"
    pipe.send("notifications/cancelled", {"requestId": 2})
    assert "cancel_requested" in pipe.hang_up()


def test_a_last_line_without_its_end_is_read(pipe: Pipe) -> None:
    pipe.shake_hands()
    pipe.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode())
    pipe.stdin.close()
    assert pipe.read() == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert pipe.process.wait(timeout=30) == 0


def test_requests_may_come_from_a_file(tmp_path: Path) -> None:
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    script, answers = tmp_path / "in", tmp_path / "out"
    script.write_text("".join(json.dumps(message) + "\n" for message in messages))
    with script.open() as source, answers.open("w") as sink:
        subprocess.run(COMMAND, cwd=ROOT, stdin=source, stdout=sink, check=True, timeout=60)
    assert json.loads(answers.read_text().splitlines()[0])["id"] == 1


def test_a_client_that_no_longer_reads_has_hung_up(pipe: Pipe) -> None:
    pipe.shake_hands()
    pipe.stdout.close()
    pipe.send("ping", request_id=2)
    pipe.process.wait(timeout=30)
    assert b"served 0 0" in pipe.stderr.read()


def test_a_signal_ends_it_although_stdin_is_open(pipe: Pipe) -> None:
    pipe.shake_hands()
    os.kill(pipe.process.pid, signal.SIGINT)
    assert pipe.process.wait(timeout=30) != 0
