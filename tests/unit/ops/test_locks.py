from __future__ import annotations

import asyncio
import dataclasses
from asyncio import Future, Task
from collections.abc import AsyncIterator, Sequence

import pytest
from structlog.testing import capture_logs

from spyweb.errors import StoreClosed
from spyweb.model import JobId, Outcome, RunId, RunState, Trigger
from spyweb.ops.locks import LONGEST_RECHECK, LockKeeper, LockRequest
from spyweb.store.model.entries import Held
from spyweb.store.model.runs import Change, End, NewRun
from tests.fakes.clock import FakeClock, settle
from tests.fakes.memory_store import MemoryStore

LEASE_MS = 30_000


class LockHarness:
    """Runs that meet around locks, each step of theirs a word of the story."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore(self.clock)
        self.keeper = LockKeeper(self.store.locks, self.clock)
        self.story: list[str] = []
        self._tasks: list[Task[None]] = []

    async def run(self) -> RunId:
        new = NewRun(job=JobId("a"), state=RunState.RUNNING, trigger=Trigger())
        (run,) = await self.store.runs.record(Change(new=[new]))
        assert run is not None
        return run

    def request(self, run: int, name: bytes = b"door", lease_ms: int = LEASE_MS) -> LockRequest:
        return LockRequest(name=name, holder=b"a#%d" % run, run=RunId(run), lease_ms=lease_ms)

    async def waits(self, run: int, timeout: float = 60, name: bytes = b"door", lease_ms: int = LEASE_MS) -> Task[None]:
        """The run joins the queue, and everything settles."""
        task = asyncio.create_task(self._wait(run, timeout, name, lease_ms))
        self._tasks.append(task)
        await self.clock.turn()
        return task

    async def _wait(self, run: int, timeout: float, name: bytes, lease_ms: int) -> None:
        held = await self.keeper.wait(self.request(run, name, lease_ms), timeout)
        self.story.append(f"{run} has it" if held is None else f"{run} lost to {held.holder.decode()}")

    async def releases(self, run: int, name: bytes = b"door") -> None:
        await self.store.locks.release(name, b"a#%d" % run)
        await self.clock.turn()

    async def ends(self, run: int) -> None:
        end = End(run=RunId(run), ended_ms=self.clock.now_ms(), outcome=Outcome.SUCCESS)
        await self.store.runs.record(Change(end=[end]))
        self.keeper.run_ended(RunId(run))
        await self.clock.turn()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.keeper.close()


@pytest.fixture
async def harness() -> AsyncIterator[LockHarness]:
    harness = LockHarness()
    for _ in range(9):
        await harness.run()
    yield harness
    await harness.close()


async def test_whoever_does_not_wait_is_told_who_has_it(harness: LockHarness) -> None:
    await harness.waits(1)
    held = await harness.keeper.take(harness.request(2))
    assert held is not None
    assert (held.holder, held.run) == (b"a#1", 1)


async def test_a_newcomer_does_not_get_past_the_queue(harness: LockHarness) -> None:
    await harness.waits(1)
    await harness.waits(2)
    releasing = harness.store.locks.release(b"door", b"a#1")
    held = await harness.keeper.take(harness.request(3))  # asked before the first in the queue could move
    await releasing
    await harness.clock.turn()
    assert held is not None
    assert held.holder == b"a#2"
    assert harness.story == ["1 has it", "2 has it"]


async def test_who_gives_up_is_told_of_the_one_who_had_it_last(harness: LockHarness) -> None:
    await harness.waits(1)
    await harness.waits(2)
    await harness.waits(3, timeout=5)
    await harness.releases(1)
    await harness.clock.turn(6)
    assert harness.story == ["1 has it", "2 has it", "3 lost to a#2"]


@pytest.mark.parametrize("others", [(), (2,)])
async def test_a_run_that_waits_for_itself_fails_at_once_also_behind_others(
    harness: LockHarness, others: tuple[int, ...]
) -> None:
    for run in (1, *others, 1):
        await harness.waits(run)
    assert harness.story == ["1 has it", "1 lost to a#1"]


async def test_a_run_waits_for_itself_whatever_it_calls_itself(harness: LockHarness) -> None:
    assert (
        await harness.keeper.take(LockRequest(name=b"door", holder=b"task-9", run=RunId(1), lease_ms=LEASE_MS)) is None
    )
    await harness.waits(1)
    assert harness.story == ["1 lost to task-9"]


async def test_the_last_to_leave_leaves_nothing_behind(harness: LockHarness) -> None:
    await harness.waits(1)
    harness.keeper.run_ended(RunId(1))  # as if its end had been lost: now its lease counts
    waiter = await harness.waits(2, timeout=3600)
    waiter.cancel()
    await harness.ends(2)
    assert harness.clock.pending == 0


async def test_what_has_no_row_that_ends_gives_its_locks_back_itself(harness: LockHarness) -> None:
    await harness.waits(1)
    await harness.waits(1, name=b"window")
    await harness.waits(2)
    await harness.waits(3, name=b"window")

    harness.keeper.release(RunId(1))
    harness.keeper.run_ended(RunId(1))
    await harness.clock.turn()

    assert harness.story == ["1 has it", "1 has it", "2 has it", "3 has it"]


async def test_who_never_asked_for_a_lock_costs_no_write(harness: LockHarness) -> None:
    before = harness.store.stats().writes
    harness.keeper.release(RunId(1))
    await harness.clock.turn()
    assert harness.store.stats().writes == before


async def test_the_lock_of_a_run_that_lives_does_not_expire(harness: LockHarness) -> None:
    await harness.waits(1, lease_ms=1000)
    await harness.waits(2, timeout=10_000)
    await harness.clock.turn(5000)
    assert harness.story == ["1 has it"]
    assert (await harness.store.locks.holder(b"door")) is not None


async def test_a_lease_is_renewed_while_its_run_lives(harness: LockHarness) -> None:
    await harness.waits(1, lease_ms=9000)
    for _ in range(5):
        await harness.clock.turn(10)
        held = await harness.store.locks.holder(b"door")
        assert held is not None
        assert held.expires_ms > harness.clock.now_ms() + 5900
    await harness.ends(1)
    await harness.clock.turn(20)
    assert harness.clock.pending == 0, "nothing is left to renew"


async def test_the_shortest_lease_sets_the_pace_of_renewal(harness: LockHarness) -> None:
    await harness.waits(1, lease_ms=3_600_000)
    await harness.waits(2, name=b"window", lease_ms=6000)
    await harness.clock.turn(5)
    held = await harness.store.locks.holder(b"window")
    assert held is not None
    assert held.expires_ms >= harness.clock.now_ms() + 5000


async def make_crash(lease_ms: int) -> LockHarness:
    """A daemon has died with run 1 holding the door; this is the next one."""
    before = LockHarness()
    await before.run()
    assert await before.keeper.take(before.request(1, lease_ms=lease_ms)) is None
    await before.clock.turn()
    after = LockHarness(before.store)
    after.clock = before.clock
    after.keeper = LockKeeper(before.store.locks, before.clock)
    before.keeper.close()
    for _ in range(3):
        await after.run()
    return after


async def test_the_lock_of_a_dead_daemon_goes_to_who_waits_when_its_lease_ends() -> None:
    harness = await make_crash(lease_ms=5000)
    await harness.waits(2)
    await harness.waits(3)
    await harness.clock.turn(4.99)
    assert harness.story == []
    await harness.clock.turn(0.02)
    assert harness.story == ["2 has it"]
    await harness.close()


async def test_a_lease_is_looked_at_again_in_case_the_clock_on_the_wall_has_jumped() -> None:
    harness = await make_crash(lease_ms=3_600_000)
    await harness.waits(2, timeout=7200)
    harness.clock.jump(3600)
    await harness.clock.turn(LONGEST_RECHECK)
    assert harness.story == ["2 has it"]
    await harness.close()


class SlowLocks:
    """A store that answers an `acquire` when it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self._locks = store.locks
        self.held_up: list[tuple[Future[Held | None], Future[Held | None]]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._locks, name)

    def acquire(self, name: bytes, holder: bytes, run: RunId | None, lease_ms: int) -> Future[Held | None]:
        future: Future[Held | None] = asyncio.get_running_loop().create_future()
        self.held_up.append((future, self._locks.acquire(name, holder, run, lease_ms)))
        return future

    async def answer(self) -> None:
        future, result = self.held_up.pop(0)
        future.set_result(result.result())
        await settle()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[LockHarness, SlowLocks]]:
    harness = LockHarness()
    locks = SlowLocks(harness.store)
    harness.keeper = LockKeeper(locks, harness.clock)  # type: ignore[arg-type]
    for _ in range(4):
        await harness.run()
    yield harness, locks
    await harness.close()


