"""A scripted server of dialect A, frame by frame, to try the client against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from workflow_bridge.client import TaskClient, connect

RELATED = "modelcontextprotocol.io/related-task"


def task(task_id: str, status: str, poll_ms: int = 100, **more: Any) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "status": status,
        "keepAlive": 60000,
        "pollFrequency": poll_ms,
        **more,
    }


@dataclass(slots=True)
class Refusal:
    code: int
    message: str
    data: Any = None


@dataclass(slots=True)
class Peer:
    """Answers each method with the next of its answers; the last one stays."""

    answers: dict[str, list[Any]] = field(default_factory=dict)
    announces: bool = True
    seen: list[dict[str, Any]] = field(default_factory=list)
    at: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    call_id: Any = None
    called: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    _send: Callable[[dict[str, Any]], Any] | None = None

    async def say(self, frame: dict[str, Any]) -> None:
        assert self._send is not None
        await self._send({"jsonrpc": "2.0", **frame})

    async def announce(self, task_id: str) -> None:
        meta = {RELATED: {"taskId": task_id}}
        await self.say({"method": "notifications/tasks/created", "params": {"_meta": meta}})

    async def progress(self, done: float, message: str) -> None:
        params = {"progressToken": self.call_id, "progress": done, "message": message}
        await self.say({"method": "notifications/progress", "params": params})

    async def answer_call(self, text: str = "done", *, is_error: bool = False) -> None:
        result = {"content": [{"type": "text", "text": text}], "isError": is_error}
        await self.say({"id": self.call_id, "result": result})

    def requests(self, method: str) -> list[dict[str, Any]]:
        return [frame for frame in self.seen if frame["method"] == method]

    async def take(self, frame: dict[str, Any]) -> None:
        self.seen.append(frame)
        method = frame["method"]
        self.at[method].append(anyio.current_time())
        if method == "initialize":
            await self.say({"id": frame["id"], "result": _hello(frame)})
        elif method == "notifications/cancelled":
            self.cancelled.set()
        elif method == "tools/call" and method not in self.answers:
            self.call_id = frame["id"]
            if self.announces:
                await self.announce(
                    frame["params"]["_meta"]["modelcontextprotocol.io/task"]["taskId"]
                )
            self.called.set()
        elif "id" in frame:
            await self._answer(frame, method)

    async def _answer(self, frame: dict[str, Any], method: str) -> None:
        left = self.answers[method]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Refusal):
            error = {"code": answer.code, "message": answer.message, "data": answer.data}
            await self.say({"id": frame["id"], "error": error})
        else:
            await self.say({"id": frame["id"], "result": answer})


def _hello(frame: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": frame["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "peer", "version": "1"},
    }


@asynccontextmanager
async def connected(peer: Peer, created_within: float = 5.0) -> AsyncIterator[TaskClient]:
    async with (
        create_client_server_memory_streams() as (ours, (incoming, outgoing)),
        anyio.create_task_group() as group,
    ):

        async def send(frame: dict[str, Any]) -> None:
            message = jsonrpc_message_adapter.validate_python(frame, by_name=False)
            await outgoing.send(SessionMessage(message))

        async def serve() -> None:
            async for message in incoming:
                assert isinstance(message, SessionMessage)
                await peer.take(message.message.model_dump(by_alias=True, exclude_unset=True))

        peer._send = send
        group.start_soon(serve)
        async with connect(*ours, created_within=created_within) as client:
            yield client
        group.cancel_scope.cancel()
