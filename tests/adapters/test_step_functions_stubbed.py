"""What moto cannot show, from the shapes of the real service, through botocore's own validation."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import Stubber

from workflow_bridge.adapter import (
    Aborted,
    AdapterError,
    ExecutionNotFound,
    ExecutionRef,
    Failed,
    Found,
    Page,
    Rejected,
    Running,
    Started,
    StartUnknown,
    Succeeded,
    TimedOut,
    Unavailable,
)
from workflow_bridge_adapters.step_functions import StepFunctions
from workflow_bridge_adapters.step_functions.sdk import Lane, Sdk

from .conftest import settings

pytestmark = pytest.mark.anyio

MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Settle"
EXPRESS_REF = "arn:aws:states:eu-west-1:123456789012:express:Settle:wb-1:6f1c"
KEY = "wb-1"
REF = ExecutionRef("arn:aws:states:eu-west-1:123456789012:execution:Settle:wb-1")
BEGAN = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
ENDED = datetime(2026, 11, 30, 9, 5, tzinfo=UTC)


class Stubbed:
    """An adapter and a stub for each of its clients."""

    def __init__(self, **keys: Any) -> None:
        configured = settings(**keys)
        sdk = Sdk(configured)
        self.adapter = StepFunctions(configured, sdk=sdk)
        self.once = Stubber(sdk.client(Lane.ONCE))
        self.inline = Stubber(sdk.client(Lane.INLINE))
        self.retried = Stubber(sdk.client(Lane.RETRIED))
        for stubber in (self.once, self.inline, self.retried):
            stubber.activate()

    def described(self, status: str, **keys: Any) -> None:
        """Queue an answer of DescribeExecution."""
        answer = {
            "executionArn": REF,
            "stateMachineArn": MACHINE,
            "name": KEY,
            "status": status,
            "startDate": BEGAN,
        }
        self.retried.add_response("describe_execution", answer | keys)

    def refused(self, method: str, code: str, status: int = 400, **expected: Any) -> None:
        """Queue a refusal that goes through the client with retries."""
        self.retried.add_client_error(
            method, code, "arn:secret", status, expected_params=expected or None
        )


@pytest.fixture
async def stubbed() -> AsyncIterator[Stubbed]:
    stubbed = Stubbed()
    yield stubbed
    for stubber in (stubbed.once, stubbed.inline, stubbed.retried):
        stubber.assert_no_pending_responses()
    await stubbed.adapter.aclose()


# --- observe: states and absent keys ---


@pytest.mark.parametrize(
    ("status", "keys", "expected"),
    [
        ("RUNNING", {}, Running()),
        ("SUCCEEDED", {"output": '{"a": [1]}'}, Succeeded({"a": [1]}, ENDED)),
        ("SUCCEEDED", {"output": "big"}, Succeeded("big", ENDED)),
        ("SUCCEEDED", {"output": '"big"'}, Succeeded("big", ENDED)),
        ("SUCCEEDED", {"output": "NaN"}, Succeeded("NaN", ENDED)),
        ("SUCCEEDED", {"output": '"\\ud83d"'}, Succeeded('"\\ud83d"', ENDED)),
        ("SUCCEEDED", {"output": '"\\ud83d\\ude00"'}, Succeeded("\U0001f600", ENDED)),
        ("SUCCEEDED", {}, Succeeded(None, ENDED)),
        ("FAILED", {"error": "E", "cause": "why"}, Failed("E", "why", ENDED)),
        ("FAILED", {}, Failed(None, None, ENDED)),
        pytest.param(
            "FAILED",
            {"error": "States.Runtime", "cause": "The execution reached the maximum number …"},
            Failed("States.Runtime", "The execution reached the maximum number …", ENDED),
            marks=pytest.mark.case("R6"),
        ),
        pytest.param(
            "TIMED_OUT",
            {},
            TimedOut("States.Timeout", None, ENDED),
            marks=pytest.mark.case("R4"),
        ),
        pytest.param("ABORTED", {}, Aborted(None, None, ENDED), marks=pytest.mark.case("R5")),
        ("ABORTED", {"error": "E", "cause": "c"}, Aborted("E", "c", ENDED)),
    ],
)
async def test_states_are_read_with_any_key_absent(
    stubbed: Stubbed, status: str, keys: dict[str, str], expected: object
) -> None:
    stubbed.described(status, stopDate=ENDED, **keys)
    assert await stubbed.adapter.observe(REF) == expected


async def test_the_end_may_be_without_a_time(stubbed: Stubbed) -> None:
    stubbed.described("TIMED_OUT")
    assert await stubbed.adapter.observe(REF) == TimedOut("States.Timeout", None, None)


@pytest.mark.case("F7")
async def test_waiting_for_a_redrive_is_running(stubbed: Stubbed) -> None:
    stubbed.described("PENDING_REDRIVE", redriveCount=1, redriveDate=BEGAN)
    assert isinstance(await stubbed.adapter.observe(REF), Running)


@pytest.mark.case("F7")
async def test_a_redriven_execution_runs(stubbed: Stubbed) -> None:
    stubbed.described("FAILED", stopDate=ENDED, redriveStatus="REDRIVABLE")
    stubbed.described("RUNNING", redriveCount=1, redriveDate=BEGAN)
    assert isinstance(await stubbed.adapter.observe(REF), Failed)
    assert isinstance(await stubbed.adapter.observe(REF), Running)


@pytest.mark.case("R12")
async def test_a_status_that_is_new_here_is_running_and_logged(
    stubbed: Stubbed, caplog: pytest.LogCaptureFixture
) -> None:
    stubbed.described("SUCCEEDED_PARTIALLY", output='{"secret": 1}')
    with caplog.at_level(logging.WARNING):
        execution = await stubbed.adapter.observe(REF)
    assert isinstance(execution, Running)
    assert [record.message for record in caplog.records] == ["unknown_execution_status"]
    assert "secret" not in str(caplog.records[0].__dict__)


async def test_a_success_whose_output_is_left_out_is_no_outcome_yet(stubbed: Stubbed) -> None:
    stubbed.described("SUCCEEDED", stopDate=ENDED, outputDetails={"included": False})
    with pytest.raises(Unavailable, match="not readable"):
        await stubbed.adapter.observe(REF)


@pytest.mark.parametrize("code", ["KmsAccessDeniedException", "KmsInvalidStateException"])
async def test_without_the_kms_key_the_state_is_read_alone(stubbed: Stubbed, code: str) -> None:
    for status in ("RUNNING", "SUCCEEDED", "FAILED"):
        stubbed.refused("describe_execution", code)
        stubbed.described(status)
    assert await stubbed.adapter.observe(REF) == Running()
    with pytest.raises(Unavailable, match="not readable"):
        await stubbed.adapter.observe(REF)
    failed = await stubbed.adapter.observe(REF)
    assert isinstance(failed, Failed)
    assert failed.error is None


@pytest.mark.case("F13")
async def test_an_expired_history_is_said_to_be_gone(stubbed: Stubbed) -> None:
    stubbed.refused("describe_execution", "ExecutionDoesNotExist")
    with pytest.raises(ExecutionNotFound):
        await stubbed.adapter.observe(REF)


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ExpiredTokenException", "KmsThrottlingException"]
)
async def test_an_outage_is_not_an_outcome(stubbed: Stubbed, code: str) -> None:
    stubbed.refused("describe_execution", code)
    with pytest.raises(Unavailable):
        await stubbed.adapter.observe(REF)


# --- start ---


async def test_a_start_is_running_under_its_own_name(stubbed: Stubbed) -> None:
    stubbed.once.add_response(
        "start_execution",
        {"executionArn": REF, "startDate": BEGAN},
        {"stateMachineArn": f"{MACHINE}:PROD", "name": KEY, "input": '{"ä":1}'},
    )
    payload = stubbed.adapter.prepare(MACHINE, {"ä": 1})
    assert await stubbed.adapter.start(f"{MACHINE}:PROD", payload, key=KEY) == Started(
        REF, Running()
    )


@pytest.mark.case("D3")
@pytest.mark.parametrize("text", ['{"a":1,"b":2}', '{ "b": 2, "a": 1 }'], ids=["bytes", "json"])
async def test_our_own_execution_is_adopted_as_it_ended(stubbed: Stubbed, text: str) -> None:
    stubbed.once.add_client_error("start_execution", "ExecutionAlreadyExists")
    stubbed.described("SUCCEEDED", input=text, output="1", stopDate=ENDED)
    start = await stubbed.adapter.start(MACHINE, b'{"a":1,"b":2}', key=KEY)
    assert start == Started(REF, Succeeded(1, ENDED))


@pytest.mark.case("D3", "D5")
@pytest.mark.parametrize("text", ['{"a":2}', '{"a":true}', "no json"])
async def test_another_input_under_our_name_is_a_clash(stubbed: Stubbed, text: str) -> None:
    stubbed.once.add_client_error("start_execution", "ExecutionAlreadyExists")
    stubbed.described("RUNNING", input=text)
    with pytest.raises(Rejected, match="same name") as raised:
        await stubbed.adapter.start(MACHINE, b'{"a":1}', key=KEY)
    assert raised.value.error == "ExecutionAlreadyExists"
    assert raised.value.clash


async def test_an_existing_execution_that_cannot_be_seen_leaves_the_start_open(
    stubbed: Stubbed,
) -> None:
    for code in ("ExecutionDoesNotExist", "AccessDeniedException"):
        stubbed.once.add_client_error("start_execution", "ExecutionAlreadyExists")
        stubbed.refused("describe_execution", code)
        with pytest.raises(StartUnknown):
            await stubbed.adapter.start(MACHINE, b"{}", key=KEY)


@pytest.mark.case("F5")
async def test_an_express_machine_is_told_apart_at_the_first_call(stubbed: Stubbed) -> None:
    stubbed.once.add_response("start_execution", {"executionArn": EXPRESS_REF, "startDate": BEGAN})
    with pytest.raises(Rejected, match="mode: inline"):
        await stubbed.adapter.start(MACHINE, b"{}", key=KEY)


@pytest.mark.case("F5")
async def test_an_express_execution_cannot_be_observed(stubbed: Stubbed) -> None:
    stubbed.refused("describe_execution", "InvalidArn")
    with pytest.raises(Rejected, match="mode: inline"):
        await stubbed.adapter.observe(ExecutionRef(EXPRESS_REF))


@pytest.mark.case("F3")
@pytest.mark.parametrize("key", ["", "client/abc:123", "🙂", "x" * 81])
async def test_a_name_that_no_execution_can_have_is_refused(stubbed: Stubbed, key: str) -> None:
    with pytest.raises(Rejected):
        await stubbed.adapter.start(MACHINE, b"{}", key=key)


# --- find ---


async def test_find_needs_no_kms_key(stubbed: Stubbed) -> None:
    stubbed.retried.add_response(
        "describe_execution",
        {
            "executionArn": REF,
            "stateMachineArn": MACHINE,
            "name": KEY,
            "status": "RUNNING",
            "startDate": BEGAN,
        },
        {"executionArn": REF, "includedData": "METADATA_ONLY"},
    )
    assert await stubbed.adapter.find(f"{MACHINE}:7", key=KEY, since=BEGAN) == [Found(REF, BEGAN)]


async def test_find_does_not_guess_where_it_cannot_see(stubbed: Stubbed) -> None:
    stubbed.refused("describe_execution", "AccessDeniedException")
    with pytest.raises(Unavailable):
        await stubbed.adapter.find(MACHINE, key=KEY, since=BEGAN)


# --- stop ---


async def test_a_stop_carries_its_reason(stubbed: Stubbed) -> None:
    stubbed.retried.add_response(
        "stop_execution",
        {"stopDate": ENDED},
        {"executionArn": REF, "error": "Cancelled", "cause": "client asked"},
    )
    await stubbed.adapter.stop(REF, "client asked")


async def test_without_the_kms_key_a_stop_has_no_reason(stubbed: Stubbed) -> None:
    stubbed.refused("stop_execution", "KmsAccessDeniedException")
    stubbed.retried.add_response("stop_execution", {"stopDate": ENDED}, {"executionArn": REF})
    await stubbed.adapter.stop(REF, "client asked")


async def test_stopping_what_is_gone_says_so(stubbed: Stubbed) -> None:
    stubbed.refused("stop_execution", "ExecutionDoesNotExist")
    with pytest.raises(ExecutionNotFound):
        await stubbed.adapter.stop(REF, "client asked")


@pytest.mark.case("F10")
async def test_a_stop_refused_because_it_has_ended_is_no_error(stubbed: Stubbed) -> None:
    stubbed.refused("stop_execution", "ValidationException")
    stubbed.described("SUCCEEDED", output="1", stopDate=ENDED)
    await stubbed.adapter.stop(REF, "client asked")


async def test_a_stop_refused_while_it_runs_is_an_error(stubbed: Stubbed) -> None:
    stubbed.refused("stop_execution", "ValidationException")
    stubbed.described("RUNNING")
    with pytest.raises(Rejected):
        await stubbed.adapter.stop(REF, "client asked")


# --- run ---


def _ran(stubbed: Stubbed, **keys: Any) -> None:
    answer = {
        "executionArn": EXPRESS_REF,
        "stateMachineArn": MACHINE,
        "name": KEY,
        "startDate": BEGAN,
        "stopDate": ENDED,
    }
    expected = {"stateMachineArn": MACHINE, "name": KEY, "input": "{}"}
    stubbed.inline.add_response("start_sync_execution", answer | keys, expected)


@pytest.mark.case("F5")
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"status": "SUCCEEDED", "output": "[1]"}, Succeeded([1], ENDED)),
        ({"status": "FAILED", "error": "E", "cause": "c"}, Failed("E", "c", ENDED)),
        ({"status": "TIMED_OUT"}, TimedOut("States.Timeout", None, ENDED)),
    ],
)
async def test_an_express_machine_runs_inline(
    stubbed: Stubbed, keys: dict[str, str], expected: object
) -> None:
    _ran(stubbed, **keys)
    assert await stubbed.adapter.run(MACHINE, b"{}", key=KEY) == expected


async def test_a_run_that_ends_in_a_new_way_is_unknown(stubbed: Stubbed) -> None:
    _ran(stubbed, status="SOMEHOW")
    with pytest.raises(StartUnknown):
        await stubbed.adapter.run(MACHINE, b"{}", key=KEY)


@pytest.mark.case("F5")
async def test_a_standard_machine_does_not_run_inline(stubbed: Stubbed) -> None:
    stubbed.inline.add_client_error("start_sync_execution", "StateMachineTypeNotSupported")
    with pytest.raises(Rejected, match="mode: standard"):
        await stubbed.adapter.run(MACHINE, b"{}", key=KEY)


@pytest.mark.case("D7")
def test_a_run_is_sent_once_and_waited_for_longer_than_it_may_take() -> None:
    client = Sdk(settings()).client(Lane.INLINE)
    config = client.meta.config
    assert config.read_timeout > 300
    assert config.retries["total_max_attempts"] == 1
    client.close()


# --- check ---


def _machine(stubbed: Stubbed, **keys: Any) -> None:
    answer = {
        "stateMachineArn": MACHINE,
        "name": "Settle",
        "definition": "{}",
        "roleArn": "arn:aws:iam::123456789012:role/r",
        "type": "STANDARD",
        "status": "ACTIVE",
        "creationDate": BEGAN,
    }
    stubbed.retried.add_response("describe_state_machine", answer | keys)


def _probed(stubbed: Stubbed, **codes: str) -> None:
    for method in ("describe_execution", "stop_execution", "get_execution_history"):
        stubbed.refused(method, codes.get(method, "ExecutionDoesNotExist"))


@pytest.mark.case("F5")
async def test_check_tells_an_express_machine_that_is_not_inline(stubbed: Stubbed) -> None:
    _machine(stubbed, type="EXPRESS")
    [problem] = await stubbed.adapter.check({MACHINE: False})
    assert "EXPRESS" in problem.message
    assert "mode: inline" in problem.action


async def test_check_is_content_with_an_express_machine_that_is_inline(stubbed: Stubbed) -> None:
    _machine(stubbed, type="EXPRESS")
    assert await stubbed.adapter.check({MACHINE: True}) == []


@pytest.mark.case("F5")
async def test_check_tells_a_standard_machine_that_is_inline(stubbed: Stubbed) -> None:
    _machine(stubbed)
    _probed(stubbed)
    [problem] = await stubbed.adapter.check({MACHINE: True})
    assert "mode: standard" in problem.action


async def test_check_names_the_actions_that_are_missing(stubbed: Stubbed) -> None:
    _machine(stubbed)
    _probed(stubbed, stop_execution="AccessDeniedException")
    [problem] = await stubbed.adapter.check({MACHINE: False})
    assert "states:StopExecution" in problem.message


async def test_check_tells_a_machine_that_is_being_deleted(stubbed: Stubbed) -> None:
    _machine(stubbed, status="DELETING")
    _probed(stubbed)
    [problem] = await stubbed.adapter.check({MACHINE: False})
    assert "deleted" in problem.message


async def test_check_tells_what_may_not_even_be_looked_at(stubbed: Stubbed) -> None:
    stubbed.refused("describe_state_machine", "AccessDeniedException")
    [problem] = await stubbed.adapter.check({MACHINE: False})
    assert "states:DescribeStateMachine" in problem.message


# --- narrate ---


def _event(number: int, kind: str, before: int = 0, **keys: Any) -> dict[str, Any]:
    moment = datetime(2026, 11, 30, 9, 0, number, tzinfo=UTC)
    return {"id": number, "type": kind, "previousEventId": before, "timestamp": moment} | keys


async def test_the_history_is_read_page_by_page_newest_first(stubbed: Stubbed) -> None:
    entered = {"stateEnteredEventDetails": {"name": "A"}}
    asked = {
        "executionArn": REF,
        "reverseOrder": True,
        "includeExecutionData": False,
        "maxResults": 1000,
    }
    stubbed.retried.add_response(
        "get_execution_history",
        {"events": [_event(2, "PassStateEntered", 1, **entered)], "nextToken": "t"},
        asked,
    )
    stubbed.retried.add_response(
        "get_execution_history",
        {"events": [_event(1, "ExecutionStarted")]},
        asked | {"nextToken": "t"},
    )
    narration = await stubbed.adapter.narrate(REF)
    assert narration.current == "A"
    assert narration.console_url is not None


# --- list ---


def item(name: str, status: str = "RUNNING", **keys: Any) -> dict[str, Any]:
    ref = f"arn:aws:states:eu-west-1:123456789012:execution:Settle:{name}"
    return {
        "executionArn": ref,
        "stateMachineArn": MACHINE,
        "name": name,
        "status": status,
        "startDate": BEGAN,
        **keys,
    }


@pytest.mark.parametrize("qualifier", ["", ":7", ":live"])
async def test_all_executions_of_a_machine_are_listed_page_by_page(
    stubbed: Stubbed, qualifier: str
) -> None:
    expected = {"stateMachineArn": MACHINE, "maxResults": 1000}
    first = [item("wb-a"), item("by hand"), item("wb-b", "ABORTED", stopDate=ENDED)]
    stubbed.retried.add_response(
        "list_executions", {"executions": first, "nextToken": "n"}, expected
    )
    stubbed.retried.add_response(
        "list_executions", {"executions": []}, expected | {"nextToken": "n"}
    )

    async def page(cursor: str | None) -> Page:
        return await stubbed.adapter.list_executions(
            MACHINE + qualifier, prefix="wb-", since=BEGAN, cursor=cursor
        )

    found = await page(None)
    assert [(one.key, one.ended) for one in found.executions] == [("wb-a", False), ("wb-b", True)]
    assert await page(found.cursor) == Page(())


async def test_a_list_ends_where_nothing_younger_can_follow(stubbed: Stubbed) -> None:
    since = BEGAN + timedelta(minutes=1)
    young = item("wb-young", startDate=since)
    long_ago = item("wb-old", "SUCCEEDED", stopDate=ENDED)
    older = item("wb-older", "SUCCEEDED", startDate=BEGAN, stopDate=BEGAN)
    redriven = item("wb-redriven", redriveDate=ENDED, redriveCount=1)
    for last, goes_on in ((long_ago, True), (redriven, True), (older, False)):
        stubbed.retried.add_response(
            "list_executions", {"executions": [young, last], "nextToken": "n"}
        )
        page = await stubbed.adapter.list_executions(MACHINE, prefix="wb-", since=since)
        assert [one.key for one in page.executions] == ["wb-young"]
        assert (page.cursor is not None) is goes_on


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("AccessDeniedException", "states:ListExecutions is not allowed"),
        ("StateMachineTypeNotSupported", "of type EXPRESS"),
        ("StateMachineDoesNotExist", "does not exist"),
        ("ThrottlingException", "fewer calls"),
    ],
)
async def test_what_cannot_be_listed_is_told(stubbed: Stubbed, code: str, says: str) -> None:
    stubbed.refused("list_executions", code)
    with pytest.raises(AdapterError, match=says):
        await stubbed.adapter.list_executions(MACHINE, prefix="wb-", since=BEGAN)
