"""From a transport to a `TaskClient`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO

import anyio
from mcp.client.extension import NotificationBinding
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import Implementation

from workflow_bridge import __version__
from workflow_bridge.client import wire
from workflow_bridge.client.tasks import Announcement, TaskClient

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage


@asynccontextmanager
async def connect(
    read: ReadStream[SessionMessage | Exception],
    write: WriteStream[SessionMessage],
    *,
    name: str = "workflow-bridge",
    created_within: float = 10.0,
) -> AsyncIterator[TaskClient]:
    """Yield a client, initialized, on the two streams of any transport of the SDK.

    ``created_within`` is how many seconds a call waits to be told that its task was created.
    """
    # A dispatcher of our own: the request id of a call must be known to cancel it, and leaving
    # must not cancel what runs.
    dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
    created: dict[str, anyio.Event] = {}

    async def note(announcement: Announcement) -> None:
        task_id = wire.related_task(announcement.model_dump(by_alias=True))
        if task_id in created:
            created[task_id].set()

    async with (
        ClientSession(
            dispatcher=dispatcher,
            client_info=Implementation(name=name, version=__version__),
            notification_bindings=[
                NotificationBinding(method=wire.CREATED, params_type=Announcement, handler=note)
            ],
        ) as session,
        anyio.create_task_group() as group,
    ):
        await session.initialize()
        yield TaskClient(session, dispatcher, group, created, created_within=created_within)
        group.cancel_scope.cancel()


@asynccontextmanager
async def connect_stdio(
    server: StdioServerParameters,
    *,
    errlog: TextIO = sys.stderr,
    name: str = "workflow-bridge",
    created_within: float = 10.0,
) -> AsyncIterator[TaskClient]:
    """Start a server as a child process, yield a client to it, and end it afterwards."""
    async with (
        stdio_client(server, errlog=errlog) as (read, write),
        connect(read, write, name=name, created_within=created_within) as client,
    ):
        yield client
