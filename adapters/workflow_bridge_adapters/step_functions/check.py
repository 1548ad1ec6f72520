"""What `check` finds out about state machines without starting anything."""

from __future__ import annotations

from collections.abc import Mapping

from workflow_bridge.adapter import (
    AdapterError,
    ExecutionNotFound,
    Problem,
    Rejected,
    Unavailable,
)
from workflow_bridge_adapters.step_functions.arns import StateMachineArn
from workflow_bridge_adapters.step_functions.calls import Calls, Response
from workflow_bridge_adapters.step_functions.errors import Call, Denied, PayloadLocked

_PROBE = "wb-permission-check"
"""The name of an execution that never exists: asking for it shows only whether one may ask."""

_NEEDED_FOR = {
    Call.OBSERVE: "executions cannot be observed",
    Call.STOP: "executions cannot be stopped",
    Call.NARRATE: "steps cannot be shown as progress",
}


async def problems_of(calls: Calls, workflows: Mapping[str, bool]) -> list[Problem]:
    """Return the problems of all workflows; of an engine out of reach, that alone."""
    problems: list[Problem] = []
    for workflow, inline in workflows.items():
        try:
            problems += await _problems_of_one(calls, workflow, inline)
        except Denied as exc:
            problems.append(Problem(workflow, str(exc), "Allow it in the IAM policy."))
        except Rejected as exc:
            problems.append(Problem(workflow, str(exc), "Correct workflow in the configuration."))
        except AdapterError as exc:
            problems.append(
                Problem(workflow, str(exc), "Check network, region, credentials and endpoint_url.")
            )
            if isinstance(exc, Unavailable) and not exc.throttled:
                break
    return problems


async def _problems_of_one(calls: Calls, workflow: str, inline: bool) -> list[Problem]:
    try:
        arn = StateMachineArn.parse(workflow)
    except ValueError as exc:
        return [Problem(workflow, str(exc), "Correct workflow in the configuration.")]
    machine = await _described(calls, workflow)
    problems = _type_problems(workflow, machine["type"], inline)
    if machine.get("status", "ACTIVE") != "ACTIVE":
        problems.append(
            Problem(workflow, "The state machine is being deleted.", "Name another one.")
        )
    if machine["type"] == "STANDARD":
        for call, consequence in _NEEDED_FOR.items():
            if not await _allowed(calls, call, arn):
                message = f"states:{call} is not allowed: {consequence}."
                problems.append(Problem(workflow, message, "Allow it in the IAM policy."))
    return problems


async def _described(calls: Calls, workflow: str) -> Response:
    # Without the definition no KMS key is needed.
    return await calls(Call.CHECK, {"stateMachineArn": workflow, "includedData": "METADATA_ONLY"})


def _type_problems(workflow: str, kind: str, inline: bool) -> list[Problem]:
    if kind == "EXPRESS" and not inline:
        return [
            Problem(
                workflow,
                "The state machine is of type EXPRESS: it can be neither observed nor stopped.",
                "Set mode: inline.",
            )
        ]
    if kind == "STANDARD" and inline:
        return [
            Problem(
                workflow,
                "The state machine is of type STANDARD and cannot run inline.",
                "Set mode: standard.",
            )
        ]
    return []


async def _allowed(calls: Calls, call: Call, arn: StateMachineArn) -> bool:
    try:
        await calls(call, {"executionArn": arn.execution(_PROBE)})
    except Denied:
        return False
    except (ExecutionNotFound, PayloadLocked):
        pass
    return True
