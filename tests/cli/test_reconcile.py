"""`tasks reconcile`: the engines' executions against the tasks in the database."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.conftest import Told
from workflow_bridge.adapter import ExecutionRef, Unavailable
from workflow_bridge.cli.reconciling import Comparison, compare
from workflow_bridge.core.task import Task, execution_key, new_row_id
from workflow_bridge.store import open_store
from workflow_bridge.testing.fake_adapter import FakeAdapter
from workflow_bridge.testing.memory_store import MemoryTaskStore
from workflow_bridge.testing.moto_engine import MotoEngine
from workflow_bridge.testing.store_contract import added, moved

LONG: dict[str, Any] = {
    "StartAt": "Sleep",
    "States": {"Sleep": {"Type": "Wait", "Seconds": 3600, "End": True}},
}


def test_what_no_task_knows_is_reported_and_left_alone(
    configured: Callable[..., Path], moto: MotoEngine, told: Told
) -> None:
    machine = moto.create_state_machine("Reconciled", LONG)
    file = configured(long=machine)
    engine = moto.step_functions

    def start(name: str) -> ExecutionRef:
        answer = engine.start_execution(stateMachineArn=machine, name=name)
        return ExecutionRef(answer["executionArn"])

    async def fill() -> None:
        store = open_store(f"sqlite:///{file.parent}/bridge.db")
        for name in ("known", "removed", "lost"):
            row_id = new_row_id()
            key, now = execution_key(row_id), store.now()
            task = await added(
                store, name, row_id=row_id, key=key, backend="orders", workflow=machine
            )
            ref = ExecutionRef(machine.replace("stateMachine", "execution") + f":{key}")
            if name != "lost":
                assert start(key) == ref
            task = await moved(store, task, ref=ref, start_called_at=now, start_settled_at=now)
            if name == "removed":
                assert await store.remove(task)
        await store.aclose()

    anyio.run(fill)
    stray, _ = start("wb-" + "0" * 32), start("by-hand")
    code, out, err = told("tasks", "reconcile", "--json")
    assert (code, err) == (1, "")
    found = {one["kind"]: one for one in json.loads(out)}
    assert set(found) == {"no_task", "no_execution"}
    assert found["no_task"]["subject"] == stray
    assert "it is running" in found["no_task"]["message"]
    assert "task lost is" in found["no_execution"]["message"]
    listed = engine.list_executions(stateMachineArn=machine)["executions"]
    assert {one["status"] for one in listed} == {"RUNNING"}
    assert len(listed) == 4
    code, out, _ = told("tasks", "reconcile")
    assert (code, out.splitlines()[0].split("\t")[0]) == (1, "backend")
    code, out, err = told("tasks", "reconcile", "--since", "1ms")
    assert (code, out) == (0, "")
    assert "executions compared: 0" in err
    assert "--since" in told("tasks", "reconcile", "--since", "7")[2]


class _Unlisted(FakeAdapter):
    list_executions = None  # type: ignore[assignment]


def _now() -> datetime:
    return datetime.now(UTC)


async def _compared(
    store: MemoryTaskStore, most_pages: int = 100, **adapters: FakeAdapter
) -> Comparison:
    since = _now() - timedelta(hours=1)
    workflows = {name: ["w"] for name in adapters}
    return await compare(store, adapters, workflows, since=since, most_pages=most_pages)


@pytest.fixture
def store() -> MemoryTaskStore:
    return MemoryTaskStore()


@pytest.fixture
def adapter() -> FakeAdapter:
    return FakeAdapter(clock=_now)


async def _started(store: MemoryTaskStore, adapter: FakeAdapter, task_id: str) -> Task:
    row_id = new_row_id()
    key = execution_key(row_id)
    task = await added(store, task_id, row_id=row_id, key=key, backend="a", workflow="w")
    started = await adapter.start("w", b"{}", key=key)
    return await moved(store, task, ref=started.ref, start_settled_at=store.now())


@pytest.mark.anyio
async def test_an_engine_that_cannot_be_seen_says_nothing_about_its_tasks(
    store: MemoryTaskStore, adapter: FakeAdapter
) -> None:
    task = await _started(store, adapter, "t")
    assert task.ref is not None
    adapter.vanish(task.ref)
    adapter.fail("list_executions", Unavailable("states:ListExecutions is not allowed"))
    (found,) = (await _compared(store, a=adapter)).differences
    assert (found.kind, found.subject) == ("not_compared", "w")
    assert "states:ListExecutions" in found.message
    assert adapter.called("observe") == []


@pytest.mark.anyio
async def test_a_list_that_lags_behind_is_no_difference(
    store: MemoryTaskStore, adapter: FakeAdapter
) -> None:
    task = await _started(store, adapter, "t")
    assert task.ref is not None
    hidden = adapter.executions[task.ref]
    adapter.executions[task.ref] = replace(hidden, workflow="elsewhere")
    assert (await _compared(store, a=adapter)).differences == []
    assert len(adapter.called("observe")) == 1


@pytest.mark.anyio
async def test_what_is_not_compared_is_said(store: MemoryTaskStore, adapter: FakeAdapter) -> None:
    for number in range(5):
        await _started(store, adapter, f"t{number}")
    comparison = await _compared(store, 2, a=adapter, b=_Unlisted(clock=_now))
    assert comparison.differences == []
    assert comparison.seen == 4
    assert sorted(comparison.skipped) == [
        "backend b: its adapter cannot list executions",
        "w: all that comes after page 2 of its list",
    ]
