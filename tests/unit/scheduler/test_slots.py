"""A node takes up the work of the slots that it gains, and leaves that of the slots that it gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from spyweb.errors import Refused
from spyweb.model import After, Every, JobId, Never, Outcome, Retry
from spyweb.ownership import Ownership, Slot, slot_of
from spyweb.runs.live import LiveJob
from spyweb.scheduler.slots import THOROUGH, SlotWork
from tests.fakes.clock import FakeClock
from tests.fakes.harness import BY_HAND, MINUTE_MS, Harness, harness, make_job, slot_work
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FAILED

PRICES = slot_of("prices")
GPU = slot_of("prices", "label:gpu")


@dataclass(frozen=True)
class Member:
    """A node, as far as its slots are concerned."""

    t: Harness
    work: SlotWork
    ownership: Ownership

    async def wait(self, work: Coroutine[object, object, None], seconds: float = 0) -> None:
        doing = self.t.tasks.create_task(work)
        await self.t.clock.turn(seconds)
        await doing

    async def load(self, *jobs: LiveJob) -> None:
        """Let these jobs have files here."""
        for job in jobs:
            self.t.live.add(job)
        self.t.live.link()
        self.t.timers.start()

    def give(self, *slots: Slot) -> set[Slot]:
        """Let these slots go as far as they are idle, and return which."""
        idle = self.work.idle(slots)
        self.work.release(idle)
        return idle

    async def gain(self, *slots: Slot, died: str = "") -> None:
        await self.wait(self.work.look(set(slots), died))

    async def look(self) -> None:
        await self.wait(self.work.look())


@pytest.fixture
async def members() -> AsyncIterator[tuple[Member, Member]]:
    """Two nodes on one store, which own nothing yet."""
    clock = FakeClock()
    store = MemoryStore(clock)
    async with AsyncExitStack() as stack:
        found: list[Member] = []
        for _ in range(2):
            ownership = Ownership(clock, set())
            t = await stack.enter_async_context(harness(store, clock, ownership=ownership))
            found.append(Member(t, slot_work(t), ownership))
        yield found[0], found[1]


@pytest.fixture
async def ours(members: tuple[Member, Member]) -> Member:
    """The node that owns the slot of `prices`, which has run once there."""
    await members[0].load(make_job())
    await members[0].gain(PRICES)
    await members[0].t.clock.turn(1)
    return members[0]


@pytest.fixture
async def theirs(members: tuple[Member, Member], ours: Member) -> Member:
    """Another node, with the same file."""
    await members[1].load(make_job())
    return members[1]


async def test_only_the_owner_of_its_slot_runs_a_job(ours: Member, theirs: Member) -> None:
    await theirs.look()
    await ours.t.clock.turn(150)
    assert (ours.t.pool.story, theirs.t.pool.story) == (["run prices"] * 3, [])
    with pytest.raises(Refused, match="another node runs it"):
        theirs.t.runner.start_by_hand(theirs.t.live.get(JobId("prices")), BY_HAND)


async def test_the_next_owner_goes_on_from_the_cursor_and_nothing_runs_twice(ours: Member, theirs: Member) -> None:
    assert ours.give(PRICES) == {PRICES}
    await ours.t.clock.turn(90)
    await theirs.gain(PRICES)
    await ours.t.clock.turn(60)
    assert (ours.t.pool.story, theirs.t.pool.story) == (["run prices"], ["run prices"] * 2)
    assert await ours.t.record() == ["prices schedule success"] * 3


async def test_a_slot_is_given_only_when_nothing_of_it_is_under_way(ours: Member) -> None:
    ours.t.pool.held.add(JobId("prices"))
    ours.t.runner.start_by_hand(job := ours.t.live.get(JobId("prices")), BY_HAND)
    assert ours.give(PRICES, GPU) == {GPU}, "a claim is on its way"
    await ours.t.clock.turn()
    assert ours.give(PRICES) == set()
    assert job.mine
    await ours.t.finish(2)
    assert ours.give(PRICES) == {PRICES}
    assert not job.mine


async def test_a_retry_that_waits_goes_to_the_next_owner(ours: Member, theirs: Member) -> None:
    retry = Retry(retries=1, delay_ms=MINUTE_MS, max_delay_ms=MINUTE_MS)
    for member in (ours, theirs):
        job = member.t.live.get(JobId("prices"))
        job.spec = replace(job.spec, retry=retry)
    ours.t.pool.endings[JobId("prices")] = [FAILED]
    await ours.t.clock.turn(60)
    assert ours.give(PRICES) == {PRICES}
    await theirs.gain(PRICES)
    await theirs.t.clock.turn(61)
    assert (await ours.t.record())[-2:] == ["prices retry success attempt 2", "prices schedule success"]
    assert ours.t.pool.story == ["run prices"] * 2


async def test_runs_of_a_node_that_died_are_lost_and_repeated_as_after_a_crash(ours: Member, theirs: Member) -> None:
    job = theirs.t.live.get(JobId("prices"))
    job.spec = replace(job.spec, retry=Retry(retries=1, delay_ms=0, max_delay_ms=0))
    ours.t.pool.held.add(job.id)
    await ours.t.clock.turn(60)
    await theirs.gain(PRICES, died="fra")
    assert (await theirs.t.record())[1:] == ["prices schedule lost", "prices retry success attempt 2"]
    assert "the node fra died" in [run.reason for run in await theirs.t.store.runs.list()]
    assert theirs.t.pool.story == ["run prices"]
    await ours.t.finish(2)
    assert (await theirs.t.record())[1] == "prices schedule lost", "a run ends once"


async def test_a_run_that_began_and_ended_while_jobs_come_is_not_taken_up_again(ours: Member) -> None:
    go_on, job = asyncio.Event(), ours.t.live.get(JobId("prices"))

    async def prepare() -> None:
        await go_on.wait()

    job.spec = replace(job.spec, retry=Retry(retries=1, delay_ms=MINUTE_MS, max_delay_ms=MINUTE_MS))
    ours.t.pool.endings[job.id] = [FAILED]
    await ours.t.clock.turn(60)
    await ours.gain(slot_of("report"))
    ours.work.prepare = prepare
    await ours.load(make_job("report"))
    looking = ours.t.tasks.create_task(ours.work.look())
    await ours.t.clock.turn(61)
    assert ours.t.pool.story == ["run prices"] * 4
    go_on.set()
    await looking
    await ours.t.clock.turn(1)
    assert ours.t.pool.story == [*["run prices"] * 4, "run report"]


async def test_what_follows_on_another_node_waits_on_record_until_its_owner_looks(ours: Member, theirs: Member) -> None:
    for member in (ours, theirs):
        follower = make_job(
            "report", schedule=Never(), after=(After(job=JobId("prices"), outcomes=frozenset({Outcome.SUCCESS})),)
        )
        await member.load(follower)
    report = slot_of("report")
    await theirs.gain(report)
    await ours.look()
    await ours.t.clock.turn(60)
    assert await ours.t.record("report") == ["report after waiting"]
    async with theirs.work.turn:
        await theirs.work.hear()
    assert theirs.t.pool.story == []
    await theirs.wait(theirs.work.hear())
    await theirs.look()
    assert theirs.t.pool.story == ["run report"]
    assert ours.t.pool.story == ["run prices"] * 2


async def test_without_trust_nothing_begins_and_due_times_wait(ours: Member) -> None:
    ours.ownership.trusted_until = ours.t.clock.boottime() + 30
    await ours.t.clock.turn(119)
    assert ours.t.pool.story == ["run prices"]
    ours.ownership.trusted_until += 300
    await ours.t.clock.turn(2)
    assert ours.t.pool.story == ["run prices"] * 2
    assert ours.t.scheduler.lag_ms == 0


async def test_a_run_that_was_claimed_and_may_not_begin_is_lost_and_begins_again_later(ours: Member) -> None:
    with ours.t.hung() as store:
        await ours.t.clock.turn(60)
        ours.ownership.trusted_until = ours.t.clock.boottime()
        await store.grant()
    assert (await ours.t.record())[1:] == ["prices schedule lost", "prices retry waiting attempt 2"]
    ours.ownership.trusted_until += 300
    await ours.look()
    assert (await ours.t.record())[2] == "prices retry success attempt 2"
    assert ours.t.pool.story == ["run prices"] * 2


async def test_past_trust_runs_in_flight_end_and_who_is_dead_to_the_others_owns_nothing(ours: Member) -> None:
    ours.t.pool.held.add(JobId("prices"))
    await ours.t.clock.turn(60)
    ours.work.distrust()
    assert ours.t.pool.story == ["run prices"] * 2, "it may act still"
    ours.ownership.trusted_until = ours.t.clock.boottime()
    ours.work.distrust()
    await ours.t.clock.turn()
    assert ours.t.pool.story[2:] == ["cancel 2 stopped"]
    assert (await ours.t.record())[1] == "prices schedule stopped"
    ours.work.lose()
    ours.ownership.trusted_until += 300
    await ours.t.clock.turn(120)
    assert ours.ownership.owned == set()
    assert ours.t.pool.story == ["run prices", "run prices", "cancel 2 stopped"]


async def test_a_job_that_asks_for_another_node_is_moved_by_its_owner_once_it_is_idle(
    ours: Member, theirs: Member
) -> None:
    await theirs.gain(GPU)
    theirs_job, ours_job = theirs.t.live.get(JobId("prices")), ours.t.live.get(JobId("prices"))
    theirs_job.spec = replace(theirs_job.spec, labels=("gpu",))
    await theirs.look()
    assert not theirs_job.mine, "its owner does not have the new file yet"
    ours.t.pool.held.add(JobId("prices"))
    await ours.t.clock.turn(60)
    ours_job.spec = theirs_job.spec
    await ours.look()
    await theirs.look()
    assert (ours_job.mine, theirs_job.mine) == (True, False), "it runs"
    await ours.t.finish(2)
    await ours.look()
    await theirs.look()
    assert (ours_job.mine, theirs_job.mine) == (False, True)
    await theirs.t.clock.turn(120)
    ours_job.spec = theirs_job.spec = replace(theirs_job.spec, labels=())
    for _ in range(THOROUGH):
        await theirs.look()
    assert (ours_job.mine, theirs_job.mine) == (False, False), "it is on record as ours again"
    for _ in range(THOROUGH):
        await ours.look()
    assert ours_job.mine, "though its own record was old"


async def test_a_job_in_a_slot_without_an_owner_is_one_for_the_owner_of_the_slot_that_it_asks_for(
    ours: Member, theirs: Member
) -> None:
    job = theirs.t.live.get(JobId("prices"))
    job.spec = replace(job.spec, labels=("gpu",))
    await theirs.gain(GPU)
    await theirs.look()
    assert theirs.work.strays() == [("prices", PRICES, "label:gpu")]
    assert ours.work.strays() == []


async def test_a_cursor_without_a_file_is_noted_as_absent_by_the_owner_of_its_slot(
    members: tuple[Member, Member], ours: Member
) -> None:
    theirs = members[1]
    await theirs.gain(GPU)
    assert (await ours.t.store.runs.cursors())[JobId("prices")].idle_since_ms is None
    ours.give(PRICES)
    await theirs.gain(PRICES)
    assert (await ours.t.store.runs.cursors())[JobId("prices")].idle_since_ms is not None


async def test_a_job_that_was_edited_while_it_was_taken_up_follows_its_new_schedule(
    ours: Member, theirs: Member
) -> None:
    ours.give(PRICES)
    job = theirs.t.live.get(JobId("prices"))
    with theirs.t.hung() as store:
        gaining = theirs.t.tasks.create_task(theirs.work.look({PRICES}))
        await theirs.t.clock.turn()
        job.spec = replace(job.spec, schedule=Every(period_ms=10 * MINUTE_MS))
        await store.grant()
        await store.grant()
    await gaining
    assert job.mine
    assert job.cursor.schedule == "every 600000"


async def test_other_parts_learn_of_a_slot_before_it_is_owned_and_keep_it_while_they_are_busy_there(
    members: tuple[Member, Member],
) -> None:
    member, owned_then = members[0], list[bool]()

    async def prepare() -> None:
        owned_then.append(member.ownership.has(PRICES))

    member.work.prepare, member.work.busy = prepare, lambda: {PRICES}
    await member.gain(PRICES)
    assert (owned_then, member.ownership.has(PRICES)) == ([False], True)
    assert member.give(PRICES) == set()
    member.work.busy = set
    assert member.give(PRICES) == {PRICES}


async def test_a_run_that_another_node_has_to_start_is_announced_to_it(ours: Member) -> None:
    rung: list[str] = []
    ours.t.store.runs.ring = lambda: rung.append("runs")
    follower = make_job("follower", schedule=Never(), after=(After(job=JobId("prices")),))
    ours.t.live.add(follower)
    ours.t.live.link()
    await ours.t.clock.turn(60)
    assert rung == ["runs"]
    assert (await ours.t.record())[-1] == "follower after waiting"


async def test_a_node_without_the_file_of_a_pinned_job_knows_that_it_lies_elsewhere(
    members: tuple[Member, Member],
) -> None:
    pinned = make_job(node="fra")
    await members[0].load(pinned)
    await members[0].gain(pinned.slot)
    await members[1].gain(PRICES)
    assert (members[0].t.live.is_mine(pinned.id), members[1].t.live.is_mine(pinned.id)) == (True, False)
