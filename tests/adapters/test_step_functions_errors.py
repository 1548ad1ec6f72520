"""Every error and state that the vendor's own model declares has a meaning here."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any, get_args

import botocore.exceptions as sdk
import pytest
from botocore.retries.standard import ThrottledRetryableChecker
from botocore.session import Session

from workflow_bridge.adapter import (
    AdapterError,
    Ended,
    ExecutionNotFound,
    Rejected,
    StartUnknown,
    Unavailable,
)
from workflow_bridge_adapters.step_functions.errors import (
    COMMON,
    MEANINGS,
    Call,
    Denied,
    Meaning,
    NameTaken,
    NotSent,
    PayloadLocked,
    translate,
)
from workflow_bridge_adapters.step_functions.outcomes import KNOWN_STATUSES, execution_from

MODEL: Any = Session().get_service_model("stepfunctions")
SDK_THROTTLING = sorted(vars(ThrottledRetryableChecker)["_THROTTLED_ERROR_CODES"])
SECRET = "arn:aws:states:eu-west-1:123456789012:stateMachine:Secret"


def declared() -> Iterator[tuple[Call, str]]:
    for call in Call:
        for shape in MODEL.operation_model(call.value).error_shapes:
            yield call, shape.error_code


def answered(call: Call, code: str, status: int = 400, retry_after: str = "") -> AdapterError:
    response: Any = {
        "Error": {"Code": code, "Message": SECRET},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": retry_after}},
    }
    return translate(sdk.ClientError(response, call.value), call, sent=True)


@pytest.mark.parametrize(("call", "code"), list(declared()))
def test_every_declared_error_has_a_meaning_and_a_text_of_ours(call: Call, code: str) -> None:
    assert code in MEANINGS[call]
    error = answered(call, code)
    assert str(error)
    assert "arn:" not in str(error)


@pytest.mark.parametrize(("call", "code"), [(c, code) for c in Call for code in MEANINGS[c]])
def test_every_entry_makes_an_error(call: Call, code: str) -> None:
    assert isinstance(answered(call, code), AdapterError)


@pytest.mark.parametrize("code", SDK_THROTTLING)
def test_every_code_that_the_sdk_takes_for_throttling_is_throttling(code: str) -> None:
    assert COMMON[code] is Meaning.THROTTLED


@pytest.mark.parametrize("name", ["ExecutionStatus", "SyncExecutionStatus"])
def test_every_declared_status_is_known(name: str, caplog: pytest.LogCaptureFixture) -> None:
    for status in MODEL.shape_for(name).enum:
        assert status in KNOWN_STATUSES
        execution_from({"status": status})
    assert not caplog.records


def test_every_status_of_a_synchronous_run_is_an_end() -> None:
    for status in MODEL.shape_for("SyncExecutionStatus").enum:
        assert isinstance(execution_from({"status": status}), get_args(Ended))


@pytest.mark.case("D5")
def test_a_taken_name_is_not_tried_again() -> None:
    assert isinstance(answered(Call.START, "ExecutionAlreadyExists"), NameTaken)


@pytest.mark.case("F1")
@pytest.mark.parametrize("call", Call)
def test_throttling_is_told_with_what_it_asks_for(call: Call) -> None:
    error = answered(call, "ThrottlingException", retry_after="7")
    assert isinstance(error, Unavailable)
    assert error.throttled
    assert error.retry_after is not None
    assert error.retry_after.total_seconds() == 7


@pytest.mark.case("F11")
@pytest.mark.parametrize("call", [Call.START, Call.RUN])
def test_a_denied_start_is_rejected_and_names_the_action(call: Call) -> None:
    error = answered(call, "AccessDeniedException")
    assert isinstance(error, Rejected)
    assert f"states:{call.value}" in str(error)
    assert "arn:" not in str(error)


@pytest.mark.parametrize("call", [Call.OBSERVE, Call.STOP, Call.NARRATE, Call.CHECK])
def test_a_denied_look_is_an_outage_and_no_outcome(call: Call) -> None:
    error = answered(call, "AccessDeniedException")
    assert isinstance(error, Denied)
    assert f"states:{call.value}" in str(error)


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
def test_bad_credentials_are_an_outage(call: Call, code: str) -> None:
    assert type(answered(call, code)) is Unavailable


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_server_error_leaves_a_start_open(call: Call, status: int) -> None:
    error = answered(call, "InternalFailure", status)
    assert isinstance(error, StartUnknown if call.starts else Unavailable)


def test_a_refusal_that_is_new_here_started_nothing() -> None:
    assert isinstance(answered(Call.START, "SomethingNew"), Unavailable)
    error = answered(Call.START, "Whatever", 429)
    assert isinstance(error, Unavailable)
    assert error.throttled


def test_special_cases() -> None:
    assert isinstance(answered(Call.OBSERVE, "ExecutionDoesNotExist"), ExecutionNotFound)
    assert isinstance(answered(Call.OBSERVE, "KmsAccessDeniedException"), PayloadLocked)
    assert isinstance(answered(Call.START, "KmsAccessDeniedException"), Rejected)
    limit = answered(Call.START, "ExecutionLimitExceeded")
    assert isinstance(limit, Unavailable)
    assert not limit.throttled


NEVER_SENT = [
    sdk.NoCredentialsError(),
    sdk.PartialCredentialsError(provider="env", cred_var="x"),
    sdk.CredentialRetrievalError(provider="role", error_msg=SECRET),
    sdk.ProfileNotFound(profile=SECRET),
    sdk.EndpointConnectionError(endpoint_url=SECRET, error="refused"),
    sdk.ConnectTimeoutError(endpoint_url=SECRET, error="slow"),
    sdk.ProxyConnectionError(proxy_url=SECRET, error="refused"),
    sdk.SSLError(endpoint_url=SECRET, error=ssl.SSLCertVerificationError("untrusted")),
    NotSent(),
]
LOST = [
    sdk.ReadTimeoutError(endpoint_url=SECRET, error="slow"),
    sdk.ConnectionClosedError(endpoint_url=SECRET, error="reset", request=None),
    sdk.HTTPClientError(error="?"),
    sdk.SSLError(endpoint_url=SECRET, error=ssl.SSLError("bad record")),
    ValueError("an answer that is no JSON"),
]


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("exc", NEVER_SENT, ids=lambda exc: type(exc).__name__)
def test_what_was_never_sent_is_unavailable(call: Call, exc: Exception) -> None:
    error = translate(exc, call, sent=True)
    assert type(error) is Unavailable
    assert SECRET not in str(error)


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("exc", LOST, ids=lambda exc: type(exc).__name__)
def test_a_lost_answer_leaves_a_start_open(call: Call, exc: Exception) -> None:
    error = translate(exc, call, sent=True)
    assert type(error) is (StartUnknown if call.starts else Unavailable)
    assert type(translate(exc, call, sent=False)) is Unavailable
    assert SECRET not in str(error)


def test_a_role_that_cannot_be_assumed_is_an_outage() -> None:
    denied = sdk.ClientError({"Error": {"Code": "AccessDenied", "Message": SECRET}}, "AssumeRole")
    error = translate(denied, Call.START, sent=False)
    assert type(error) is Unavailable
    assert "sts:AssumeRole" in str(error)
