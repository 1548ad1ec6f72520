"""The script: what the client does, and what must come of it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import anyio
from mcp.shared.exceptions import MCPError

from workflow_bridge.client import Call, Finished, Progress, TaskState
from workflow_bridge.demo.ledger import Entry, Ledger
from workflow_bridge.demo.screen import Screen
from workflow_bridge.demo.stage import Bridge, Stage

KEEP_ALIVE = timedelta(hours=1)


class Script:
    """Plays scenes on a stage; each compares what it sees with what it must see."""

    def __init__(self, stage: Stage, screen: Screen, ledger: Ledger) -> None:
        self._stage = stage
        self._screen = screen
        self._ledger = ledger
        self._tasks: dict[str, str] = {}
        """The tasks that were created, each with its tool."""

    async def quick(self, bridge: Bridge) -> None:
        self._screen.scene("A quick workflow")
        finished = await self._run(bridge, "quick", "greet", {"name": "Ada"})
        output = _output(finished)
        self._screen.says(f"result {json.dumps(output)}")
        await self._expect(
            "the result is the execution's output",
            finished.task_id,
            "completed: Hello from a state machine",
            f"{finished.status}: {output.get('greeting')}",
        )

    async def slow(self, bridge: Bridge) -> None:
        self._screen.scene("A slow workflow, step by step")
        steps: list[str] = []
        finished = await self._run(
            bridge, "slow", "settle_order", {"order_id": "o-1001"}, steps=steps
        )
        invoice = _output(finished).get("invoice", {}).get("number")
        await self._expect(
            f"its steps were told while it ran ({len(steps)} seen), then its invoice",
            finished.task_id,
            "completed: INV-2041, steps told",
            f"{finished.status}: {invoice}, steps {'told' if len(steps) > 1 else 'untold'}",
        )

    async def failing(self, bridge: Bridge) -> None:
        self._screen.scene("A workflow that fails")
        finished = await self._run(bridge, "failing", "charge_card", {"order_id": "o-1002"})
        error = (finished.state.error if finished.state else None) or ""
        self._screen.says(error)
        whole = error.startswith("CardDeclined") and "insufficient funds" in error
        await self._expect(
            "the task failed with the error's name and its full cause",
            finished.task_id,
            "failed: CardDeclined, with cause",
            f"{finished.status}: {'CardDeclined, with cause' if whole else error}",
        )

    async def fan_out(self, bridge: Bridge) -> None:
        self._screen.scene("A workflow that fans out")
        finished = await self._run(bridge, "fan-out", "count_orders", {"day": "today"})
        counts = _output(finished).get("counts", [])
        regions = sorted(count["region"] for count in counts)
        self._screen.says(", ".join(f"{c['region']} {c['orders']}" for c in counts))
        await self._expect(
            "three branches ran side by side",
            finished.task_id,
            "completed: Americas, Asia, Europe",
            f"{finished.status}: {', '.join(regions)}",
        )

    async def duplicate(self, bridge: Bridge) -> None:
        self._screen.scene("The same task id again")
        before = len(await self._stage.executions("greet"))
        self._screen.asks('tools/call greet {"name": "Bob"}  task quick')
        try:
            await bridge.client.start("greet", {"name": "Bob"}, task_id="quick")
            answer = "accepted"
        except MCPError as exc:
            answer = exc.message
        started = len(await self._stage.executions("greet")) - before
        self._screen.says(f"refused: {answer}")
        refused = "refused" if "already exists" in answer else answer
        self._judge(
            Entry(
                what="it was refused, and the engine heard nothing of it",
                task_id="quick",
                tool="greet",
                expected="refused: 0 started",
                got=f"{refused}: {started} started",
            )
        )

    async def cancelled(self, bridge: Bridge) -> None:
        self._screen.scene("A long workflow, cancelled")
        call = await self._start(bridge, "long", "rebuild_index", {"index": "orders"})
        await self._until_working(bridge, call.task_id)
        self._screen.asks("notifications/cancelled")
        await call.cancel()
        state = await bridge.client.wait(call.task_id, on_state=self._show)
        name = (await self._stage.task(call.task_id)).key
        at_engine = await self._stopped_at_engine("rebuild_index", name)
        await self._expect(
            "the task is cancelled, and the engine has stopped the execution",
            call.task_id,
            "cancelled: ABORTED at the engine",
            f"{state.status}: {at_engine} at the engine",
        )

    async def killed(self, bridge: Bridge) -> list[str]:
        """Start two tasks, kill the bridge under them, and say what the engine makes of it."""
        self._screen.scene("kill -9 in the middle")
        tasks = ["survivor-1", "survivor-2"]
        for number, task_id in enumerate(tasks, 1):
            await self._start(bridge, task_id, "settle_order", {"order_id": f"o-200{number}"})
        for task_id in tasks:
            await self._until_working(bridge, task_id)
        self._screen.asks(f"kill -9 {bridge.pid}")
        bridge.kill()
        running = Counter(e.status for e in await self._stage.executions("settle_order"))
        self._screen.says(f"no bridge runs now; at the engine {running['RUNNING']} go on")
        self._judge(
            Entry(
                what="both executions outlive the bridge",
                task_id="(both)",
                tool="settle_order",
                expected="2 executions: running",
                got=f"{running['RUNNING']} executions: running",
            )
        )
        return tasks

    async def restarted(self, bridge: Bridge, tasks: list[str]) -> None:
        self._screen.scene("A new bridge, another connection")
        for task_id in tasks:
            self._screen.asks(f"tasks/get {task_id}")
            state = await bridge.client.wait(task_id, on_state=self._show)
            output: dict[str, Any] = {}
            if state.status == "completed":
                self._screen.asks(f"tasks/result {task_id}")
                output = (await bridge.client.result(task_id)).structured_content or {}
            await self._expect(
                "nothing was lost",
                task_id,
                "completed: INV-2041",
                f"{state.status}: {output.get('invoice', {}).get('number')}",
            )

    async def listed(self, bridge: Bridge) -> None:
        self._screen.scene("tasks/list, and the engine's own list")
        statuses = {state.task_id: state.status async for state in bridge.client.list()}
        for task_id, status in statuses.items():
            self._screen.sees(status, task_id)
        self._judge(
            Entry(
                what="every task is listed",
                task_id="(all)",
                tool="",
                expected=f"{len(self._tasks)} tasks",
                got=f"{len(statuses.keys() & self._tasks.keys())} tasks",
            )
        )
        await self._count_executions()

    async def _count_executions(self) -> None:
        """Compare the executions at the engine with the tasks, name by name."""
        tools = sorted(set(self._tasks.values()))
        wanted = sorted([(await self._stage.task(task_id)).key for task_id in self._tasks])
        there = sorted([e.name for tool in tools for e in await self._stage.executions(tool)])
        self._screen.says(f"the engine has {len(there)} executions for {len(wanted)} tasks")
        each = "one each" if there == wanted else "not one each"
        self._judge(
            Entry(
                what="exactly one execution per task: nothing was lost, nothing started twice",
                task_id="(all)",
                tool="",
                expected=f"{len(wanted)} executions: one each",
                got=f"{len(there)} executions: {each}",
            )
        )

    async def _run(
        self,
        bridge: Bridge,
        task_id: str,
        tool: str,
        arguments: dict[str, Any],
        steps: list[str] | None = None,
    ) -> Finished:
        call = await self._start(bridge, task_id, tool, arguments, steps)
        finished = await call.wait()
        self._screen.sees(finished.status)
        return finished

    async def _start(
        self,
        bridge: Bridge,
        task_id: str,
        tool: str,
        arguments: dict[str, Any],
        steps: list[str] | None = None,
    ) -> Call:
        def told(progress: Progress) -> None:
            status, _, step = (progress.message or "").partition(": ")
            if status not in ("completed", "failed", "cancelled"):
                self._screen.sees(status, step)
            if step and steps is not None and step not in steps:
                steps.append(step)

        self._screen.asks(f"tools/call {tool} {json.dumps(arguments)}  task {task_id}")
        call = await bridge.client.start(
            tool,
            arguments,
            task_id=task_id,
            keep_alive=KEEP_ALIVE,
            on_progress=None if steps is None else told,
        )
        self._tasks[task_id] = tool
        return call

    async def _until_working(self, bridge: Bridge, task_id: str) -> None:
        while True:
            state = await bridge.client.get(task_id)
            if state.status != "submitted":
                self._screen.sees(state.status, task_id)
                return
            await anyio.sleep(min(state.poll.total_seconds(), 0.2))

    def _show(self, state: TaskState) -> None:
        self._screen.sees(state.status)

    async def _stopped_at_engine(self, tool: str, name: str) -> str:
        """Give the stop ten seconds to arrive; return what the engine says of the execution."""
        for _ in range(100):
            found = [e.status for e in await self._stage.executions(tool) if e.name == name]
            if found != ["RUNNING"]:
                break
            await anyio.sleep(0.1)
        return " and ".join(found) or "missing"

    async def _expect(self, what: str, task_id: str, expected: str, got: str) -> None:
        task = await self._stage.task(task_id)
        self._judge(
            Entry(
                what=what,
                task_id=task_id,
                tool=task.tool,
                expected=expected,
                got=got,
                execution=task.key if task.ref else "",
            )
        )

    def _judge(self, entry: Entry) -> None:
        self._ledger.entries.append(entry)
        self._screen.judged(entry)


def _output(finished: Finished) -> dict[str, Any]:
    """Return the structured result, or an empty one: what was expected is then not there."""
    if finished.result is None:
        return {}
    return finished.result.structured_content or {}
