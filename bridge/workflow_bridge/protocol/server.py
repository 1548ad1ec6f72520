"""The MCP server: what it lists, and which dialect answers what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, TypeAlias

import structlog
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
)
from pydantic import ConfigDict

from workflow_bridge.core.service import TaskService
from workflow_bridge.core.task import Dialect
from workflow_bridge.protocol.dialect_a import DialectA
from workflow_bridge.protocol.dialects import TASK, recognise
from workflow_bridge.protocol.errors import Refused, invalid, no_such_method
from workflow_bridge.protocol.inflight import Calls, Context, session_of
from workflow_bridge.protocol.limits import Limits, Rates
from workflow_bridge.protocol.metadata import task_metadata
from workflow_bridge.protocol.middleware import (
    declare_tasks,
    keep_track_of_calls,
    speak_neutrally,
)
from workflow_bridge.protocol.plain import HandOver, Plain
from workflow_bridge.protocol.tool_call import ToolCall
from workflow_bridge.protocol.tools import ToolSpec, listed

log = structlog.get_logger(__name__)

SPOKEN: Final = frozenset({Dialect.A, Dialect.PLAIN})

Owner: TypeAlias = Callable[[Context], str]
TaskMethod: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class TaskParams(RequestParams):
    """Parameters of a task request; the dialects read them raw."""

    model_config = ConfigDict(extra="allow")


def build_server(
    service: TaskService,
    tools: Mapping[str, ToolSpec],
    *,
    owner: Owner,
    rates: Rates,
    plain_max_wait: timedelta,
    delete_running: bool,
    name: str,
    version: str,
    instructions: str | None = None,
    hand_over: HandOver | None = None,
) -> Server[Calls]:
    """Return a server that speaks A and plain, over any transport of the SDK.

    ``owner`` says whom a request's tasks belong to. ``delete_running``: deleting a task that has
    not ended cancels it first, instead of being refused. ``hand_over`` can end all plain waiting.
    """
    server = Server(name, version=version, instructions=instructions, lifespan=_calls)
    limits = Limits(rates)
    a = DialectA(service, tools, limits, delete_running=delete_running)
    desk = _Desk(
        tools, owner, limits, a, Plain(service, max_wait=plain_max_wait, hand_over=hand_over)
    )
    server.add_request_handler("tools/list", PaginatedRequestParams, desk.list_tools)
    server.add_request_handler("tools/call", CallToolRequestParams, desk.call_tool)
    methods: dict[str, TaskMethod] = {
        "tasks/get": a.get,
        "tasks/result": a.result,
        "tasks/list": a.list,
        "tasks/cancel": a.cancel,
        "tasks/delete": a.delete,
    }
    for method, answer in methods.items():
        server.add_request_handler(method, TaskParams, desk.task_request(answer))
    server.middleware.insert(0, speak_neutrally)
    server.middleware += [declare_tasks, keep_track_of_calls(service)]
    return server


@asynccontextmanager
async def _calls(server: Server[Calls]) -> AsyncIterator[Calls]:
    del server
    yield Calls()


class _Desk:
    """Takes requests in, and hands each to the dialect it is in."""

    def __init__(
        self,
        tools: Mapping[str, ToolSpec],
        owner: Owner,
        limits: Limits,
        a: DialectA,
        plain: Plain,
    ) -> None:
        self._tools = tools
        self._owner = owner
        self._limits = limits
        self._a = a
        self._plain = plain

    async def list_tools(self, ctx: Context, params: PaginatedRequestParams) -> ListToolsResult:
        """Answer `tools/list`: all tools on one page."""
        del ctx
        if params.cursor is not None:
            raise invalid("cursor", "Invalid cursor; all tools are on the first page")
        return listed(self._tools.values())

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> dict[str, Any]:
        """Answer `tools/call`, in A or plain."""
        owner = self._owner(ctx)
        tool = self._tools.get(params.name)
        dialect = Dialect.PLAIN
        try:
            dialect = self._dialect(ctx)
            if tool is None:
                message = f"Unknown tool: {params.name[:200]}; tools/list names those there are"
                raise invalid("unknown_tool", message)
            if dialect is Dialect.A and tool.task != "never":
                wanted = task_metadata((ctx.params or {})["_meta"][TASK])
                return await self._a.call(self._checked(ctx, owner, tool), wanted)
            # A tool that is never a task takes no notice of the metadata.
            dialect = Dialect.PLAIN
            self._plain.admit(tool)
            result = await self._plain.call(self._checked(ctx, owner, tool))
        except Refused as exc:
            log.info(
                "task_refused",
                reason=exc.reason,
                code=exc.code,
                owner=owner,
                tool=tool.name if tool else None,
                dialect=dialect.value,
            )
            raise
        # The SDK's per-version sieve asks for it from 2026-07-28 on, and takes it out before.
        return {**result, "resultType": "complete"}

    def _checked(self, ctx: Context, owner: str, tool: ToolSpec) -> ToolCall:
        self._limits.create(owner)
        # As sent, not as a model read them (R13).
        arguments = (ctx.params or {}).get("arguments")
        arguments = {} if arguments is None else arguments
        tool.check_arguments(arguments)
        calls = ctx.lifespan_context
        call = None if ctx.request_id is None else calls.find(session_of(ctx), ctx.request_id)
        if call is None:
            raise LookupError("a tools/call that the middleware did not register")
        return ToolCall(ctx=ctx, call=call, owner=owner, tool=tool, arguments=arguments)

    def _dialect(self, ctx: Context) -> Dialect:
        calls, session = ctx.lifespan_context, session_of(ctx)
        dialect = recognise(
            ctx.method,
            ctx.params,
            ctx.protocol_version,
            used_a=calls.spoke_a(session),
            spoken=SPOKEN,
        )
        if dialect is Dialect.A:
            calls.speaks_a(session)
        return dialect

    def task_request(
        self, answer: TaskMethod
    ) -> Callable[[Context, TaskParams], Awaitable[dict[str, Any]]]:
        """Make the handler of a task method; where no dialect has it, it does not exist."""

        async def handle(ctx: Context, params: TaskParams) -> dict[str, Any]:
            del params
            owner = self._owner(ctx)
            try:
                if self._dialect(ctx) is not Dialect.A:
                    raise no_such_method()
                return await answer(owner, ctx.params or {})
            except Refused as exc:
                lookup = exc.reason in ("not_found", "expired")
                log.info(
                    "task_lookup_failed" if lookup else "task_request_refused",
                    method=ctx.method,
                    reason=exc.reason,
                    code=exc.code,
                    owner=owner,
                    dialect=Dialect.A.value,
                )
                raise

        return handle