async def test_a_lock_that_comes_for_a_waiter_that_is_gone_is_given_back(slow: tuple[LockHarness, SlowLocks]) -> None:
    harness, locks = slow
    first = await harness.waits(1)
    await harness.waits(2)
    first.cancel()
    await harness.clock.turn()
    await locks.answer()  # the first has it by now, and is gone
    await locks.answer()  # so the second has been refused
    await locks.answer()
    assert harness.story == ["2 has it"]


async def test_a_lock_that_comes_as_the_timeout_ends_is_kept(slow: tuple[LockHarness, SlowLocks]) -> None:
    harness, locks = slow
    await harness.waits(1, timeout=5)
    await harness.clock.turn(6)
    await locks.answer()
    assert harness.story == ["1 has it"]


async def test_a_release_while_the_store_is_being_asked_is_not_missed(slow: tuple[LockHarness, SlowLocks]) -> None:
    harness, locks = slow
    await harness.store.locks.acquire(b"door", b"x", None, LEASE_MS)
    await harness.waits(1)
    await harness.store.locks.release(b"door", b"x")  # after the answer was made, before it was heard
    await harness.clock.turn()
    await locks.answer()
    await locks.answer()
    assert harness.story == ["1 has it"]


async def test_a_store_that_fails_is_told_to_everybody_in_the_queue() -> None:
    harness = LockHarness()
    await harness.store.locks.acquire(b"door", b"x", None, LEASE_MS)
    waiters = [await harness.waits(run) for run in (1, 2)]
    await harness.store.close()
    await harness.clock.turn(LONGEST_RECHECK)
    outcomes: Sequence[object] = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreClosed, StoreClosed]


