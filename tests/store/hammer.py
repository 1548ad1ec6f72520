"""One of several processes that work on one database at once; run by test_processes.

``hammer.py URL NAME SECONDS``: inserts, claims, counts up shared rows. Prints a line of JSON for
each thing done, after it was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import replace

from workflow_bridge.store import open_store
from workflow_bridge.testing.store_contract import ARGUMENTS, LEASE, new_task


def say(what: str, *details: object) -> None:
    print(json.dumps([what, *details]), flush=True)


async def main(url: str, name: str, seconds: float) -> None:
    store = open_store(url)
    say("opened")
    until = time.monotonic() + seconds
    counters = await store.page("counters", after=None, limit=10)

    async def create() -> None:
        number = 0
        while time.monotonic() < until:
            task = new_task(store, f"{name}-{number}")
            await store.insert(task, ARGUMENTS, cap=1_000_000)
            say("inserted", task.row_id)
            number += 1

    async def claim() -> None:
        while time.monotonic() < until:
            for row in await store.claim(["orders"], limit=3, lease=LEASE):
                say("claimed", row.row_id, row.version)

    async def count() -> None:
        while time.monotonic() < until:
            row = await store.row(random.choice(counters).row_id)
            assert row is not None
            if await store.apply(row, replace(row, attempts=row.attempts + 1)) is not None:
                say("counted", row.row_id)
            await asyncio.sleep(0)

    await asyncio.gather(create(), claim(), count(), count())
    await store.aclose()
    say("done")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
