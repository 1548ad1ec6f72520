"""Any replica serves any task, and together they do no more than one would."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2
import pytest

from tests.end_to_end.site import eventually
from tests.http.wire import HttpWire
from tests.protocol.bench import RELATED
from tests.replicas.conftest import PATIENCE, Fleet
from tests.replicas.round_robin import RoundRobin, round_robin

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MOST_THREADS: Final = 30
NOTICED: Final = 1.5
"""Seconds within which a change made through one replica is known on another."""


class Client(HttpWire):
    """A client that lives with lost connections, and waits without keeping a core busy."""

    async def _exchange(self, message: dict[str, Any], **kwargs: Any) -> None:
        with suppress(httpx2.HTTPError):
            await super()._exchange(message, **kwargs)

    async def send(self, message: dict[str, Any]) -> None:
        self.group.start_soon(self._exchange, message)

    async def answer(self, request_id: Any) -> dict[str, Any]:
        async def read() -> dict[str, Any] | None:
            return self.answered(request_id)

        found = await eventually(read, lambda answer: answer is not None, PATIENCE)
        assert found is not None
        return found


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        httpx2.AsyncClient(timeout=60, limits=limits) as client,
        anyio.create_task_group() as group,
    ):
        wire = Client(url, client, group)
        await wire.shake_hands("2025-11-25")
        yield wire
        await wire.hang_up()


@asynccontextmanager
async def balanced(fleet: Fleet) -> AsyncIterator[tuple[RoundRobin, Client]]:
    async with round_robin(fleet.ports) as balancer, client_of(balancer.url) as client:
        yield balancer, client


async def begun(client: Client, task_id: str, tool: str = "echo") -> Any:
    call = await client.call(tool, {"id": task_id}, task=task_id)

    async def read() -> bool:
        return client.created(task_id)

    await eventually(read, bool, PATIENCE)
    return call


async def stands(client: Client, task_id: str, *statuses: str) -> dict[str, Any]:
    async def read() -> dict[str, Any]:
        return await client.get(task_id)

    return await eventually(read, lambda shown: shown["status"] in statuses, PATIENCE)


def observations(fleet: Fleet) -> int:
    return fleet.calls.calls("DescribeExecution")


@pytest.mark.req("A-1", "A-4", "A-13", "A-14", "A-15", "A-23")
@pytest.mark.case("S3")
async def test_any_replica_serves_any_task_of_the_owner(fleet: Fleet) -> None:
    """Fifteen attempts, each from the call to the end over whoever is next: all clean."""
    async with balanced(fleet) as (balancer, client):
        for attempt in range(15):
            task_id = f"attempt-{attempt}"
            call = await begun(client, task_id)
            await stands(client, task_id, "completed")
            result = (await client.task("result", task_id))["result"]
            assert result["structuredContent"] == {"id": task_id}
            assert (await client.answer(call))["result"] == result
            listed: list[str] = []
            params: dict[str, Any] = {}
            while True:
                page = (await client.ask("tasks/list", params))["result"]
                listed += [task["taskId"] for task in page["tasks"]]
                if "nextCursor" not in page:
                    break
                params = {"cursor": page["nextCursor"]}
            assert task_id in listed
            again = await client.answer(await client.call("echo", {}, task=task_id))
            assert again["error"]["message"] == f"Task ID already exists: {task_id}"
            assert "result" in await client.task("delete", task_id)
            gone = await client.task("get", task_id)
            assert gone["error"]["code"] == -32602
        assert min(balancer.served[port] for port in fleet.ports) >= 15
    assert await fleet.executions("echo") == ["SUCCEEDED"] * 15


@pytest.mark.req("P-1", "P-2", "P-3")
@pytest.mark.case("S3")
async def test_the_tools_of_clients_without_tasks_work_on_any_replica(fleet: Fleet) -> None:
    async with balanced(fleet) as (_, client):
        await client.call("slow", {"n": 1})

        async def read() -> list[dict[str, Any]]:
            listed = await client.answer(await client.call("task_list"))
            tasks = listed["result"]["structuredContent"]["tasks"]
            return [task for task in tasks if task["tool"] == "slow" and not task["ended"]]

        (task,) = await eventually(read, bool, PATIENCE)
        for tool in ("task_status", "task_result", "task_result", "task_status"):
            answer = await client.answer(await client.call(tool, {"task_id": task["task_id"]}))
            assert answer["result"]["isError"] is False
        assert answer["result"]["structuredContent"]["status"] == "done"


@pytest.mark.req("A-5", "A-21", "A-39")
@pytest.mark.case("S3", "K6")
@pytest.mark.parametrize("how", ["tasks/cancel", "notifications/cancelled", "task_cancel"])
async def test_a_change_made_through_one_wakes_who_waits_on_another(fleet: Fleet, how: str) -> None:
    one, two, _ = fleet.replicas
    task_id = f"woken by {how}"
    async with client_of(one.url) as waits, client_of(two.url) as acts:
        call = await begun(waits, task_id, "long")
        await stands(acts, task_id, "working")
        changed = time.monotonic()
        if how == "tasks/cancel":
            assert (await acts.task("cancel", task_id))["result"]["status"] == "cancelled"
        elif how == "task_cancel":
            await acts.answer(await acts.call("task_cancel", {"task_id": task_id}))
        else:
            meta = {RELATED: {"taskId": task_id}}
            await acts.notify("notifications/cancelled", {"requestId": call, "_meta": meta})
        result = (await waits.answer(call))["result"]
        assert time.monotonic() - changed < NOTICED
        assert result["isError"] is True
        assert "cancelled" in result["content"][0]["text"]

        async def read() -> list[str]:
            return await fleet.executions("long")

        await eventually(read, lambda found: "RUNNING" not in found, PATIENCE)


@pytest.mark.req("A-24", "P-1")
@pytest.mark.case("S3", "F1", "Q4")
async def test_an_execution_is_looked_at_once_per_interval_however_many_ask(
    fleet_of: Callable[..., Fleet],
) -> None:
    """And hundreds of waiting calls cost neither threads nor connections."""
    interval = 1.0
    fleet = fleet_of(poll="1s", plain_call={"max_wait": "10m"})
    waiting, watched = 300, 6.0
    async with balanced(fleet) as (_, client):
        await begun(client, "watched", "long")
        await stands(client, "watched", "working")
        for _ in range(waiting):
            await client.call("task_result", {"task_id": "watched"})
        before, since = observations(fleet), time.monotonic()
        asked = 0
        while time.monotonic() - since < watched:
            assert (await client.get("watched"))["status"] == "working"
            asked += 1
        seconds, looks = time.monotonic() - since, observations(fleet) - before
        assert asked > 3 * looks
        assert looks <= seconds / interval + 2
        assert looks >= 1
        files = [replica.count("fd") for replica in fleet.replicas]
        assert sum(files) > waiting, "the calls wait, each on a connection of its client"
        # What the pools of store and engine may come to, whoever waits.
        threads = [replica.count("task") for replica in fleet.replicas]
        assert max(threads) <= MOST_THREADS
        assert fleet.connections() <= 10 * len(fleet.replicas)
        print(
            f"{asked} polls, {waiting} waiting, {looks} looks in {seconds:.1f} s; "
            f"{threads} threads, {fleet.connections()} connections"
        )
        await client.task("cancel", "watched")
        await eventually(
            _read(lambda: sum("isError" in str(m) for m in client.received)),
            lambda answered: answered == waiting + 1,
            PATIENCE,
        )


def _read(value: Callable[[], int]) -> Callable[[], Any]:
    async def read() -> int:
        return value()

    return read


@pytest.mark.req("A-22", "A-26")
@pytest.mark.case("S3", "S6", "D1")
async def test_a_replica_that_is_killed_takes_nothing_with_it(fleet: Fleet) -> None:
    """Nothing is lost, and nothing is started twice.

    What it was working on is taken up when its leases have lapsed, which takes half a minute.
    """
    before = len(await fleet.executions("slow"))
    made = [f"t{n}" for n in range(24)]
    victim = fleet.replicas[1]
    async with balanced(fleet) as (balancer, client):
        for task_id in made[:9]:
            await begun(client, task_id, "slow")
        theirs = balancer.served[victim.port]
        for task_id in made[9:18]:
            await client.call("slow", {"id": task_id}, task=task_id)
        # Three of these are with it now, read or not; three before have executions that run.
        await eventually(
            _read(lambda: balancer.served[victim.port]), lambda n: n >= theirs + 3, PATIENCE
        )
        victim.kill()
        for task_id in made[18:]:
            await client.call("slow", {"id": task_id}, task=task_id)
        done = []
        for task_id in made:
            if "error" in await client.task("get", task_id):
                # Its call was cut off before the row was there: nothing was done, so do it again.
                await client.call("slow", {"id": task_id}, task=task_id)

                async def found(task_id: str = task_id) -> dict[str, Any]:
                    return await client.task("get", task_id)

                await eventually(found, lambda answer: "result" in answer, PATIENCE)
            await stands(client, task_id, "completed")
            result = (await client.task("result", task_id))["result"]
            done.append(result["structuredContent"]["id"])
        assert done == made
    assert await fleet.executions("slow") == ["SUCCEEDED"] * (before + len(made))
