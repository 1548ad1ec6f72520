"""The ARNs of Step Functions: which name what, and how an execution's follows from its machine's.

Shapes after the API reference of Step Functions (2016-11-23); the partition is never assumed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from workflow_bridge.adapter import ExecutionRef

_ARN = re.compile(
    r"arn:(?P<partition>[a-z0-9-]+):states:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):"
    r"(?P<kind>[A-Za-z]+):(?P<rest>.+)"
)
_NAME = r"[^\s<>{}\[\]?*\"#%\\^|~`$&,;:/]{1,80}"
_MACHINE = re.compile(rf"(?P<name>{_NAME})(?::(?P<qualifier>[A-Za-z0-9_.-]{{1,80}}))?")
_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")

_CONSOLES = {
    "aws": "https://{region}.console.aws.amazon.com",
    "aws-cn": "https://console.amazonaws.cn",
    "aws-us-gov": "https://console.amazonaws-us-gov.com",
}

_RIGHT_FORM = (
    "expected arn:PARTITION:states:REGION:ACCOUNT:stateMachine:NAME, "
    "optionally followed by :VERSION or :ALIAS"
)
_INSTEAD = {
    "execution": "this names one execution, not the state machine that makes them",
    "express": "this names one execution, not the state machine that makes them",
    "activity": "an activity cannot be started; name the state machine that uses it",
    "mapRun": "a map run cannot be started; name the state machine that it belongs to",
}


@dataclass(frozen=True, slots=True)
class StateMachineArn:
    """A state machine, or with a qualifier one of its versions or aliases."""

    partition: str
    region: str
    account: str
    name: str
    qualifier: str | None

    @classmethod
    def parse(cls, text: str) -> StateMachineArn:
        """Raises `ValueError` that says what is wrong and which form is right."""
        arn = _ARN.fullmatch(text)
        if arn is None:
            raise ValueError(f"not the ARN of a state machine: {_RIGHT_FORM}")
        if arn["kind"] != "stateMachine":
            reason = _INSTEAD.get(arn["kind"], f"{arn['kind']!r} is not a state machine")
            raise ValueError(f"{reason}: {_RIGHT_FORM}")
        if "/" in arn["rest"]:
            raise ValueError(
                "NAME/LABEL is a Distributed Map inside a state machine and cannot be started "
                f"by itself; leave /LABEL out: {_RIGHT_FORM}"
            )
        machine = _MACHINE.fullmatch(arn["rest"])
        if machine is None:
            raise ValueError(f"not a name that a state machine can have: {_RIGHT_FORM}")
        return cls(
            arn["partition"], arn["region"], arn["account"], machine["name"], machine["qualifier"]
        )

    @property
    def plain(self) -> str:
        """The state machine itself, whichever of its versions or aliases this is."""
        return f"arn:{self.partition}:states:{self.region}:{self.account}:stateMachine:{self.name}"

    def execution(self, key: str) -> ExecutionRef:
        """Return the ARN of the STANDARD execution called ``key``; no qualifier is part of it."""
        return ExecutionRef(
            f"arn:{self.partition}:states:{self.region}:{self.account}:execution:{self.name}:{key}"
        )


def is_key(text: str) -> bool:
    """Tell whether ``text`` may name an execution everywhere, CloudWatch Logs included."""
    return _KEY.fullmatch(text) is not None


def is_express(ref: ExecutionRef) -> bool:
    """Tell whether ``ref`` is of an EXPRESS execution, which cannot be described or stopped."""
    arn = _ARN.fullmatch(ref)
    return arn is not None and arn["kind"] == "express"


def console_url(ref: ExecutionRef) -> str | None:
    """Return the console's page of an execution, None in a partition whose console is unknown."""
    arn = _ARN.fullmatch(ref)
    if arn is None or arn["partition"] not in _CONSOLES:
        return None
    region = arn["region"]
    console = _CONSOLES[arn["partition"]].format(region=region)
    page = quote(ref, safe=":")
    return f"{console}/states/home?region={region}#/v2/executions/details/{page}"
