"""How the server ends: in order, in bounded time, and without a task."""

from __future__ import annotations

import anyio
import pytest

from tests.http.test_isolation import owner_of
from tests.http.wire import ENVELOPE, site
from tests.protocol.bench import bench, until

pytestmark = pytest.mark.anyio


async def test_what_is_open_ends_and_what_comes_is_refused() -> None:
    async with bench() as b, site(b, drain=1.0) as made:
        async with (
            made.connected() as wire,
            made.connected() as plain,
            made.connected(handshake=False) as modern,
        ):
            await wire.open_stream()
            call = await wire.create("t")
            calls = [await plain.call(), await modern.call(meta=ENVELOPE, request_id=1)]
            await until(lambda: len(b.engine.executions) == 3)
            async with anyio.create_task_group() as group:
                group.start_soon(made.app.drain)
                for client, asked in zip((plain, modern), calls, strict=True):
                    result = (await client.answer(asked))["result"]
                    assert "The work of 'run' goes on" in result["content"][0]["text"]
                    assert result["isError"] is False
                late = await wire.client.get(f"{made.base}/readyz")
                assert (late.status_code, late.json()) == (503, {"status": "ending"})
                late = await wire.client.post(wire.url, json={}, headers=wire.headers)
                assert (late.status_code, late.headers["retry-after"]) == (503, "1")
                assert (await wire.client.get(f"{made.base}/healthz")).status_code == 200
            await until(lambda: made.open == 0)
            # The stream of the A call ended, without an answer that could be taken for the end.
            assert wire.answered(call) is None
        assert not b.engine.called("stop")
        (task,) = (await b.service.page(owner_of(wire), None))[0]
        assert not task.final


async def test_what_is_answered_soon_is_answered() -> None:
    async with bench() as b, site(b, drain=5.0) as made, made.connected() as wire:
        call = await wire.create("t")
        await until(lambda: b.engine.executions)
        async with anyio.create_task_group() as group:
            group.start_soon(made.app.drain)
            task = (await b.service.page(owner_of(wire), None))[0][0]
            await b.service.cancel(task.owner, "t", at_once=True)
            assert (await wire.answer(call))["result"]["isError"] is True
