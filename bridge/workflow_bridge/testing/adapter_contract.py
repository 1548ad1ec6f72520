"""The promises of `workflow_bridge.adapter.Adapter`, as tests to inherit.

A plug-in's whole proof is a fixture and a class::

    class TestMine(AdapterContract):
        @pytest.fixture
        async def subject(self) -> AsyncIterator[Subject]:
            adapter = Mine(...)
            yield Subject(adapter=adapter, echo="echo", ...)
            await adapter.aclose()

Put ``pytest.register_assert_rewrite("workflow_bridge.testing.adapter_contract")`` into
``conftest.py`` for readable failures.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import anyio
import pytest

from workflow_bridge.adapter import (
    Aborted,
    Adapter,
    AdapterError,
    Ended,
    ExecutionNotFound,
    ExecutionRef,
    Failed,
    Json,
    Listed,
    Lists,
    Narrates,
    Queued,
    Rejected,
    Running,
    Started,
    Succeeded,
    Unavailable,
)

ARGUMENTS: dict[str, Json] = {
    "empty": {},
    "nested": {"order": {"lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": [[], {}]}]}},
    "order of keys": {"z": 1, "a": 2, "m": 3},
    "text": {"text": 'äöü 漢字 🙂 "quoted" back\\slash \n\t </script> ${x} $.y'},
    "numbers": {"zero": 0, "minus": -1, "big": 2**53, "half": 0.5, "small": 1e-7},
    "constants": {"yes": True, "no": False, "nothing": None, "blank": "", "list": [None, 0, ""]},
}

_POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An adapter to prove, connected to an engine that has these workflows."""

    adapter: Adapter
    echo: str
    """Succeeds soon; its output is its input."""
    failing: str
    """Fails soon, with ``error`` and ``cause``."""
    error: str
    cause: str
    long: str
    """Runs until it is stopped."""
    absent_ref: str
    """A well-formed ref of an execution that never was."""
    missing: str | None = None
    """A well-formed name of a workflow that does not exist."""
    impossible: str | None = None
    """What cannot be the name of a workflow."""
    unreachable: Adapter | None = None
    """The same kind of adapter, configured for an address where nobody answers."""
    patience: timedelta = timedelta(seconds=30)
    """How long anything may take that the engine does by itself."""


def new_key() -> str:
    """Return a key as the bridge makes them."""
    return f"wb-{uuid4().hex}"


async def started(subject: Subject, workflow: str, arguments: Json = None) -> Started:
    """Start a workflow under a new key."""
    payload = subject.adapter.prepare(workflow, {} if arguments is None else arguments)
    return await subject.adapter.start(workflow, payload, key=new_key())


async def ended(subject: Subject, ref: ExecutionRef) -> Ended:
    """Observe until the execution has ended."""
    with anyio.fail_after(subject.patience.total_seconds()):
        while True:
            execution = await subject.adapter.observe(ref)
            if not isinstance(execution, Queued | Running):
                return execution
            await anyio.sleep(_POLL_SECONDS)


def _listing(adapter: Adapter) -> Lists:
    if not isinstance(adapter, Lists):
        pytest.skip("it does not list")
    assert adapter.pages_per_second > 0
    return adapter


async def _all(adapter: Lists, workflow: str, prefix: str, since: datetime) -> list[Listed]:
    found: list[Listed] = []
    cursor: str | None = None
    while True:
        page = await adapter.list_executions(workflow, prefix=prefix, since=since, cursor=cursor)
        found += page.executions
        if page.cursor is None:
            return found
        cursor = page.cursor


