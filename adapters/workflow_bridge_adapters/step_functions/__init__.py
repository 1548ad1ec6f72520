"""AWS Step Functions: STANDARD executions as tasks, EXPRESS ones inline.

An execution's name is the task's key, so its ARN is known before it is started, a second start is
the first one, and finding it is describing it. The SDK is loaded at the first call.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from workflow_bridge.adapter import (
    AdapterError,
    Ended,
    Execution,
    ExecutionNotFound,
    ExecutionRef,
    Found,
    Json,
    Narration,
    Page,
    Problem,
    Queued,
    Rejected,
    Running,
    Started,
    StartUnknown,
)
from workflow_bridge_adapters.step_functions import arns
from workflow_bridge_adapters.step_functions.arns import StateMachineArn
from workflow_bridge_adapters.step_functions.calls import RUN_TIMEOUT, Calls
from workflow_bridge_adapters.step_functions.check import problems_of
from workflow_bridge_adapters.step_functions.errors import Call, NameTaken, PayloadLocked
from workflow_bridge_adapters.step_functions.history import Event, steps_from
from workflow_bridge_adapters.step_functions.listing import page_from
from workflow_bridge_adapters.step_functions.outcomes import execution_from, same_input, utc
from workflow_bridge_adapters.step_functions.settings import StepFunctionsSettings

if TYPE_CHECKING:
    from workflow_bridge_adapters.step_functions.sdk import Sdk

__all__ = ["StepFunctions", "StepFunctionsSettings"]

MAX_INPUT_BYTES = 262_144
_MAX_CAUSE = 32_768
_HISTORY_PAGES = 3
_HISTORY_PAGE = 1000
_LIST_PAGE = 1000

_log = logging.getLogger(__name__)


class StepFunctions:
    """Implements `Adapter`, `RunsInline`, `Narrates` and `Lists` for one account and region."""

    Settings = StepFunctionsSettings

    start_is_idempotent = True
    run_timeout: timedelta = RUN_TIMEOUT
    pages_per_second = 1.0
    """The account has 2 to 5, by region, for all who list executions in it."""

    def __init__(self, settings: StepFunctionsSettings, *, sdk: Sdk | None = None) -> None:
        self._settings = settings
        self._calls = Calls(settings, sdk)
        self.start_timeout: timedelta = settings.start_timeout
        self.fingerprint: str = _fingerprint(settings)

    def check_workflow(self, workflow: str, *, inline: bool) -> None:  # noqa: ARG002 - same form
        """Raise `ValueError` unless it is a state machine, version or alias of this region."""
        region = StateMachineArn.parse(workflow).region
        if region != self._settings.region:
            raise ValueError(
                f"the state machine is in {region}, its backend in {self._settings.region}"
            )

    def prepare(self, workflow: str, arguments: Json) -> bytes:  # noqa: ARG002 - one limit for all
        """Return the arguments as compact JSON, as sent and in their order."""
        try:
            text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            payload = text.encode()
        except UnicodeEncodeError as exc:
            raise _bad_input("The arguments hold half a surrogate pair, which is no text.") from exc
        except RecursionError as exc:
            raise _bad_input("The arguments are nested too deeply.") from exc
        except (ValueError, TypeError) as exc:
            raise _bad_input("The arguments hold a value that JSON cannot express.") from exc
        if len(payload) > MAX_INPUT_BYTES:
            raise Rejected(
                f"The arguments are {len(payload):,} bytes of JSON; "
                f"Step Functions accepts at most {MAX_INPUT_BYTES:,}.",
                error="States.DataLimitExceeded",
            )
        return payload

    async def start(self, workflow: str, payload: bytes, *, key: str) -> Started:
        """Start a STANDARD execution called ``key``, or adopt the one that is ours already."""
        computed = _machine(workflow).execution(_name(key))
        try:
            response = await self._calls(Call.START, _request(workflow, payload, key))
        except NameTaken as taken:
            return await self._adopt(computed, payload, taken)
        ref = ExecutionRef(response["executionArn"])
        if arns.is_express(ref):
            _log.error("express_started_without_control", extra={"key": key})
            raise Rejected(
                "The state machine is of type EXPRESS: set mode: inline. It has been started this "
                "once, but can be neither observed nor stopped.",
                error="StateMachineTypeNotSupported",
            )
        return Started(ref, Running())

    async def find(self, workflow: str, *, key: str, since: datetime) -> list[Found]:  # noqa: ARG002
        """Describe the execution that ``key`` would have; there is at most one."""
        ref = _machine(workflow).execution(_name(key))
        request = {"executionArn": ref, "includedData": "METADATA_ONLY"}
        try:
            response = await self._calls(Call.OBSERVE, request)
        except ExecutionNotFound:
            return []
        created_at = utc(response["startDate"])
        if created_at is None or response["name"] != key:
            return []
        return [Found(ref, created_at)]

    async def observe(self, ref: ExecutionRef) -> Execution:
        """Describe the execution; without its payload where its KMS key cannot be used."""
        execution, _ = await self._describe(ref)
        return execution

    async def stop(self, ref: ExecutionRef, reason: str) -> None:
        """Ask for the stop. Whether it took effect, only `observe` can tell."""
        try:
            await self._stop(ref, reason)
        except Rejected:
            if isinstance(await self.observe(ref), Queued | Running):
                raise

    async def run(self, workflow: str, payload: bytes, *, key: str) -> Ended:
        """Run an EXPRESS state machine to its end; sent once."""
        _machine(workflow)
        response = await self._calls(Call.RUN, _request(workflow, payload, _name(key)))
        execution = execution_from(response)
        if isinstance(execution, Queued | Running):
            raise StartUnknown("The run ended in a way that is not known here.")
        return execution

    async def narrate(self, ref: ExecutionRef) -> Narration:
        """Return the latest steps: those in the newest three thousand events."""
        events: list[Event] = []
        # Newest first, so that the step it is in is among them however long the history is.
        request: dict[str, object] = {
            "executionArn": ref,
            "reverseOrder": True,
            "includeExecutionData": False,
            "maxResults": _HISTORY_PAGE,
        }
        for _ in range(_HISTORY_PAGES):
            page = await self._calls(Call.NARRATE, request)
            events += page["events"]
            if not page.get("nextToken"):
                break
            request["nextToken"] = page["nextToken"]
        return Narration(steps_from(events), self.console_url(ref))

    def console_url(self, ref: ExecutionRef) -> str | None:
        """Return the page in the AWS console; an emulator has none."""
        return None if self._settings.endpoint_url else arns.console_url(ref)

    async def list_executions(
        self, workflow: str, *, prefix: str, since: datetime, cursor: str | None = None
    ) -> Page:
        """List those of the state machine itself, whichever version or alias started them."""
        request: dict[str, object] = {
            "stateMachineArn": _machine(workflow).plain,
            "maxResults": _LIST_PAGE,
        }
        if cursor is not None:
            request["nextToken"] = cursor
        return page_from(await self._calls(Call.LIST, request), prefix=prefix, since=since)

    async def check(self, workflows: Mapping[str, bool]) -> list[Problem]:
        """Look at every state machine, and try the permissions that can be tried harmlessly."""
        return await problems_of(self._calls, workflows)

    async def aclose(self) -> None:
        """Close the connections; requests still on their way are not waited for."""
        self._calls.close()

    async def _describe(self, ref: ExecutionRef) -> tuple[Execution, str | None]:
        """Return the execution and its input, if that can be read."""
        request = {"executionArn": ref}
        try:
            response = await self._calls(Call.OBSERVE, request)
        except PayloadLocked:
            response = await self._calls(Call.OBSERVE, request | {"includedData": "METADATA_ONLY"})
            return execution_from(response, locked=True), None
        return execution_from(response), response.get("input")

    async def _adopt(self, ref: ExecutionRef, payload: bytes, taken: NameTaken) -> Started:
        """The key is ours alone: what carries it was started by an earlier try, unless it differs.

        The engine answers so for an execution that has ended in the meantime.
        """
        try:
            execution, text = await self._describe(ref)
        except AdapterError as exc:
            raise StartUnknown("The execution exists already but cannot be looked at.") from exc
        if not same_input(text, payload):
            _log.error("execution_name_clash", extra={"key": ref.rpartition(":")[2]})
            raise taken
        return Started(ref, execution)

    async def _stop(self, ref: ExecutionRef, reason: str) -> None:
        said = {"error": "Cancelled", "cause": reason[:_MAX_CAUSE]}
        try:
            await self._calls(Call.STOP, {"executionArn": ref, **said})
        except PayloadLocked:
            # Only the reason is encrypted: without one the key is not needed.
            await self._calls(Call.STOP, {"executionArn": ref})


def _fingerprint(settings: StepFunctionsSettings) -> str:
    account = (
        settings.role_arn.split(":")[4] if settings.role_arn else settings.profile or "default"
    )
    return f"step-functions:{settings.region}:{account}:{settings.endpoint_host or 'aws'}"


def _request(workflow: str, payload: bytes, key: str) -> dict[str, object]:
    return {"stateMachineArn": workflow, "name": key, "input": payload.decode()}


def _machine(workflow: str) -> StateMachineArn:
    try:
        return StateMachineArn.parse(workflow)
    except ValueError as exc:
        raise Rejected(f"Wrong workflow: {exc}.", error="InvalidArn") from exc


def _name(key: str) -> str:
    if not arns.is_key(key):
        raise Rejected(
            "An execution's name is 1 to 80 of the characters A-Z a-z 0-9 _ -.", error="InvalidName"
        )
    return key


def _bad_input(message: str) -> Rejected:
    return Rejected(message, error="InvalidExecutionInput")
