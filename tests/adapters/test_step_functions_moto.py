"""What only an engine that really runs state machines shows."""

from __future__ import annotations

from typing import Any

import pytest

from workflow_bridge.adapter import Succeeded
from workflow_bridge.testing.adapter_contract import Subject, ended, new_key
from workflow_bridge.testing.moto_engine import MotoEngine
from workflow_bridge_adapters.step_functions import StepFunctions

pytestmark = pytest.mark.anyio

WAITS: dict[str, Any] = {"Type": "Wait", "Seconds": 3600, "End": True}
PASSES: dict[str, Any] = {"Type": "Pass", "End": True}


async def steps_at_the_end(
    adapter: StepFunctions, moto: MotoEngine, name: str, definition: dict[str, Any]
) -> list[str]:
    workflow = moto.create_state_machine(name, definition)
    start = await adapter.start(workflow, b"[1,2]", key=new_key())
    subject = Subject(
        adapter=adapter, echo="", failing="", error="", cause="", long="", absent_ref=""
    )
    assert isinstance(await ended(subject, start.ref), Succeeded)
    steps = (await adapter.narrate(start.ref)).steps
    assert all(step.ended_at is not None for step in steps)
    return [step.name for step in steps]


async def test_steps_of_branches_and_iterations_are_all_told(
    adapter: StepFunctions, moto: MotoEngine
) -> None:
    branches = [{"StartAt": name, "States": {name: PASSES}} for name in ("Left", "Right")]
    definition = {
        "StartAt": "Both",
        "States": {"Both": {"Type": "Parallel", "Branches": branches, "End": True}},
    }
    names = await steps_at_the_end(adapter, moto, "Parallel", definition)
    assert names[0] == "Both"
    assert sorted(names[1:]) == ["Left", "Right"]


async def test_each_iteration_of_a_map_has_its_own_step(
    adapter: StepFunctions, moto: MotoEngine
) -> None:
    processor = {"StartAt": "Work", "States": {"Work": PASSES}}
    definition = {
        "StartAt": "Each",
        "States": {"Each": {"Type": "Map", "ItemProcessor": processor, "End": True}},
    }
    names = await steps_at_the_end(adapter, moto, "Map", definition)
    assert names == ["Each", "Work", "Work"]


async def test_the_step_it_is_in_is_the_current_one(
    adapter: StepFunctions, moto: MotoEngine
) -> None:
    definition = {
        "StartAt": "First",
        "States": {"First": {"Type": "Pass", "Next": "Then"}, "Then": WAITS},
    }
    workflow = moto.create_state_machine("TwoSteps", definition)
    start = await adapter.start(workflow, b"{}", key=new_key())
    narration = await adapter.narrate(start.ref)
    while len(narration.steps) < 2:
        narration = await adapter.narrate(start.ref)
    assert narration.current == "Then"
    assert narration.steps[0].ended_at is not None
    await adapter.stop(start.ref, "the test is over")