@pytest.mark.anyio
class AdapterContract:
    """Inherit, and supply the fixture `subject`."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The bridge runs on asyncio."""
        return "asyncio"

    @pytest.fixture
    def subject(self) -> Any:
        """To be supplied."""
        raise NotImplementedError("supply a fixture `subject` that gives a Subject")

    # --- what it says of itself ---

    async def test_it_says_what_the_bridge_plans_with(self, subject: Subject) -> None:
        assert isinstance(subject.adapter.start_is_idempotent, bool)
        assert subject.adapter.start_timeout > timedelta(0)
        assert subject.adapter.fingerprint

    async def test_an_impossible_workflow_is_told_when_configured(self, subject: Subject) -> None:
        for workflow in (subject.echo, subject.failing, subject.long):
            subject.adapter.check_workflow(workflow, inline=False)
        if subject.impossible is None:
            pytest.skip("every name is possible")
        with pytest.raises(ValueError, match=r".+"):
            subject.adapter.check_workflow(subject.impossible, inline=False)

    # --- prepare ---

    @pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS.keys())
    async def test_prepare_gives_the_same_bytes_every_time(
        self, subject: Subject, arguments: Json
    ) -> None:
        once = subject.adapter.prepare(subject.echo, arguments)
        again = subject.adapter.prepare(subject.echo, json.loads(json.dumps(arguments)))
        assert isinstance(once, bytes)
        assert once == again

    async def test_prepare_needs_no_engine(self, subject: Subject) -> None:
        if subject.unreachable is None:
            pytest.skip("no unreachable adapter")
        assert subject.unreachable.prepare(subject.echo, {"a": 1})

    @pytest.mark.parametrize(
        "bad", [float("nan"), float("inf"), "\ud800"], ids=["nan", "infinity", "half a surrogate"]
    )
    async def test_prepare_refuses_what_is_not_json(self, subject: Subject, bad: Json) -> None:
        with pytest.raises(Rejected):
            subject.adapter.prepare(subject.echo, {"value": bad})

    async def test_prepare_refuses_what_is_too_large_for_any_engine(self, subject: Subject) -> None:
        with pytest.raises(Rejected):
            subject.adapter.prepare(subject.echo, {"value": "x" * 50_000_000})

    # --- start and observe ---

    @pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS.keys())
    async def test_arguments_arrive_exactly_as_sent(
        self, subject: Subject, arguments: Json
    ) -> None:
        start = await started(subject, subject.echo, arguments)
        outcome = await ended(subject, start.ref)
        assert isinstance(outcome, Succeeded)
        # As text, because to Python 0, 0.0 and False are equal.
        assert json.dumps(outcome.output, sort_keys=True) == json.dumps(arguments, sort_keys=True)

    async def test_a_failure_has_its_error_and_its_cause(self, subject: Subject) -> None:
        start = await started(subject, subject.failing)
        outcome = await ended(subject, start.ref)
        assert isinstance(outcome, Failed)
        assert (outcome.error, outcome.cause) == (subject.error, subject.cause)

    async def test_a_long_execution_is_not_final(self, subject: Subject) -> None:
        start = await started(subject, subject.long)
        assert isinstance(start.execution, Queued | Running)
        assert isinstance(await subject.adapter.observe(start.ref), Queued | Running)
        await subject.adapter.stop(start.ref, "the test is over")

    async def test_a_final_answer_is_given_for_ever(self, subject: Subject) -> None:
        start = await started(subject, subject.echo)
        outcome = await ended(subject, start.ref)
        assert [await subject.adapter.observe(start.ref) for _ in range(3)] == [outcome] * 3

    async def test_times_are_aware_and_in_utc(self, subject: Subject) -> None:
        outcome = await ended(subject, (await started(subject, subject.echo)).ref)
        if outcome.ended_at is not None:
            assert outcome.ended_at.utcoffset() == timedelta(0)

    async def test_an_unknown_execution_is_said_to_be_unknown(self, subject: Subject) -> None:
        with pytest.raises(ExecutionNotFound):
            await subject.adapter.observe(ExecutionRef(subject.absent_ref))

    async def test_a_missing_workflow_is_rejected(self, subject: Subject) -> None:
        if subject.missing is None:
            pytest.skip("every workflow exists")
        with pytest.raises(Rejected):
            await started(subject, subject.missing)

    async def test_many_calls_at_once_do_not_mix(self, subject: Subject) -> None:
        outputs: dict[int, Json] = {}

        async def one(number: int) -> None:
            start = await started(subject, subject.echo, {"number": number})
            outcome = await ended(subject, start.ref)
            assert isinstance(outcome, Succeeded)
            outputs[number] = outcome.output

        async with anyio.create_task_group() as group:
            for number in range(25):
                group.start_soon(one, number)
        assert outputs == {number: {"number": number} for number in range(25)}

    async def test_a_caller_that_gives_up_leaves_the_adapter_usable(self, subject: Subject) -> None:
        start = await started(subject, subject.long)
        for _ in range(30):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await subject.adapter.observe(start.ref)
        assert isinstance(await subject.adapter.observe(start.ref), Queued | Running)
        await subject.adapter.stop(start.ref, "the test is over")

    # --- one execution per key ---

    async def test_a_second_start_with_the_same_key_is_the_first(self, subject: Subject) -> None:
        key, payload = new_key(), self._idempotent_payload(subject, subject.long)
        since = datetime.now(UTC) - timedelta(minutes=1)
        first = await subject.adapter.start(subject.long, payload, key=key)
        second = await subject.adapter.start(subject.long, payload, key=key)
        assert second.ref == first.ref
        found = await subject.adapter.find(subject.long, key=key, since=since)
        assert [execution.ref for execution in found] == [first.ref]
        await subject.adapter.stop(first.ref, "the test is over")

    async def test_starts_that_race_make_one_execution(self, subject: Subject) -> None:
        key, payload = new_key(), self._idempotent_payload(subject, subject.long)
        refs: list[ExecutionRef] = []

        async def one() -> None:
            start = await subject.adapter.start(subject.long, payload, key=key)
            refs.append(start.ref)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        assert len(set(refs)) == 1
        await subject.adapter.stop(refs[0], "the test is over")

    async def test_a_start_repeated_after_the_end_gives_the_outcome(self, subject: Subject) -> None:
        key, payload = new_key(), self._idempotent_payload(subject, subject.echo)
        first = await subject.adapter.start(subject.echo, payload, key=key)
        outcome = await ended(subject, first.ref)
        again = await subject.adapter.start(subject.echo, payload, key=key)
        assert again == Started(first.ref, outcome)

    async def test_a_key_taken_by_another_payload_is_rejected(self, subject: Subject) -> None:
        key, payload = new_key(), self._idempotent_payload(subject, subject.long)
        first = await subject.adapter.start(subject.long, payload, key=key)
        other = subject.adapter.prepare(subject.long, {"other": True})
        with pytest.raises(Rejected) as raised:
            await subject.adapter.start(subject.long, other, key=key)
        assert raised.value.clash
        await subject.adapter.stop(first.ref, "the test is over")

    def _idempotent_payload(self, subject: Subject, workflow: str) -> bytes:
        if not subject.adapter.start_is_idempotent:
            pytest.skip("starts are not idempotent")
        return subject.adapter.prepare(workflow, {"a": 1})

    # --- find ---

    async def test_find_goes_by_the_exact_key(self, subject: Subject) -> None:
        key, payload = new_key(), subject.adapter.prepare(subject.echo, {})
        since = datetime.now(UTC) - timedelta(minutes=1)
        first = await subject.adapter.start(subject.echo, payload, key=key)
        await subject.adapter.start(subject.echo, payload, key=f"{key}x")
        found = await subject.adapter.find(subject.echo, key=key, since=since)
        assert [execution.ref for execution in found] == [first.ref]
        assert found[0].created_at.utcoffset() == timedelta(0)
        assert await subject.adapter.find(subject.echo, key=key[:-1], since=since) == []

    async def test_find_sees_nothing_where_nothing_was_started(self, subject: Subject) -> None:
        since = datetime.now(UTC) - timedelta(minutes=1)
        assert await subject.adapter.find(subject.echo, key=new_key(), since=since) == []

    # --- stop ---

    async def test_a_stopped_execution_is_aborted(self, subject: Subject) -> None:
        start = await started(subject, subject.long)
        await subject.adapter.stop(start.ref, "not wanted any more")
        assert isinstance(await ended(subject, start.ref), Aborted)

    async def test_stopping_twice_is_no_error(self, subject: Subject) -> None:
        start = await started(subject, subject.long)
        await subject.adapter.stop(start.ref, "once")
        await subject.adapter.stop(start.ref, "twice")
        outcome = await ended(subject, start.ref)
        await subject.adapter.stop(start.ref, "a third time")
        assert await subject.adapter.observe(start.ref) == outcome

    async def test_stopping_what_has_ended_changes_nothing(self, subject: Subject) -> None:
        start = await started(subject, subject.echo)
        outcome = await ended(subject, start.ref)
        await subject.adapter.stop(start.ref, "too late")
        assert await subject.adapter.observe(start.ref) == outcome

    async def test_stopping_what_never_was_is_an_error_of_ours_or_none(
        self, subject: Subject
    ) -> None:
        try:
            await subject.adapter.stop(ExecutionRef(subject.absent_ref), "never was")
        except AdapterError as exc:
            assert isinstance(exc, ExecutionNotFound)  # noqa: PT017 - not raising is right too

    # --- an engine out of reach ---

    async def test_an_engine_out_of_reach_is_unavailable(self, subject: Subject) -> None:
        adapter = subject.unreachable
        if adapter is None:
            pytest.skip("no unreachable adapter")
        payload = adapter.prepare(subject.echo, {})
        ref, since = ExecutionRef(subject.absent_ref), datetime.now(UTC)
        with pytest.raises(Unavailable):
            await adapter.start(subject.echo, payload, key=new_key())
        with pytest.raises(Unavailable):
            await adapter.find(subject.echo, key=new_key(), since=since)
        with pytest.raises(Unavailable):
            await adapter.observe(ref)
        with pytest.raises(Unavailable):
            await adapter.stop(ref, "out of reach")
        assert await adapter.check({subject.echo: False})

    # --- list ---

    async def test_listing_gives_each_execution_with_the_prefix_once(
        self, subject: Subject
    ) -> None:
        adapter = _listing(subject.adapter)
        prefix = new_key()
        payload, since = subject.adapter.prepare(subject.long, {}), datetime.now(UTC)
        keys = [f"{prefix}-{number}" for number in range(5)]
        for key in [*keys, new_key()]:
            await subject.adapter.start(subject.long, payload, key=key)
        found = await _all(adapter, subject.long, prefix, since - timedelta(minutes=1))
        assert sorted(one.key for one in found) == keys
        assert not any(one.ended for one in found)
        assert all(one.created_at.utcoffset() == timedelta(0) for one in found)
        await subject.adapter.stop(found[0].ref, "the test is over")
        assert isinstance(await ended(subject, found[0].ref), Aborted)
        again = await _all(adapter, subject.long, prefix, since - timedelta(minutes=1))
        assert [one.ref for one in again if one.ended] == [found[0].ref]
        for one in found[1:]:
            await subject.adapter.stop(one.ref, "the test is over")

    async def test_listing_goes_back_no_further_than_asked(self, subject: Subject) -> None:
        adapter, key = _listing(subject.adapter), new_key()
        payload = subject.adapter.prepare(subject.echo, {})
        await subject.adapter.start(subject.echo, payload, key=key)
        later = datetime.now(UTC) + timedelta(hours=1)
        assert await _all(adapter, subject.echo, key, later) == []

    async def test_listing_an_engine_out_of_reach_is_unavailable(self, subject: Subject) -> None:
        if subject.unreachable is None:
            pytest.skip("no unreachable adapter")
        adapter, since = _listing(subject.unreachable), datetime.now(UTC)
        with pytest.raises(Unavailable):
            await adapter.list_executions(subject.echo, prefix="wb-", since=since)

    # --- check, narrate, close ---

    async def test_check_finds_nothing_wrong_with_what_is_right(self, subject: Subject) -> None:
        workflows = dict.fromkeys((subject.echo, subject.failing, subject.long), False)
        assert await subject.adapter.check(workflows) == []

    async def test_check_names_a_workflow_that_is_missing(self, subject: Subject) -> None:
        if subject.missing is None:
            pytest.skip("every workflow exists")
        problems = await subject.adapter.check({subject.echo: False, subject.missing: False})
        assert [problem.subject for problem in problems] == [subject.missing]

    async def test_steps_are_told_in_their_order(self, subject: Subject) -> None:
        if not isinstance(subject.adapter, Narrates):
            pytest.skip("it does not narrate")
        start = await started(subject, subject.echo)
        await ended(subject, start.ref)
        steps = (await subject.adapter.narrate(start.ref)).steps
        assert list(steps) == sorted(steps, key=lambda step: step.entered_at)

    async def test_closing_twice_is_no_error(self, subject: Subject) -> None:
        await started(subject, subject.echo)
        await subject.adapter.aclose()
        await subject.adapter.aclose()
