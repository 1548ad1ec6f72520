"""What can be judged without a network: settings, ARNs, names, sizes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from workflow_bridge.adapter import Adapter, ExecutionRef, Narrates, Rejected, RunsInline
from workflow_bridge_adapters.step_functions import StepFunctions, StepFunctionsSettings
from workflow_bridge_adapters.step_functions.arns import StateMachineArn, console_url

from .conftest import settings

MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:Settle"


def test_it_implements_the_ports() -> None:
    adapter: Adapter = StepFunctions(settings())
    assert isinstance(adapter, RunsInline)
    assert isinstance(adapter, Narrates)


# --- settings ---


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("5s", timedelta(seconds=5)),
        ("1.5 s", timedelta(seconds=1.5)),
    ],
)
def test_durations_have_units(text: str, duration: timedelta) -> None:
    assert settings(read_timeout=text).read_timeout == duration


@pytest.mark.parametrize(
    "keys",
    [
        {"read_timeout": 5},
        {"read_timeout": "5"},
        {"read_timeout": "0s"},
        {"read_timeout": "-1s"},
        {"start_timeout": "13s"},
        {"region": "Ireland"},
        {"role_arn": "arn:aws:iam::123456789012:user/me"},
        {"endpoint_url": "localhost:4566"},
        {"endpoint_url": "http://user:secret@localhost"},
        {"max_connections": 0},
        {"regoin": "eu-west-1"},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**keys)


def test_the_region_comes_from_the_environment_where_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValidationError, match="set region"):
        StepFunctionsSettings()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "cn-north-1")
    assert StepFunctionsSettings().region == "cn-north-1"


def test_the_schema_of_the_settings_can_be_printed() -> None:
    schema = StepFunctionsSettings.model_json_schema()
    assert schema["additionalProperties"] is False


def test_the_fingerprint_changes_with_where_it_points() -> None:
    role = "arn:aws:iam::210987654321:role/bridge"
    variants: list[dict[str, Any]] = [
        {},
        {"region": "eu-central-1"},
        {"role_arn": role},
        {"profile": "other"},
        {"endpoint_url": "http://127.0.0.1:5000"},
    ]
    fingerprints = {StepFunctions(settings(**keys)).fingerprint for keys in variants}
    assert len(fingerprints) == len(variants)
    same = StepFunctions(settings(read_timeout="5s", role_session_name="other")).fingerprint
    assert same == StepFunctions(settings()).fingerprint


# --- ARNs ---


@pytest.mark.case("F4", "F14")
@pytest.mark.parametrize("qualifier", ["", ":7", ":PROD"], ids=["plain", "version", "alias"])
@pytest.mark.parametrize(
    ("partition", "region"),
    [
        ("aws", "eu-west-1"),
        ("aws-cn", "cn-north-1"),
        ("aws-us-gov", "us-gov-west-1"),
        ("aws-iso-b", "us-isob-east-1"),
        ("aws-eusc", "eusc-de-east-1"),
    ],
)
def test_the_execution_follows_from_the_machine(
    partition: str, region: str, qualifier: str
) -> None:
    machine = f"arn:{partition}:states:{region}:123456789012:stateMachine:Settle{qualifier}"
    StepFunctions(settings(region=region)).check_workflow(machine, inline=False)
    assert StateMachineArn.parse(machine).execution("wb-1") == (
        f"arn:{partition}:states:{region}:123456789012:execution:Settle:wb-1"
    )


@pytest.mark.case("F4")
@pytest.mark.parametrize(
    ("workflow", "reason"),
    [
        ("Settle", "not the ARN"),
        ("arn:aws:lambda:eu-west-1:123456789012:function:f", "not the ARN"),
        ("arn:aws:states:eu-west-1:1234:stateMachine:Settle", "not the ARN"),
        ("arn:aws:states:eu-west-1:123456789012:execution:Settle:e", "one execution"),
        ("arn:aws:states:eu-west-1:123456789012:express:Settle:e:f", "one execution"),
        ("arn:aws:states:eu-west-1:123456789012:activity:Ask", "activity"),
        ("arn:aws:states:eu-west-1:123456789012:mapRun:Settle/Each:u", "map run"),
        ("arn:aws:states:eu-west-1:123456789012:stateMachine:Settle/Each", "leave /LABEL out"),
        ("arn:aws:states:eu-west-1:123456789012:stateMachine:a b", "not a name"),
        ("arn:aws:states:eu-west-1:123456789012:stateMachine:Settle:1:2", "not a name"),
        ("arn:aws:states:eu-west-1:123456789012:unheardOf:x", "unheardOf"),
        ("arn:aws:states:us-east-1:123456789012:stateMachine:Settle", "us-east-1"),
    ],
)
def test_what_is_no_state_machine_is_told_when_configured(workflow: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        StepFunctions(settings()).check_workflow(workflow, inline=False)


@pytest.mark.case("F4")
@pytest.mark.anyio
async def test_a_start_of_what_is_no_state_machine_is_rejected() -> None:
    with pytest.raises(Rejected) as raised:
        await StepFunctions(settings()).start("Settle", b"{}", key="wb-1")
    assert raised.value.error == "InvalidArn"


@pytest.mark.parametrize(
    ("partition", "region", "host"),
    [
        ("aws", "eu-west-1", "https://eu-west-1.console.aws.amazon.com/"),
        ("aws-cn", "cn-north-1", "https://console.amazonaws.cn/"),
        ("aws-us-gov", "us-gov-west-1", "https://console.amazonaws-us-gov.com/"),
        ("aws-iso", "us-iso-east-1", None),
    ],
)
def test_the_console_is_that_of_the_partition(
    partition: str, region: str, host: str | None
) -> None:
    url = console_url(
        ExecutionRef(f"arn:{partition}:states:{region}:123456789012:execution:Settle:wb-1")
    )
    if host is None:
        assert url is None
    else:
        assert url is not None
        assert url.startswith(host)
        assert url.endswith("execution:Settle:wb-1")


def test_an_emulator_has_no_console() -> None:
    ref = ExecutionRef("arn:aws:states:eu-west-1:123456789012:execution:Settle:wb-1")
    assert StepFunctions(settings()).console_url(ref) is not None
    assert StepFunctions(settings(endpoint_url="http://127.0.0.1:1")).console_url(ref) is None


# --- prepare ---


@pytest.mark.case("R13")
def test_arguments_keep_their_order_and_their_characters() -> None:
    payload = StepFunctions(settings()).prepare(MACHINE, {"z": "ä", "a": [1, 1.0, None]})
    assert payload == '{"z":"ä","a":[1,1.0,null]}'.encode()


@pytest.mark.case("F6")
def test_the_limit_counts_utf8_bytes_and_names_both_sizes() -> None:
    adapter = StepFunctions(settings())
    assert len(adapter.prepare(MACHINE, "ä" * 131_071)) == 262_144
    with pytest.raises(Rejected, match=r"262,145 .* 262,144") as raised:
        adapter.prepare(MACHINE, "ä" * 131_071 + "x")
    assert raised.value.error == "States.DataLimitExceeded"


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "arguments", [_nested(100_000), 10**5000, {"a": {1, 2}}], ids=["deep", "long number", "set"]
)
def test_what_cannot_be_json_is_rejected(arguments: Any) -> None:
    with pytest.raises(Rejected):
        StepFunctions(settings()).prepare(MACHINE, arguments)
