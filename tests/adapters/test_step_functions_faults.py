"""What the network does to calls, shown through a proxy that breaks it on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from workflow_bridge.adapter import (
    AdapterError,
    ExecutionNotFound,
    ExecutionRef,
    Rejected,
    Running,
    StartUnknown,
    Unavailable,
)
from workflow_bridge.testing.adapter_contract import new_key
from workflow_bridge.testing.fault_proxy import (
    Canned,
    Error,
    FaultProxy,
    Hold,
    LostAnswer,
    Reset,
    Stale,
    Status,
    Throttle,
)
from workflow_bridge_adapters.step_functions import StepFunctions
from workflow_bridge_adapters.step_functions.calls import Attempt
from workflow_bridge_adapters.step_functions.errors import Call
from workflow_bridge_adapters.step_functions.sdk import Sdk

from .conftest import settings

pytestmark = pytest.mark.anyio

BEFORE = datetime(2020, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def impatient(proxy: FaultProxy, **keys: Any) -> AsyncIterator[StepFunctions]:
    """An adapter whose time-outs a test can wait for."""
    configured = {
        "connect_timeout": "100ms",
        "read_timeout": "300ms",
        "call_timeout": "5s",
        "start_timeout": "800ms",
    }
    adapter = StepFunctions(settings(endpoint_url=proxy.url, **(configured | keys)))
    yield adapter
    await adapter.aclose()


async def arrived(proxy: FaultProxy, operation: str, calls: int) -> None:
    """Wait until an operation has arrived that often."""
    with anyio.fail_after(5):
        while proxy.calls(operation) < calls:  # noqa: ASYNC110 - told by a thread
            await anyio.sleep(0.01)


# --- start is sent once ---


@pytest.mark.case("D1", "F1")
async def test_a_throttled_start_is_not_sent_again(
    adapter: StepFunctions, proxy: FaultProxy, echo: str
) -> None:
    key = new_key()
    proxy.fault("StartExecution", Throttle(retry_after_seconds=3))
    with pytest.raises(Unavailable) as raised:
        await adapter.start(echo, b"{}", key=key)
    assert raised.value.throttled
    assert raised.value.retry_after == timedelta(seconds=3)
    assert proxy.calls("StartExecution") == 1
    assert await adapter.find(echo, key=key, since=BEFORE) == []


@pytest.mark.case("D1")
@pytest.mark.parametrize("fault", [Status(500), Status(503), Reset(), LostAnswer()], ids=str)
async def test_a_start_without_an_answer_is_unknown_and_sent_once(
    adapter: StepFunctions, proxy: FaultProxy, echo: str, fault: Status | Reset | LostAnswer
) -> None:
    key = new_key()
    proxy.fault("StartExecution", fault)
    with pytest.raises(StartUnknown):
        await adapter.start(echo, b"{}", key=key)
    assert proxy.calls("StartExecution") == 1
    found = await adapter.find(echo, key=key, since=BEFORE)
    assert len(found) == (1 if isinstance(fault, LostAnswer) else 0)


@pytest.mark.case("D1", "D3")
async def test_a_start_repeated_after_a_lost_answer_is_the_same_execution(
    adapter: StepFunctions, proxy: FaultProxy, long: str
) -> None:
    key = new_key()
    proxy.fault("StartExecution", LostAnswer())
    with pytest.raises(StartUnknown):
        await adapter.start(long, b"{}", key=key)
    [found] = await adapter.find(long, key=key, since=BEFORE)
    again = await adapter.start(long, b"{}", key=key)
    assert again.ref == found.ref
    await adapter.stop(again.ref, "the test is over")


async def test_a_start_whose_answer_is_late_is_unknown(proxy: FaultProxy, echo: str) -> None:
    released = threading.Event()
    proxy.fault("StartExecution", Hold(released))
    async with impatient(proxy) as adapter:
        with pytest.raises(StartUnknown):
            await adapter.start(echo, b"{}", key=new_key())
    released.set()
    assert proxy.calls("StartExecution") == 1


@pytest.mark.case("F11")
async def test_a_denied_start_names_the_action_and_nothing_of_ours(
    adapter: StepFunctions, proxy: FaultProxy, echo: str
) -> None:
    proxy.fault("StartExecution", Error("AccessDeniedException"))
    with pytest.raises(Rejected, match="states:StartExecution") as raised:
        await adapter.start(echo, b"{}", key=new_key())
    assert "arn:" not in str(raised.value)


@pytest.mark.case("D7")
@pytest.mark.parametrize("fault", [Reset(), Status(500)], ids=str)
async def test_a_run_without_an_answer_is_unknown_and_sent_once(
    adapter: StepFunctions, proxy: FaultProxy, echo: str, fault: Reset | Status
) -> None:
    proxy.fault("StartSyncExecution", fault)
    with pytest.raises(StartUnknown):
        await adapter.run(echo, b"{}", key=new_key())
    assert proxy.calls("StartSyncExecution") == 1


# --- looking is retried quickly, and is never an outcome ---


@pytest.mark.case("F1")
@pytest.mark.parametrize("fault", [Throttle(), Status(503), Reset()], ids=str)
async def test_a_look_is_retried_within_its_deadline(
    adapter: StepFunctions, proxy: FaultProxy, long: str, fault: Throttle | Status | Reset
) -> None:
    start = await adapter.start(long, b"{}", key=new_key())
    proxy.fault("DescribeExecution", fault)
    assert await adapter.observe(start.ref) == Running()
    assert proxy.calls("DescribeExecution") == 2
    proxy.fault("DescribeExecution", fault, times=None)
    with pytest.raises(Unavailable) as raised:
        await adapter.observe(start.ref)
    assert raised.value.throttled == isinstance(fault, Throttle)
    proxy.clear()
    await adapter.stop(start.ref, "the test is over")


@pytest.mark.case("F10")
async def test_a_stale_answer_after_a_stop_is_what_the_engine_says(
    adapter: StepFunctions, proxy: FaultProxy, long: str
) -> None:
    start = await adapter.start(long, b"{}", key=new_key())
    assert await adapter.observe(start.ref) == Running()
    await adapter.stop(start.ref, "the test is over")
    proxy.fault("DescribeExecution", Stale())
    assert await adapter.observe(start.ref) == Running()
    assert await adapter.observe(start.ref) != Running()


# --- slots ---


async def test_a_start_that_never_got_a_connection_is_never_sent(
    proxy: FaultProxy, echo: str
) -> None:
    released = threading.Event()
    ref = ExecutionRef(echo.replace("stateMachine", "execution") + ":wb-never")
    proxy.fault("DescribeExecution", Hold(released), times=None)

    async def look(adapter: StepFunctions) -> None:
        with pytest.raises(AdapterError):
            await adapter.observe(ref)

    async with impatient(proxy, max_connections=1) as adapter:
        async with anyio.create_task_group() as group:
            group.start_soon(look, adapter)
            await arrived(proxy, "DescribeExecution", 1)
            with pytest.raises(Unavailable, match="nothing was sent"):
                await adapter.start(echo, b"{}", key=new_key())
            released.set()
        proxy.clear()
        with pytest.raises(ExecutionNotFound):
            await adapter.observe(ref)
    assert proxy.calls("StartExecution") == 0


async def test_a_caller_that_gives_up_while_waiting_sends_nothing(
    proxy: FaultProxy, echo: str, long: str
) -> None:
    released = threading.Event()
    async with impatient(proxy, max_connections=1, read_timeout="10s", start_timeout="20s") as one:
        start = await one.start(long, b"{}", key=new_key())
        proxy.fault("DescribeExecution", Hold(released))
        async with anyio.create_task_group() as group:
            group.start_soon(one.observe, start.ref)
            await arrived(proxy, "DescribeExecution", 1)
            with anyio.move_on_after(0.05):
                await one.start(echo, b"{}", key=new_key())
            released.set()
        assert await one.observe(start.ref) == Running()
        await one.stop(start.ref, "the test is over")
    assert proxy.calls("StartExecution") == 1


async def test_a_slow_engine_holds_a_bounded_number_of_threads_and_never_the_loop(
    proxy: FaultProxy, long: str
) -> None:
    released = threading.Event()
    async with impatient(proxy, max_connections=3, read_timeout="10s", start_timeout="20s") as few:
        start = await few.start(long, b"{}", key=new_key())
        proxy.fault("DescribeExecution", Hold(released), times=None)
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(few.observe, start.ref)
            await arrived(proxy, "DescribeExecution", 3)
            threads = [t for t in threading.enumerate() if t.name == "step-functions"]
            assert threads
            assert all(thread.daemon for thread in threads)
            assert proxy.calls("DescribeExecution") == 3
            released.set()
        await few.stop(start.ref, "the test is over")
    assert proxy.calls("DescribeExecution") == 20


@pytest.mark.parametrize("send_in", [-1, 10], ids=["too late", "given up"])
def test_nothing_leaves_without_leave(proxy: FaultProxy, echo: str, send_in: float) -> None:
    attempt = Attempt(time.monotonic() + send_in)
    if send_in > 0:
        assert not attempt.give_up()
    sdk = Sdk(settings(endpoint_url=proxy.url))
    request = {"stateMachineArn": echo, "name": new_key(), "input": "{}"}
    with pytest.raises(Unavailable):
        sdk.send(Call.START, request, attempt)
    assert not attempt.sent
    assert proxy.calls("StartExecution") == 0
    sdk.close()


# --- credentials ---


async def test_missing_credentials_are_an_outage(
    adapter: StepFunctions, echo: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(Unavailable, match="credentials"):
        await adapter.start(echo, b"{}", key=new_key())
    assert proxy.calls("StartExecution") == 0


def _assumed(expires: datetime) -> Canned:
    body = f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
      <AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId>
      <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
      <Expiration>{expires:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials>
      </AssumeRoleResult></AssumeRoleResponse>"""
    return Canned(body.encode(), content_type="text/xml")


