"""The real command over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.end_to_end.site import Site, eventually
from tests.http.wire import ENVELOPE, connected
from tests.protocol.bench import until

Sites = Callable[..., Site]


@dataclass(slots=True)
class Running:
    """A bridge that listens."""

    process: subprocess.Popen[bytes]
    url: str
    site: Site

    @property
    def base(self) -> str:
        return self.url.removesuffix("/mcp")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def running(site: Site) -> Iterator[Running]:
    with (
        site.log.open("ab") as errors,
        subprocess.Popen(
            site.serve,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=site.env,
        ) as process,
    ):
        try:
            with site.log.open("rb") as lines:
                lines.seek(0)
                while True:
                    line = lines.readline()
                    assert line or process.poll() is None, site.log.read_text()
                    if line and (said := json.loads(line))["event"] == "listening":
                        break
            yield Running(process, said["url"], site)
        finally:
            process.kill()


@pytest.fixture
def over(another_site: Sites) -> Callable[..., Site]:
    """Make a site that serves HTTP on a free port."""

    def make(**server: Any) -> Site:
        return another_site("http", server={"transport": "http", "port": 0, **server})

    return make


@pytest.mark.anyio
@pytest.mark.req("A-1", "A-4", "A-5", "A-14", "P-1")
async def test_a_task_goes_through_real_sockets(over: Callable[..., Site]) -> None:
    with running(over()) as bridge:
        async with connected(bridge.url) as wire:
            call = await wire.create("🦊", "echo", {"text": "é" * 20_000})
            answer = await wire.answer(call)
            assert answer["result"]["structuredContent"] == {"text": "é" * 20_000}
            result = (await wire.task("result", "🦊"))["result"]
            assert result == answer["result"]
            plain = await wire.answer(await wire.call("echo", {"n": 1}))
            assert plain["result"]["structuredContent"] == {"n": 1}
        async with connected(bridge.url, handshake=False) as modern:
            plain = await modern.answer(await modern.call("echo", {"n": 1}, meta=ENVELOPE))
            assert plain["result"]["structuredContent"] == {"n": 1}
        assert bridge.end() == 0
        assert bridge.process.stdout is not None
        assert bridge.process.stdout.read() == b""


@pytest.mark.anyio
@pytest.mark.req("A-22")
@pytest.mark.case("S6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order_and_the_executions_run_on(
    over: Callable[..., Site], number: signal.Signals
) -> None:
    with running(over()) as bridge:
        async with connected(bridge.url) as wire:
            await wire.open_stream()
            call = await wire.create("t", "long")
            plain = await wire.call("long")
            machine = bridge.site.engine.machines["long"]
            await eventually(
                lambda: bridge.site.engine.executions(machine), lambda found: len(found) == 2
            )
            bridge.process.send_signal(number)
            text = (await wire.answer(plain))["result"]["content"][0]["text"]
            assert "goes on" in text
            await until(lambda: bridge.process.poll() is not None)
            assert bridge.process.returncode == 0
            assert wire.answered(call) is None
        executions = await bridge.site.engine.executions(machine)
        assert set(executions.values()) == {"RUNNING"}
        (ended,) = bridge.site.events("ended")
        assert ended["by"] == number.name
        levels = {json.loads(line)["level"] for line in bridge.site.log.read_text().splitlines()}
        assert levels == {"info"}
    with sqlite3.connect(bridge.site.database) as database:
        leases = database.execute("SELECT lease_until, stop_requested_at FROM tasks").fetchall()
    database.close()
    assert leases == [(None, None)] * 2


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"host": "0.0.0.0"}, ("isolation: session", "isolation: none", "bridge.yaml:")),
        ({"host": "::", "isolation": "none"}, ("allowed_hosts",)),
        ({"host": "nowhere.example"}, ("IP address",)),
        ({"host": "192.0.2.1", "isolation": "none"}, ("cannot listen on 192.0.2.1, port 0",)),
    ],
)
def test_it_does_not_start_where_others_would_get_in(
    over: Callable[..., Site], keys: dict[str, Any], says: tuple[str, ...]
) -> None:
    done = over(**keys).run("serve")
    assert done.returncode == 2
    for word in says:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_it_does_not_start_where_somebody_else_listens(over: Callable[..., Site]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = over(port=port).run("serve")
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}" in done.stderr


@pytest.mark.parametrize("host", ["::1", "::", "localhost"])
def test_it_listens_where_it_is_told(over: Callable[..., Site], host: str) -> None:
    open_to_all = {"isolation": "none", "allowed_hosts": ["*"]} if host == "::" else {}
    with running(over(host=host, **open_to_all)) as bridge:
        port = bridge.base.rpartition(":")[2]
        names = {"::1": ["[::1]"], "::": ["[::1]", "127.0.0.1"]}.get(host, ["127.0.0.1"])
        for name in names:
            assert httpx2.get(f"http://{name}:{port}/readyz").status_code == 200
            # Not a session, but past the check of its name.
            assert httpx2.get(f"http://{name}:{port}/mcp").status_code == 400
        assert bridge.end() == 0


def test_it_is_not_ready_without_its_database_and_again_with_it(
    over: Callable[..., Site],
) -> None:
    with running(over()) as bridge:
        asked = f"{bridge.base}/readyz"
        assert httpx2.get(asked).status_code == 200
        with sqlite3.connect(bridge.site.database) as database:
            database.execute("ALTER TABLE tasks RENAME TO gone")
        wait_for(asked, 503)
        assert httpx2.get(f"{bridge.base}/healthz").status_code == 200
        with database:
            database.execute("ALTER TABLE gone RENAME TO tasks")
        database.close()
        wait_for(asked, 200)
        assert bridge.end() == 0


def wait_for(url: str, status: int) -> None:
    with httpx2.Client() as client:
        while client.get(url).status_code != status:
            pass