async def test_a_renewal_that_fails_is_logged_and_tried_again(harness: LockHarness) -> None:
    await harness.waits(1, lease_ms=9000)
    await harness.store.close()
    with capture_logs() as logs:
        await harness.clock.turn(10)
    assert [line["event"] for line in logs] == ["lock.store_failed"] * 3


# Several nodes


async def test_a_lock_that_another_node_has_freed_is_taken_once_the_keeper_looks(harness: LockHarness) -> None:
    other = LockHarness(harness.store)
    await other.waits(1)
    await harness.waits(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.store.locks, "tell", lambda _: None)  # as by another node
        await other.releases(1)
        await harness.clock.turn()
    assert harness.story == []
    harness.keeper.look()
    await harness.clock.turn()
    assert harness.story == ["2 has it"]
    await other.close()


async def test_an_expired_lock_is_held_while_its_run_is_open_on_record_where_other_nodes_write_it() -> None:
    store = MemoryStore(FakeClock())
    harness = LockHarness(store)
    run = await harness.run()
    await store.locks.acquire(b"door", b"other", run, 0)
    assert await store.locks.holder(b"door") is None
    store.locks._connections = dataclasses.replace(store.locks._connections, is_shared=True)
    assert await store.locks.holder(b"door") is not None
    await harness.ends(run)
    assert await store.locks.holder(b"door") is None