@pytest.mark.case("F14")
async def test_a_role_is_assumed_once_and_renewed_before_it_expires(
    proxy: FaultProxy, long: str
) -> None:
    adapter = StepFunctions(
        settings(endpoint_url=proxy.url, role_arn="arn:aws:iam::123456789012:role/bridge")
    )
    proxy.fault("AssumeRole", _assumed(datetime.now(UTC) + timedelta(minutes=5)))
    start = await adapter.start(long, b"{}", key=new_key())
    assert proxy.calls("AssumeRole") == 1
    proxy.fault("AssumeRole", _assumed(datetime.now(UTC) + timedelta(hours=1)))
    for _ in range(3):
        assert await adapter.observe(start.ref) == Running()
    assert proxy.calls("AssumeRole") == 2
    await adapter.stop(start.ref, "the test is over")
    await adapter.aclose()


@pytest.mark.case("F14")
async def test_a_role_that_cannot_be_assumed_starts_nothing(proxy: FaultProxy, echo: str) -> None:
    adapter = StepFunctions(
        settings(endpoint_url=proxy.url, role_arn="arn:aws:iam::123456789012:role/bridge")
    )
    denied = b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"
    proxy.fault("AssumeRole", Canned(denied, status=403, content_type="text/xml"))
    with pytest.raises(Unavailable, match="sts:AssumeRole"):
        await adapter.start(echo, b"{}", key=new_key())
    assert proxy.calls("StartExecution") == 0
    await adapter.aclose()


# --- the SDK is loaded late ---


def test_neither_importing_nor_making_the_adapter_loads_the_sdk() -> None:
    program = """
import json, sys
from workflow_bridge_adapters.step_functions import StepFunctions
adapter = StepFunctions(StepFunctions.Settings(region="eu-west-1"))
adapter.check_workflow("arn:aws:states:eu-west-1:123456789012:stateMachine:A", inline=False)
adapter.prepare("A", {})
print(json.dumps([name for name in sys.modules if name.split(".")[0] in {"boto3", "botocore"}]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"{}", b'{"other": 1}'])
async def test_an_answer_that_is_none_of_the_service_says_nothing(
    adapter: StepFunctions, proxy: FaultProxy, echo: str, body: bytes
) -> None:
    payload = adapter.prepare(echo, {})
    proxy.fault("StartExecution", Canned(body), times=1)
    with pytest.raises(StartUnknown):
        await adapter.start(echo, payload, key=(key := new_key()))
    started = await adapter.start(echo, payload, key=key)
    for operation, ask in (
        ("DescribeExecution", adapter.observe),
        ("GetExecutionHistory", adapter.narrate),
    ):
        proxy.fault(operation, Canned(body), times=None)
        with pytest.raises(Unavailable):
            await ask(started.ref)
