"""A client for tasks whose ids the client chooses (SEP-1686, dialect A).

::

    bridge = StdioServerParameters(command="workflow-bridge", args=["serve", "-c", "bridge.yaml"])
    async with connect_stdio(bridge) as client:
        call = await client.start("settle_order", {"order_id": "o-1"})
        finished = await call.wait(on_state=print)

    # another day, another connection, from nothing but the id:
    state = await client.wait(call.task_id)
    result = await client.result(call.task_id)

Over HTTP, in place of `connect_stdio`::

    async with HttpConnection("http://127.0.0.1:8080/mcp") as connection:
        async with connect_http(connection) as client: ...

`TaskClient` sits on one `mcp.ClientSession`, which stays usable beside it as ``client.session``.
What goes over the wire is in `wire`; other dialects are other such modules.
"""

from workflow_bridge.client.connecting import connect, connect_stdio
from workflow_bridge.client.http import NOT_LET_IN, HttpConnection, connect_http
from workflow_bridge.client.tasks import Call, Finished, Progress, TaskClient
from workflow_bridge.client.wire import FINAL, TaskState, Unspeakable

__all__ = [
    "FINAL",
    "NOT_LET_IN",
    "Call",
    "Finished",
    "HttpConnection",
    "Progress",
    "TaskClient",
    "TaskState",
    "Unspeakable",
    "connect",
    "connect_http",
    "connect_stdio",
]
