"""What surrounds every message: neutral errors, A's capability, cancellation that means it."""

from __future__ import annotations

from typing import Any, Final

import anyio
import structlog
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import ValidationError

from workflow_bridge.core.service import (
    AlreadyFinal,
    CannotStop,
    TaskExpired,
    TaskNotFound,
    TaskService,
)
from workflow_bridge.core.store import StoreUnavailable
from workflow_bridge.protocol.dialects import RELATED_TASK, members
from workflow_bridge.protocol.inflight import (
    Binding,
    Calls,
    Context,
    Owner,
    connection_of,
    stands_alone,
)
from workflow_bridge.protocol.metadata import id_fault

log = structlog.get_logger(__name__)

TASKS_CAPABILITY: Final[dict[str, Any]] = {
    "list": {},
    "cancel": {},
    "requests": {"tools": {"call": {}}},
}
"""A-30, in the shape of B-1."""

_MAX_FAULTS: Final = 3


async def speak_neutrally(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Turn whatever is not meant for clients into "Internal error", and log it (A-18).

    What the SDK refuses for its shape is told where and why, without repeating the value.
    """
    try:
        return await call_next(ctx)
    except MCPError as exc:
        if _came_too_early(ctx, exc):
            raise MCPError(INVALID_PARAMS, "Not initialized yet: send initialize first") from exc
        raise
    except ValidationError as exc:
        raise MCPError(INVALID_PARAMS, f"Invalid request parameters: {_faults(exc)}") from exc
    except StoreUnavailable as exc:
        log.warning("database_unavailable", method=ctx.method, reason=str(exc))
        message = "The bridge's database does not answer; nothing is lost, try again later"
        raise MCPError(INTERNAL_ERROR, message) from exc
    except Exception as exc:
        log.exception("request_failed", method=ctx.method)
        raise MCPError(INTERNAL_ERROR, "Internal error") from exc


def _came_too_early(ctx: Context, error: MCPError) -> bool:
    """Whether this is how the SDK refuses what precedes the handshake.

    The session alone does not tell: a client may go on without having said who it is.
    """
    refusal = (INVALID_PARAMS, "Invalid request parameters", "")
    told = (error.error.code, error.error.message, error.error.data)
    return ctx.session.client_params is None and told == refusal


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(str(part) for part in fault['loc'])[:200]}: {fault['msg'][:200]}"
        for fault in faults[:_MAX_FAULTS]
    ]
    return "; ".join(told)


async def declare_tasks(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Declare the tasks capability in the answer to `initialize` (A-30)."""
    result = await call_next(ctx)
    if ctx.method == "initialize" and isinstance(result, dict):
        capabilities = {**result["capabilities"], "tasks": TASKS_CAPABILITY}
        return {**result, "capabilities": capabilities}
    return result


def keep_track_of_calls(service: TaskService, owner: Owner) -> ServerMiddleware[Calls]:
    """Make a middleware that registers tool calls, and cancels the task of a cancelled one."""

    async def track(ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call" and ctx.request_id is not None:
            return await _tracked(ctx, call_next)
        if ctx.method == "notifications/cancelled" and ctx.request_id is None:
            await _cancelled(ctx, service, owner)
        return await call_next(ctx)

    return track


async def _tracked(ctx: Context, call_next: CallNext) -> HandlerResult:
    calls, connection = ctx.lifespan_context, connection_of(ctx)
    assert ctx.request_id is not None
    call = calls.begin(connection, ctx.request_id)
    try:
        result = await call_next(ctx)
    except anyio.get_cancelled_exc_class():
        calls.abandoned(connection, ctx.request_id, call)
        raise
    except BaseException:
        calls.answered(connection, ctx.request_id, call)
        raise
    calls.answered(connection, ctx.request_id, call)
    return result


async def _cancelled(ctx: Context, service: TaskService, owner: Owner) -> None:
    """Cancel the task of a call that its client cancelled (A-21, P-3), even while it hangs up.

    Where nothing tells clients apart, the number of a request may be that of anybody's, in this
    process or in another: then the task counts that the notification is tied to (A-17).
    """
    if stands_alone(connection_of(ctx)):
        await _cancelled_by_name(ctx, service, owner(ctx))
        return
    request_id = cancelled_request_id_from_params(ctx.params)
    call = None
    if request_id is not None:
        call = ctx.lifespan_context.find(connection_of(ctx), request_id)
    if call is None:
        return
    with anyio.CancelScope(shield=True):
        await call.settled.wait()
        if call.binding is not None:
            await _cancel(service, call.binding)


async def _cancelled_by_name(ctx: Context, service: TaskService, owner: str) -> None:
    meta = members((ctx.params or {}).get("_meta"))
    task_id = members(meta.get(RELATED_TASK)).get("taskId")
    if not isinstance(task_id, str) or id_fault(task_id) is not None:
        return
    with anyio.CancelScope(shield=True):
        try:
            task = await service.peek(owner, task_id)
        except (TaskNotFound, TaskExpired):
            return
        await _cancel(service, Binding(owner, task, at_once=True))


async def _cancel(service: TaskService, made: Binding) -> None:
    task, facts = made.task, _facts(made)
    log.info("cancel_requested", **facts)
    try:
        await service.cancel(made.owner, task.task_id, at_once=made.at_once)
    except (AlreadyFinal, TaskNotFound, TaskExpired):
        log.info("cancel_came_late", **facts)
    except CannotStop:
        log.info("cancel_not_possible", **facts)


def _facts(made: Binding) -> dict[str, Any]:
    task = made.task
    return {
        "row_id": task.row_id,
        "owner": made.owner,
        "tool": task.tool,
        "dialect": task.dialect.value,
    }
