"""Calling a blocking SDK without ever blocking the event loop.

`anyio.to_thread` is not used because its threads keep the process alive until they end, and because
it gives a slot back when the waiting coroutine gives up, although the call itself still runs.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from workflow_bridge_adapters.step_functions.errors import Call, lost, not_sent, sdk_missing

if TYPE_CHECKING:
    from workflow_bridge_adapters.step_functions.sdk import Sdk
    from workflow_bridge_adapters.step_functions.settings import StepFunctionsSettings

RUN_READ_TIMEOUT = timedelta(seconds=320)
"""Longer than the five minutes that an EXPRESS run may take."""
RUN_TIMEOUT = RUN_READ_TIMEOUT + timedelta(seconds=10)

Response: TypeAlias = dict[str, Any]
"""An answer of the SDK, as it arrives."""

_ANSWERS_HAVE = {
    Call.START: "executionArn",
    Call.RUN: "status",
    Call.OBSERVE: "status",
    Call.NARRATE: "events",
    Call.CHECK: "type",
    Call.LIST: "executions",
}
"""What no answer of the real service lacks; a captive portal's or a broken proxy's does."""


class Attempt:
    """One call's leave to send its request, and whether it has made use of it.

    Giving up and sending exclude each other: after `give_up` nothing leaves any more, so that what
    it returns is the truth for good.
    """

    def __init__(self, send_by: float) -> None:
        self._send_by = send_by
        self._given_up = False
        self._sent = False
        self._lock = threading.Lock()

    @property
    def sent(self) -> bool:
        """True once the request may have left."""
        return self._sent

    def may_send(self) -> bool:
        """Ask for leave right before sending."""
        with self._lock:
            if self._given_up or time.monotonic() > self._send_by:
                return False
            self._sent = True
            return True

    def give_up(self) -> bool:
        """Forbid any further sending; True if something may have been sent before."""
        with self._lock:
            self._given_up = True
            return self._sent


class DaemonThreads:
    """At most ``size`` threads, made when needed. A thread is busy until its function returns."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = 0
        self._unfinished = 0
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], Response]) -> Future[Response]:
        """Queue ``function``; cancelling the future before it begins takes it out again."""
        future: Future[Response] = Future()
        with self._lock:
            if self._unfinished >= self._threads and self._threads < self._size:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
                self._threads += 1
            self._unfinished += 1
        self._jobs.put((future, function))
        return future

    def close(self) -> None:
        """Let every thread end after what is queued."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._threads = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _finish(*job)
            del job
            with self._lock:
                self._unfinished -= 1


def _finish(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as exc:  # noqa: BLE001 - raised again where the future is awaited
        future.set_exception(exc)
    else:
        future.set_result(result)


class Calls:
    """Step Functions' API with deadlines: bounded in number, raising `AdapterError`s only."""

    def __init__(self, settings: StepFunctionsSettings, sdk: Sdk | None = None) -> None:
        self._settings = settings
        self._sdk = sdk
        self._sdk_lock = threading.Lock()
        # Inline runs last minutes: in one pool they would keep everything else waiting.
        self._quick = DaemonThreads(settings.max_connections, "step-functions")
        self._inline = DaemonThreads(settings.max_connections, "step-functions-inline")

    async def __call__(self, call: Call, parameters: Mapping[str, object]) -> Response:
        """Send one request. Nothing leaves once this has returned or was cancelled."""
        within, send_within = self._deadlines(call)
        attempt = Attempt(time.monotonic() + send_within.total_seconds())
        threads = self._inline if call is Call.RUN else self._quick
        future = threads.submit(partial(self._send, call, parameters, attempt))
        try:
            with anyio.fail_after(within.total_seconds()):
                return await asyncio.wrap_future(future)
        except TimeoutError as exc:
            raise (lost(call) if attempt.give_up() else not_sent()) from exc
        finally:
            attempt.give_up()
            future.cancel()

    def _deadlines(self, call: Call) -> tuple[timedelta, timedelta]:
        """Return the whole call's deadline, and the one by which the request must be on its way.

        What starts something must be sent early enough that the answer's own time-out passes before
        the whole call's: afterwards nothing of it can be on the wire.
        """
        settings = self._settings
        match call:
            case Call.START:
                spent = settings.connect_timeout + settings.read_timeout
                return settings.start_timeout, settings.start_timeout - spent
            case Call.RUN:
                return RUN_TIMEOUT, RUN_TIMEOUT - RUN_READ_TIMEOUT - settings.connect_timeout
            case _:
                return settings.call_timeout, settings.call_timeout

    def _send(self, call: Call, parameters: Mapping[str, object], attempt: Attempt) -> Response:
        response = self._loaded_sdk().send(call, parameters, attempt)
        if call in _ANSWERS_HAVE and _ANSWERS_HAVE[call] not in response:
            raise lost(call)
        return response

    def _loaded_sdk(self) -> Sdk:
        with self._sdk_lock:
            if self._sdk is None:
                try:
                    from workflow_bridge_adapters.step_functions.sdk import Sdk
                except ImportError as exc:
                    raise sdk_missing() from exc

                self._sdk = Sdk(self._settings)
            return self._sdk

    def close(self) -> None:
        """Close connections and let the threads end."""
        self._quick.close()
        self._inline.close()
        if self._sdk is not None:
            self._sdk.close()
