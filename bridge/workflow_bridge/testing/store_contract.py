"""What every task store promises, as tests.

A store proves itself with a class of a few lines::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, clock):
            store = MyStore(..., clock=clock)
            yield store
            await store.aclose()
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from workflow_bridge.adapter import ExecutionRef
from workflow_bridge.core.store import (
    MAX_LEASE,
    MAX_SLEEP,
    ClientKeyTaken,
    NameTaken,
    Position,
    TaskStore,
    TooManyTasks,
)
from workflow_bridge.core.task import (
    LEGAL_MOVES,
    Dialect,
    Event,
    OutcomeKind,
    Payload,
    Status,
    Task,
    digest,
    execution_key,
    new_row_id,
)
from workflow_bridge.testing.memory_store import ManualClock

ARGUMENTS = b'{"order_id": "7"}'
MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)


def new_task(store: TaskStore, task_id: str = "t", **fields: Any) -> Task:
    """Return a submitted task that is due at once, made now."""
    now = store.now()
    row_id = new_row_id()
    given: dict[str, Any] = {
        "row_id": row_id,
        "owner": "local",
        "task_id": task_id,
        "dialect": Dialect.A,
        "tool": "settle_order",
        "backend": "orders",
        "fingerprint": "fake/1/eu",
        "workflow": "arn:fake:settle-order",
        "key": execution_key(row_id),
        "arguments_digest": digest(ARGUMENTS),
        "keep_alive": timedelta(days=1),
        "poll_interval": timedelta(seconds=5),
        "created_at": now,
        "updated_at": now,
        "due_at": now,
    }
    return Task(**{**given, **fields})


async def added(store: TaskStore, task_id: str = "t", **fields: Any) -> Task:
    """Insert such a task and return it."""
    task = new_task(store, task_id, **fields)
    await store.insert(task, ARGUMENTS)
    return task


async def moved(store: TaskStore, before: Task, **changes: Any) -> Task:
    """Apply changes that must succeed."""
    after = await store.apply(before, replace(before, **changes))
    assert after is not None
    return after


def ids(rows: Sequence[Task]) -> list[str]:
    """Return the task ids, in order."""
    return [row.task_id for row in rows]


@pytest.mark.anyio
class StoreContract:
    """The contract; supply the fixture ``store``, on the fixture ``clock``."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(1_750_000_000.125)

    # --- rows -------------------------------------------------------------------------------------

    async def test_a_row_comes_back_as_it_was_inserted(self, store: TaskStore) -> None:
        task = await added(store, "client/abc:123 🙂 '; DROP TABLE tasks; --")
        assert await store.get("local", task.task_id) == task
        assert await store.row(task.row_id) == task
        assert await store.payload(task.row_id) == Payload(arguments=ARGUMENTS)

    async def test_every_field_comes_back_to_the_millisecond(self, store: TaskStore) -> None:
        now = store.now()
        moments: dict[str, Any] = {
            name: now + n * MS
            for n, name in enumerate(
                (
                    "created_at",
                    "updated_at",
                    "final_at",
                    "ended_at",
                    "expires_at",
                    "start_called_at",
                    "start_settled_at",
                    "stop_requested_at",
                    "stop_confirmed_at",
                    "due_at",
                    "lease_until",
                    "last_observed_at",
                    "missing_since",
                    "hidden_at",
                )
            )
        }
        task = await added(
            store,
            **moments,
            dialect=Dialect.PLAIN,
            inline=True,
            client_key="k",
            ref=ExecutionRef("arn:1"),
            status=Status.FAILED,
            status_message="ë",
            step="Charge",
            outcome=OutcomeKind.TIMED_OUT,
            keep_alive=None,
            ttl=timedelta(milliseconds=1234),
            poll_interval=timedelta(milliseconds=4321),
            attempts=3,
            last_error="throttled",
        )
        assert await store.row(task.row_id) == task

    async def test_finer_times_are_cut(self, store: TaskStore) -> None:
        task = await added(store)
        ended = store.now() + timedelta(microseconds=1999)
        after = await moved(store, task, ended_at=ended)
        assert after.ended_at == store.now() + MS
        assert await store.row(task.row_id) == after

    async def test_foreign_and_absent_look_alike(self, store: TaskStore) -> None:
        task = await added(store)
        assert await store.get("session:other", task.task_id) is None
        assert await store.get("local", "other") is None
        assert await store.row(new_row_id()) is None
        assert await store.payload(new_row_id()) == Payload()
        assert await store.events(new_row_id()) in ([], ())

    async def test_a_hidden_or_expired_row_is_still_got_and_holds_its_name(
        self, store: TaskStore
    ) -> None:
        task = await added(store)
        after = await moved(store, task, hidden_at=store.now(), expires_at=store.now())
        assert await store.get("local", "t") == after
        with pytest.raises(NameTaken):
            await added(store)

    async def test_a_name_is_the_owners(self, store: TaskStore) -> None:
        await added(store, owner="session:1")
        await added(store, owner="session:2")
        with pytest.raises(NameTaken):
            await added(store, owner="session:1")

    async def test_a_refused_insert_leaves_nothing(self, store: TaskStore) -> None:
        await added(store)
        again = new_task(store)
        with pytest.raises(NameTaken):
            await store.insert(again, b"other")
        assert await store.row(again.row_id) is None
        assert await store.payload(again.row_id) == Payload()
        assert len(await store.events(again.row_id)) == 0

    async def test_of_many_inserts_of_one_name_one_wins(self, store: TaskStore) -> None:
        tasks = [new_task(store) for _ in range(8)]
        results = await asyncio.gather(
            *(store.insert(task, ARGUMENTS) for task in tasks), return_exceptions=True
        )
        (winner,) = [task for task, result in zip(tasks, results, strict=True) if result is None]
        assert await store.get("local", "t") == winner
        assert [type(result) for result in results].count(NameTaken) == 7

    async def test_a_client_key_is_taken_once_per_owner_and_tool(self, store: TaskStore) -> None:
        await added(store, "1", client_key="k")
        await added(store, "2", client_key="k", tool="other")
        await added(store, "3", client_key="k", owner="session:1")
        await added(store, "4")
        with pytest.raises(ClientKeyTaken):
            await added(store, "5", client_key="k")

    async def test_the_cap_counts_what_is_not_final_and_settled(self, store: TaskStore) -> None:
        now = store.now()
        await added(store, "running")
        await added(store, "final, start in doubt", status=Status.CANCELLED, start_called_at=now)
        await added(
            store,
            "final, stop pending",
            status=Status.CANCELLED,
            start_settled_at=now,
            stop_requested_at=now,
        )
        await added(store, "settled", status=Status.COMPLETED, start_settled_at=now)
        await added(
            store,
            "stopped",
            status=Status.CANCELLED,
            start_settled_at=now,
            stop_requested_at=now,
            stop_confirmed_at=now,
        )
        await added(store, "foreign", owner="session:1")
        with pytest.raises(TooManyTasks):
            await store.insert(new_task(store, "one more"), ARGUMENTS, cap=3)
        assert await store.get("local", "one more") is None
        await store.insert(new_task(store, "one more"), ARGUMENTS, cap=4)

    async def test_the_cap_holds_when_inserts_race(self, store: TaskStore) -> None:
        results = await asyncio.gather(
            *(store.insert(new_task(store, f"t{n}"), ARGUMENTS, cap=3) for n in range(10)),
            return_exceptions=True,
        )
        assert [type(result) for result in results].count(TooManyTasks) == 7
        assert len(await store.page("local", after=None, limit=100)) == 3

    # --- lists ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_a_list_is_in_order_of_creation_in_pages_without_gaps(
        self, store: TaskStore, clock: ManualClock, newest_first: bool
    ) -> None:
        wanted = []
        for n in range(9):
            wanted.append(await added(store, f"t{n}"))
            if n % 3 == 0:  # some share their time of creation
                clock.advance(MS)
        wanted.sort(key=lambda task: (task.created_at, task.row_id), reverse=newest_first)
        found: list[Task] = []
        while page := await store.page(
            "local",
            after=Position(found[-1].created_at, found[-1].row_id) if found else None,
            limit=2,
            newest_first=newest_first,
        ):
            found += page
        assert found == wanted

    async def test_a_list_shows_only_the_owners_visible_tasks(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        await added(store, "shown", expires_at=store.now() + SECOND)
        await added(store, "for ever")
        await added(store, "hidden", hidden_at=store.now())
        await added(store, "expired", expires_at=store.now())
        clock.advance(MS)
        await added(store, "foreign", owner="session:1")
        assert set(ids(await store.page("local", after=None, limit=9))) == {"shown", "for ever"}
        assert ids(await store.page("session:1", after=None, limit=9)) == ["foreign"]
        assert len(await store.page(None, after=None, limit=9)) == 3
        clock.advance(SECOND)
        assert ids(await store.page("local", after=None, limit=9)) == ["for ever"]

    # --- changes ----------------------------------------------------------------------------------

    async def test_a_change_counts_the_version_and_is_what_reads_show(
        self, store: TaskStore
    ) -> None:
        task = await added(store)
        after = await moved(store, task, status=Status.WORKING, step="Charge", attempts=2)
        assert after == replace(
            task, status=Status.WORKING, step="Charge", attempts=2, version=task.version + 1
        )
        assert await store.row(task.row_id) == after

    async def test_a_change_of_an_old_version_is_lost(self, store: TaskStore) -> None:
        task = await added(store)
        after = await moved(store, task, status=Status.WORKING)
        late = replace(task, status=Status.FAILED)
        assert await store.apply(task, late, payload=Payload(error="E")) is None
        assert await store.row(task.row_id) == after
        assert await store.payload(task.row_id) == Payload(arguments=ARGUMENTS)
        assert len(await store.events(task.row_id)) == 2

    async def test_a_change_of_a_row_that_is_gone_is_lost(self, store: TaskStore) -> None:
        task = new_task(store)
        assert await store.apply(task, replace(task, attempts=1)) is None

    async def test_of_many_changes_of_one_version_one_wins(self, store: TaskStore) -> None:
        task = await added(store)
        results = await asyncio.gather(
            *(store.apply(task, replace(task, attempts=n)) for n in range(1, 9))
        )
        (winner,) = [result for result in results if result is not None]
        assert await store.row(task.row_id) == winner

    @pytest.mark.parametrize("before", Status)
    @pytest.mark.parametrize("after", Status)
    async def test_only_legal_moves_are_made(
        self, store: TaskStore, before: Status, after: Status
    ) -> None:
        task = await added(store, status=before)
        wanted = replace(task, status=after)
        if after in LEGAL_MOVES[before] or after is before:
            assert await store.apply(task, wanted) == replace(wanted, version=2)
        else:
            with pytest.raises(ValueError, match="move"):
                await store.apply(task, wanted)
            assert await store.row(task.row_id) == task

    async def test_final_is_final_even_for_a_caller_who_is_wrong_about_the_status(
        self, store: TaskStore
    ) -> None:
        task = await added(store, status=Status.COMPLETED)
        wrong = replace(task, status=Status.WORKING)
        assert await store.apply(wrong, replace(wrong, status=Status.FAILED)) is None
        assert await store.row(task.row_id) == task

    async def test_a_task_does_not_change_its_identity(self, store: TaskStore) -> None:
        task = await added(store)
        for change in ({"owner": "x"}, {"task_id": "x"}, {"key": "x"}, {"row_id": "x"}):
            with pytest.raises(ValueError, match="same"):
                await store.apply(task, replace(task, **change))  # type: ignore[arg-type]

    async def test_a_payload_is_left_replaced_or_dropped(self, store: TaskStore) -> None:
        task = await added(store)
        task = await moved(store, task, attempts=1)
        assert await store.payload(task.row_id) == Payload(arguments=ARGUMENTS)
        full = Payload(arguments=b"\x00\xff", output='"ü"', error="E", cause="C")
        changed = await store.apply(task, replace(task, attempts=2), payload=full)
        assert changed is not None
        assert await store.payload(task.row_id) == full
        await store.apply(changed, replace(changed, attempts=3), payload=Payload())
        assert await store.payload(task.row_id) == Payload()

    async def test_a_settled_start_drops_the_arguments(self, store: TaskStore) -> None:
        task = await added(store)
        task = await moved(store, task, start_settled_at=store.now())
        assert await store.payload(task.row_id) == Payload()
        wanted = Payload(arguments=b"late", output="1")
        await store.apply(task, replace(task, attempts=1), payload=wanted)
        assert await store.payload(task.row_id) == Payload(output="1")

    async def test_a_removed_row_leaves_its_events_and_frees_its_name(
        self, store: TaskStore
    ) -> None:
        task = await added(store)
        after = await moved(store, task, hidden_at=store.now())
        assert not await store.remove(task)
        assert await store.remove(after)
        assert not await store.remove(after)
        assert await store.row(task.row_id) is None
        assert await store.payload(task.row_id) == Payload()
        assert [event.kind for _, event in await store.events(task.row_id)] == ["created", "hidden"]
        await added(store)

    async def test_events_are_written_in_order_with_the_change(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        task = await added(store)
        created = store.now()
        clock.advance(SECOND)
        extra = Event("adopted", Status.WORKING, "arn:2")
        after = replace(
            task,
            ref=ExecutionRef("arn:1"),
            start_settled_at=store.now(),
            status=Status.WORKING,
            status_message="begun",
        )
        await store.apply(task, after, events=[extra])
        assert list(await store.events(task.row_id)) == [
            (created, Event("created", Status.SUBMITTED)),
            (store.now(), Event("bound", Status.WORKING, "arn:1")),
            (store.now(), Event("status", Status.WORKING, "begun")),
            (store.now(), extra),
        ]

    # --- claims -----------------------------------------------------------------------------------

    async def test_a_claim_leases_what_is_due_longest_due_first(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        now = store.now()
        await added(store, "later", due_at=now - SECOND)
        first = await added(store, "first", due_at=now - 2 * SECOND, backend="other")
        await added(store, "not yet", due_at=now + MS)
        await added(store, "never", due_at=None)
        await added(store, "foreign", due_at=now - 3 * SECOND, backend="foreign")
        claimed = await store.claim(["orders", "other"], limit=1, lease=LEASE)
        assert list(claimed) == [replace(first, lease_until=now + LEASE, version=2)]
        assert await store.row(first.row_id) == claimed[0]
        assert ids(await store.claim(["orders", "other"], limit=9, lease=LEASE)) == ["later"]
        clock.advance(MS)
        assert ids(await store.claim(["orders", "other"], limit=9, lease=LEASE)) == ["not yet"]
        assert await store.claim([], limit=9, lease=LEASE) in ([], ())

    async def test_a_leased_row_is_claimed_again_only_once_the_lease_has_lapsed(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        task = await added(store)
        assert ids(await store.claim(["orders"], limit=9, lease=LEASE)) == ["t"]
        clock.advance(LEASE - MS)
        assert not await store.claim(["orders"], limit=9, lease=LEASE)
        assert await store.claim_row(task.row_id, unseen=False, lease=LEASE) is None
        clock.advance(MS)
        assert ids(await store.claim(["orders"], limit=9, lease=LEASE)) == ["t"]

    async def test_a_claim_makes_the_version_read_before_it_old(self, store: TaskStore) -> None:
        task = await added(store)
        (claimed,) = await store.claim(["orders"], limit=1, lease=LEASE)
        assert await store.apply(task, replace(task, attempts=1)) is None
        assert await store.apply(claimed, replace(claimed, lease_until=None)) is not None

    async def test_racing_claims_are_disjoint(self, store: TaskStore) -> None:
        wanted = {f"t{n}" for n in range(20)}
        for name in sorted(wanted):
            await added(store, name)
        batches = await asyncio.gather(
            *(store.claim(["orders"], limit=3, lease=LEASE) for _ in range(10))
        )
        claimed = [row.task_id for batch in batches for row in batch]
        while rest := await store.claim(["orders"], limit=3, lease=LEASE):
            claimed += ids(rest)
        assert sorted(claimed) == sorted(wanted)

    async def test_a_lease_that_a_jump_of_the_clock_put_far_ahead_counts_as_lapsed(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        task = await added(store)
        assert await store.claim(["orders"], limit=1, lease=MAX_LEASE)
        clock.advance(-SECOND)
        assert await store.claim_row(task.row_id, unseen=False, lease=LEASE) is not None
        clock.advance(-timedelta(days=1))
        due = await store.claim(["orders"], limit=1, lease=LEASE)
        assert ids(due) == ["t"]

    async def test_a_due_time_that_a_jump_of_the_clock_put_far_ahead_counts_as_come(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        far = store.now() + MAX_SLEEP
        await added(store, "asleep", due_at=far)
        await added(store, "to stop", due_at=far, status=Status.CANCELLED)
        await added(
            store, "kept", due_at=far, status=Status.COMPLETED, start_settled_at=store.now()
        )
        assert not await store.claim(["orders"], limit=9, lease=LEASE)
        clock.advance(-MS)
        assert await store.next_due(["orders"]) == store.now()
        claimed = await store.claim(["orders"], limit=9, lease=LEASE)
        assert sorted(ids(claimed)) == ["asleep", "to stop"]

    async def test_no_lease_is_longer_than_the_longest(self, store: TaskStore) -> None:
        task = await added(store)
        with pytest.raises(ValueError, match="lease"):
            await store.claim(["orders"], limit=1, lease=MAX_LEASE + MS)
        with pytest.raises(ValueError, match="lease"):
            await store.claim_row(task.row_id, unseen=False, lease=MAX_LEASE + MS)

    async def test_a_row_is_claimed_early_whether_due_or_not(self, store: TaskStore) -> None:
        task = await added(store, due_at=None)
        claimed = await store.claim_row(task.row_id, unseen=False, lease=LEASE)
        assert claimed == replace(task, lease_until=store.now() + LEASE, version=2)
        assert await store.row(task.row_id) == claimed
        assert await store.claim_row(new_row_id(), unseen=False, lease=LEASE) is None

    async def test_a_row_looked_at_within_its_poll_interval_is_not_claimed_unseen(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        task = await added(store, last_observed_at=store.now(), poll_interval=5 * SECOND)
        clock.advance(5 * SECOND - MS)
        assert await store.claim_row(task.row_id, unseen=True, lease=LEASE) is None
        clock.advance(MS)
        claimed = await store.claim_row(task.row_id, unseen=True, lease=LEASE)
        assert claimed is not None
        await moved(store, claimed, lease_until=None)
        clock.advance(-timedelta(days=1))
        assert await store.claim_row(task.row_id, unseen=True, lease=LEASE) is not None

    async def test_a_row_never_looked_at_is_unseen(self, store: TaskStore) -> None:
        task = await added(store)
        assert await store.claim_row(task.row_id, unseen=True, lease=LEASE) is not None

    async def test_a_row_that_backs_off_from_a_failed_call_is_not_claimed_unseen(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        task = await added(store, attempts=1, due_at=store.now() + SECOND)
        assert await store.claim_row(task.row_id, unseen=True, lease=LEASE) is None
        clock.advance(SECOND)
        claimed = await store.claim_row(task.row_id, unseen=True, lease=LEASE)
        assert claimed is not None
        await moved(store, claimed, lease_until=None, due_at=store.now() + SECOND)
        assert await store.claim_row(task.row_id, unseen=False, lease=LEASE) is not None

    async def test_of_many_early_claims_one_wins(self, store: TaskStore) -> None:
        task = await added(store)
        results = await asyncio.gather(
            *(store.claim_row(task.row_id, unseen=True, lease=LEASE) for _ in range(8))
        )
        assert len([result for result in results if result is not None]) == 1

    async def test_the_next_due_time_leaves_out_running_leases_and_foreign_backends(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        assert await store.next_due(["orders"]) is None
        now = store.now()
        await added(store, "foreign", backend="foreign", due_at=now - SECOND)
        await added(store, "never", due_at=None)
        assert await store.next_due(["orders"]) is None
        await added(store, "later", due_at=now + SECOND)
        await added(store, "sooner", due_at=now)
        assert await store.next_due(["orders", "foreign"]) == now - SECOND
        assert await store.next_due(["orders"]) == now
        await store.claim(["orders"], limit=1, lease=LEASE)
        assert await store.next_due(["orders"]) == now + SECOND
        clock.advance(LEASE)
        assert await store.next_due(["orders"]) == now

    # --- counts -----------------------------------------------------------------------------------

    async def test_versions_of_many_rows_leave_out_those_absent(self, store: TaskStore) -> None:
        task = await added(store, "1")
        other = await added(store, "2")
        await moved(store, other, attempts=1)
        asked = [task.row_id, *(new_row_id() for _ in range(1200)), other.row_id]
        assert dict(await store.versions(asked)) == {task.row_id: 1, other.row_id: 2}
        assert dict(await store.versions([])) == {}

    async def test_a_census_counts_by_status_and_what_is_final_but_not_settled(
        self, store: TaskStore
    ) -> None:
        now = store.now()
        assert dict(await store.census()) == {"unsettled": 0}
        await added(store, "1")
        await added(store, "2", status=Status.COMPLETED, start_settled_at=now)
        await added(store, "3", status=Status.CANCELLED, start_called_at=now)
        await added(
            store, "4", status=Status.CANCELLED, start_settled_at=now, stop_requested_at=now
        )
        assert dict(await store.census()) == {
            "submitted": 1,
            "completed": 1,
            "cancelled": 2,
            "unsettled": 2,
        }

    async def test_what_is_not_over_is_counted_by_backend(self, store: TaskStore) -> None:
        now = store.now()
        assert dict(await store.unfinished()) == {}
        await added(store, "1", backend="a")
        await added(store, "2", backend="a", status=Status.CANCELLED, start_called_at=now)
        await added(store, "3", backend="b", status=Status.COMPLETED, start_settled_at=now)
        await added(store, "4", backend="c", hidden_at=now)
        assert dict(await store.unfinished()) == {"a": 2, "c": 1}

    async def test_what_was_removed_is_known_by_its_events(self, store: TaskStore) -> None:
        there, gone = await added(store, "there"), await added(store, "gone")
        assert await store.remove(gone)
        asked = [there.row_id, gone.row_id, "0" * 32, *(f"{n:032x}" for n in range(1, 1200))]
        assert set(await store.ever_held(asked)) == {there.row_id, gone.row_id}
        assert set(await store.ever_held([])) == set()

    async def test_the_clock_is_the_databases_in_whole_milliseconds(
        self, store: TaskStore, clock: ManualClock
    ) -> None:
        clock.seconds = 1_750_000_000.0019
        first = store.now()
        assert first.microsecond == 1000
        assert first.utcoffset() == timedelta(0)
        clock.advance(MS)
        assert store.now() - first == MS
