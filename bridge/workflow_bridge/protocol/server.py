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
from workflow_bridge.protocol.dialects import CORE_TASKS, TASK, knows_tasks, recognise
from workflow_bridge.protocol.errors import Refused, invalid, no_such_method
from workflow_bridge.protocol.facade import Facade, Permitted
from workflow_bridge.protocol.facade_tools import TOOLS as FACADE
from workflow_bridge.protocol.inflight import Calls, Context, Owner, connection_of
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
    facade: bool = True,
    permitted: Permitted = lambda ctx, tool: True,  # noqa: ARG005 — a name for each
) -> Server[Calls]:
    """Return a server that speaks A and plain, over any transport of the SDK.

    ``owner`` says whom a request's tasks belong to. ``delete_running``: deleting a task that has
    not ended cancels it first, instead of being refused. ``hand_over`` can end all plain waiting.
    ``facade``: clients without tasks get tools to look after theirs. ``permitted`` says whether a
    request may have to do with tasks of a tool, configured or no longer.
    """
    server = Server(name, version=version, instructions=instructions, lifespan=_calls)
    limits = Limits(rates)
    hand_over = hand_over or HandOver()
    a = DialectA(service, tools, limits, delete_running=delete_running)
    plain = Plain(service, max_wait=plain_max_wait, hand_over=hand_over, facade=facade)
    facade_tools = Facade(
        service,
        tools,
        limits,
        max_wait=plain_max_wait,
        hand_over=hand_over,
        permitted=permitted,
    )
    desk = _Desk(tools, owner, limits, a, plain, facade_tools if facade else None)
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
    server.middleware += [declare_tasks, keep_track_of_calls(service, owner)]
    return server


@asynccontextmanager
async def _calls(server: Server[Calls]) -> AsyncIterator[Calls]:
    del server
    yield Calls()


def _arguments(ctx: Context) -> Any:
    """Return a call's arguments as they were sent, not as a model read them (R13)."""
    arguments = (ctx.params or {}).get("arguments")
    return {} if arguments is None else arguments


def _for_the_model(refused: Refused, version: str) -> bool:
    """Whether a plain call's refusal is a tool error: something that a model can put right.

    So says the protocol from 2025-11-25 on; before, hosts expect a protocol error.
    """
    return refused.reason == "arguments" and version >= CORE_TASKS


class _Desk:
    """Takes requests in, and hands each to the dialect it is in."""

    def __init__(
        self,
        tools: Mapping[str, ToolSpec],
        owner: Owner,
        limits: Limits,
        a: DialectA,
        plain: Plain,
        facade: Facade | None,
    ) -> None:
        self._tools = tools
        self._owner = owner
        self._limits = limits
        self._a = a
        self._plain = plain
        self._facade = facade

    async def list_tools(self, ctx: Context, params: PaginatedRequestParams) -> ListToolsResult:
        """Answer `tools/list`: all tools on one page, with the facade for clients without tasks."""
        if params.cursor is not None:
            raise invalid("cursor", "Invalid cursor; all tools are on the first page")
        shown = sorted(self._tools.values(), key=lambda tool: tool.name)
        used_a = ctx.lifespan_context.spoke_a(connection_of(ctx))
        if self._facade is not None and not knows_tasks(
            ctx.params, ctx.protocol_version, used_a=used_a, spoken=SPOKEN
        ):
            shown += FACADE.values()
        return listed(shown)

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> dict[str, Any]:
        """Answer `tools/call`, in A or plain."""
        owner = self._owner(ctx)
        tool = self._tools.get(params.name)
        dialect = Dialect.PLAIN
        try:
            dialect = self._dialect(ctx)
            if tool is None and not self._offers(params.name):
                message = f"Unknown tool: {params.name[:200]}; tools/list names those there are"
                raise invalid("unknown_tool", message)
            if tool is not None and dialect is Dialect.A and tool.task != "never":
                wanted = task_metadata((ctx.params or {})["_meta"][TASK])
                return await self._a.call(self._checked(ctx, owner, tool), wanted)
            # A tool that is never a task takes no notice of the metadata.
            dialect = Dialect.PLAIN
            result = await self._plainly(ctx, owner, params.name, tool)
        except Refused as exc:
            log.info(
                "task_refused",
                reason=exc.reason,
                code=exc.code,
                owner=owner,
                tool=tool.name if tool else None,
                dialect=dialect.value,
            )
            if dialect is not Dialect.PLAIN or not _for_the_model(exc, ctx.protocol_version):
                raise
            result = {"content": [{"type": "text", "text": exc.error.message}], "isError": True}
        # The SDK's per-version sieve asks for it from 2026-07-28 on, and takes it out before.
        return {**result, "resultType": "complete"}

    def _offers(self, name: str) -> bool:
        return self._facade is not None and name in FACADE

    async def _plainly(
        self, ctx: Context, owner: str, name: str, tool: ToolSpec | None
    ) -> dict[str, Any]:
        if tool is None:
            assert self._facade is not None
            arguments = _arguments(ctx)
            FACADE[name].check_arguments(arguments)
            return await self._facade.call(ctx, owner, name, arguments)
        self._plain.admit(tool)
        return await self._plain.call(self._checked(ctx, owner, tool))

    def _checked(self, ctx: Context, owner: str, tool: ToolSpec) -> ToolCall:
        self._limits.create(owner)
        arguments = _arguments(ctx)
        tool.check_arguments(arguments)
        calls = ctx.lifespan_context
        call = None if ctx.request_id is None else calls.find(connection_of(ctx), ctx.request_id)
        if call is None:
            raise LookupError("a tools/call that the middleware did not register")
        return ToolCall(ctx=ctx, call=call, owner=owner, tool=tool, arguments=arguments)

    def _dialect(self, ctx: Context) -> Dialect:
        calls, connection = ctx.lifespan_context, connection_of(ctx)
        dialect = recognise(
            ctx.method,
            ctx.params,
            ctx.protocol_version,
            used_a=calls.spoke_a(connection),
            spoken=SPOKEN,
        )
        if dialect is Dialect.A:
            calls.speaks_a(connection)
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
