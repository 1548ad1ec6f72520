"""What the client promises of dialect A (A-40), against a scripted server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from tests.cli.peer import RELATED, Peer, Refusal, connected, task
from workflow_bridge.client import Finished, Progress, TaskState, wire

pytestmark = [pytest.mark.anyio, pytest.mark.req("A-40")]

RESULT = {"content": [{"type": "text", "text": "done"}], "isError": False}


async def test_a_call_carries_the_clients_task_id_and_keep_alive_and_a_progress_token() -> None:
    peer = Peer()
    async with connected(peer) as client:
        await client.start(
            "t", {"a": 1}, task_id="my id", keep_alive=timedelta(minutes=1), on_progress=print
        )
    (frame,) = peer.requests("tools/call")
    meta = frame["params"]["_meta"]
    assert meta["modelcontextprotocol.io/task"] == {"taskId": "my id", "keepAlive": 60000}
    assert meta["progressToken"] == frame["id"]
    assert frame["params"]["arguments"] == {"a": 1}


async def test_polling_begins_only_once_the_task_is_said_to_be_created() -> None:
    peer = Peer(answers={"tasks/get": [task("x", "working"), task("x", "completed")]})
    peer.answers["tasks/result"] = [RESULT]
    peer.announces = False
    async with connected(peer, created_within=0.05) as client, anyio.create_task_group() as group:
        call = await client.start("t", task_id="x")
        assert not call.created.is_set()
        group.start_soon(call.wait)
        await anyio.wait_all_tasks_blocked()
        assert peer.requests("tasks/get") == []
        await peer.announce("x")
    assert len(peer.requests("tasks/get")) == 2


async def test_without_an_announcement_the_original_answer_is_waited_for() -> None:
    peer = Peer(announces=False)
    async with connected(peer, created_within=0.01) as client:
        call = await client.start("t", task_id="x")
        await peer.answer_call("late but there")
        finished = await call.wait()
    assert finished.succeeded
    assert finished.result is not None
    assert peer.requests("tasks/get") == []


async def test_a_task_announced_for_somebody_else_changes_nothing() -> None:
    peer = Peer(announces=False)
    async with connected(peer, created_within=0.05) as client, anyio.create_task_group() as group:

        async def announce_another() -> None:
            await peer.called.wait()
            await peer.announce("another")

        group.start_soon(announce_another)
        call = await client.start("t", task_id="x")
        assert not call.created.is_set()


async def test_polls_come_no_more_often_than_the_server_asks() -> None:
    states = [task("x", "working", 120), task("x", "working", 250), task("x", "failed")]
    peer = Peer(answers={"tasks/get": list(states)})
    async with connected(peer) as client:
        await client.wait("x")
    first, second, third = peer.at["tasks/get"]
    assert second - first >= 0.12
    assert third - second >= 0.25


async def test_every_request_about_a_task_is_tied_to_it() -> None:
    peer = Peer(
        answers={
            "tasks/get": [task("x", "completed")],
            "tasks/result": [RESULT],
            "tasks/cancel": [task("x", "cancelled")],
            "tasks/delete": [{}],
            "tasks/list": [{"tasks": []}],
        }
    )
    async with connected(peer) as client:
        await client.wait("x")
        await client.result("x")
        await client.cancel("x")
        await client.delete("x")
        assert [state async for state in client.list()] == []
    for method in ("tasks/get", "tasks/result", "tasks/cancel", "tasks/delete"):
        (frame,) = peer.requests(method)
        assert frame["params"]["taskId"] == "x"
        assert frame["params"]["_meta"][RELATED] == {"taskId": "x"}
    (frame,) = peer.requests("tasks/list")
    assert RELATED not in frame.get("params", {}).get("_meta", {})


async def test_cursors_are_handed_back_as_they_came() -> None:
    odd = 'ne"xt\n=={}'
    pages: list[Any] = [
        {"tasks": [task("a", "working")], "nextCursor": odd},
        {"tasks": [], "nextCursor": ""},
        {"tasks": [task("b", "failed")]},
    ]
    peer = Peer(answers={"tasks/list": pages})
    async with connected(peer) as client:
        assert [state.task_id async for state in client.list()] == ["a", "b"]
    cursors = [f.get("params", {}).get("cursor") for f in peer.requests("tasks/list")]
    assert cursors == [None, odd, ""]


async def test_cancelling_names_the_original_request_and_polling_goes_on_until_the_end() -> None:
    states = [task("x", "working", 50), task("x", "working", 50), task("x", "cancelled")]
    peer = Peer(answers={"tasks/get": list(states)})
    async with connected(peer) as client:
        call = await client.start("t", task_id="x")
        await call.cancel()
        finished = await call.wait()
    (frame,) = peer.requests("notifications/cancelled")
    assert frame["params"]["requestId"] == peer.call_id
    related = frame["params"]["_meta"]["modelcontextprotocol.io/related-task"]
    assert related == {"taskId": "x"}
    assert finished.status == "cancelled"
    assert not finished.succeeded
    assert len(peer.requests("tasks/get")) == 3


async def test_leaving_cancels_nothing() -> None:
    peer = Peer()
    async with connected(peer) as client:
        await client.start("t", task_id="x")
    assert peer.requests("notifications/cancelled") == []


async def test_an_answer_that_comes_before_the_next_poll_is_used() -> None:
    peer = Peer(answers={"tasks/get": [task("x", "working", 60_000), task("x", "completed")]})
    finished: list[Finished] = []
    async with connected(peer) as client, anyio.create_task_group() as group:
        call = await client.start("t", task_id="x")

        async def wait() -> None:
            finished.append(await call.wait())

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await peer.answer_call("here")
    assert finished[0].succeeded
    assert peer.requests("tasks/result") == []


async def test_a_refused_call_raises_what_the_server_said() -> None:
    peer = Peer(answers={"tools/call": [Refusal(-32602, "Task ID already exists: x")]})
    async with connected(peer) as client:
        with pytest.raises(MCPError, match="already exists") as caught:
            await client.start("t", task_id="x")
    assert caught.value.error.code == -32602


async def test_polls_refused_for_their_rate_are_repeated_when_the_server_says() -> None:
    slower = Refusal(wire.RATE_LIMITED, "Polling too fast", {"retryAfterMs": 150})
    peer = Peer(answers={"tasks/get": [slower, task("x", "completed")]})
    async with connected(peer) as client:
        assert (await client.wait("x")).status == "completed"
    first, second = peer.at["tasks/get"]
    assert second - first >= 0.15


async def test_a_task_is_taken_up_again_from_nothing_but_its_id() -> None:
    peer = Peer(answers={"tasks/get": [task("old", "completed")], "tasks/result": [RESULT]})
    async with connected(peer) as client:
        states: list[TaskState] = []
        await client.wait("old", on_state=states.append)
        result = await client.result("old")
    assert [state.status for state in states] == ["completed"]
    assert result.is_error is False


async def test_progress_arrives_in_order() -> None:
    peer = Peer()
    told: list[Progress] = []
    async with connected(peer) as client:
        call = await client.start("t", task_id="x", on_progress=told.append)
        await peer.progress(1, "working: One")
        await peer.progress(2, "working: Two")
        await peer.answer_call()
        peer.answers["tasks/get"] = [task("x", "completed")]
        await call.wait()
    assert [p.message for p in told] == ["working: One", "working: Two"]


@pytest.mark.parametrize(
    ("raw", "poll", "keep_alive"),
    [
        ({"status": "working", "pollFrequency": 1500, "keepAlive": None}, 1.5, None),
        ({"status": "working"}, 5.0, None),
        ({"status": "working", "pollFrequency": 0, "keepAlive": 1}, 5.0, 0.001),
        ({"status": "working", "pollFrequency": -7, "keepAlive": True}, 0.05, None),
    ],
)
def test_odd_answers_are_read_with_sense(
    raw: dict[str, Any], poll: float, keep_alive: float | None
) -> None:
    state = wire.state(raw, "x")
    assert state.poll.total_seconds() == poll
    assert (state.keep_alive and state.keep_alive.total_seconds()) == keep_alive


def test_an_answer_without_a_status_is_not_taken_for_a_task() -> None:
    with pytest.raises(wire.Unspeakable):
        wire.state({"taskId": "x"}, "x")


@pytest.mark.parametrize("code", [-32000, -32800], ids=["lost", "cancelled"])
async def test_a_request_that_ends_without_an_answer_is_not_the_end_of_its_task(code: int) -> None:
    states = [task("x", "working", 50), task("x", "working", 50), task("x", "completed")]
    peer = Peer(answers={"tasks/get": list(states), "tasks/result": [RESULT]})
    finished: list[Finished] = []
    async with connected(peer) as client, anyio.create_task_group() as group:
        call = await client.start("t", task_id="x")

        async def wait() -> None:
            finished.append(await call.wait())

        group.start_soon(wait)
        await peer.say({"id": peer.call_id, "error": {"code": code, "message": "gone"}})
    assert finished[0].succeeded
    assert finished[0].error is None
