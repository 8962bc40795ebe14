"""From a change of a stored value to the runs that it starts."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator
from functools import partial

import pytest
from msgspec import to_builtins

from spyweb.errors import NoAccess, SpywebError, StoreError
from spyweb.model import After, Every, JobId, Misfire, MisfirePolicy, Never, Overlap, Retry, RunId, RunState
from spyweb.ownership import slot_of
from spyweb.runs.run_queue import CAUSED_LIMIT
from spyweb.runs.triggers import PAGE
from spyweb.store.model.entries import BEFORE_ALL, GLOBAL, Origin, Position, Put, WantedChange
from tests.fakes.changes import refuse
from tests.fakes.clock import FakeClock
from tests.fakes.harness import make_job
from tests.fakes.memory_store import MemoryStore
from tests.fakes.pool import FAILED
from tests.fakes.triggered import TriggeredHarness, make_listener, on, triggered_harness

ORDERS = JobId("orders")


# What starts what


@pytest.fixture
async def t() -> AsyncIterator[TriggeredHarness]:
    async with triggered_harness() as opened:
        yield opened


async def test_the_record_says_what_changed_and_not_from_what_to_what(t: TriggeredHarness) -> None:
    await t.settle(make_listener(on=on(scope="orders", when="is_big")))
    await t.change("42", b"secret", origin=Origin(job=JobId("shop"), run=RunId(7), depth=2))

    (run,) = await t.harness.store.runs.list()
    told = {"type": "state", "event_type": "state:created", "scope": "orders", "key": "42"}
    assert to_builtins(run.trigger) == {**told, "event": 1, "depth": 3, "by": 7, "when": ["is_big"]}
    assert t.harness.pool.requests[0].arguments[3] == ["is_big"]


async def test_a_job_hears_only_of_what_it_asks_for(t: TriggeredHarness) -> None:
    users = make_listener("users", on=on(key="user:*", events=["created"]))
    everything = make_listener("everything", on=on())
    texts = make_listener("texts", on=on(scope="global"))
    await t.settle(users, everything, texts)
    for key in ("user:1", "order:1", "user:1"):
        await t.change(key)
    await t.harness.store.values.set(GLOBAL, b"greeting", b"hello")
    await t.harness.clock.turn()

    assert t.handled("users") == ["user:1"]
    assert t.handled("everything") == ["user:1", "order:1", "user:1"]
    assert [(event["scope"], event["new_value"]) for event in t.events("texts")] == [("global", "hello")]


async def test_a_job_starts_once_for_a_change_however_many_of_its_triggers_match(t: TriggeredHarness) -> None:
    both = on(scope="orders", when="is_big") + on(scope="orders", when="is_late")
    await t.settle(make_listener("both", on=both), make_listener("either", on=both + on(key="4*")))
    await t.change("42")

    conditions = {each.code.job: each.arguments[3] for each in t.harness.pool.requests}
    assert conditions == {"both": ["is_big", "is_late"], "either": []}


async def test_a_change_that_nobody_asks_for_any_more_is_dropped() -> None:
    store = MemoryStore(clock := FakeClock())
    async with triggered_harness(store, clock) as t:
        await t.settle(make_listener())
        t.triggers.stop()
        await t.change("42")
        assert await t.left() == ["42"]
    async with triggered_harness(store, clock) as t:
        await t.settle(make_listener(on=on(scope="users")))
        assert await t.left() == []
        assert t.events() == []


async def test_a_disabled_job_does_not_listen_and_a_paused_one_is_told_so_in_its_record(t: TriggeredHarness) -> None:
    paused = make_listener("paused")
    await t.settle(make_listener("disabled", enabled=False), paused)
    await t.harness.scheduler.pause(paused)
    for _ in range(3):
        await t.change("42")

    assert await t.harness.record() == ["paused state paused x3"]
    assert await t.left() == []


async def test_an_expiry_starts_only_who_names_it(t: TriggeredHarness) -> None:
    await t.settle(make_listener(), make_listener("late", on=on(scope="orders", events=["expired"])))
    expires_ms = t.harness.clock.now_ms() + 1000
    await t.harness.store.values.transform("scope:orders", b"a", lambda _: Put(b"v", expires_ms))
    await t.harness.clock.turn(2)
    await t.harness.store.values.sweep()
    await t.harness.clock.turn()

    assert [event["event_type"] for event in t.events("orders")] == ["state:created"]
    assert [(event["event_type"], event["old_value"]) for event in t.events("late")] == [("state:expired", "v")]


# Order and room


@pytest.mark.parametrize("overlap", list(Overlap))
async def test_runs_come_one_at_a_time_in_the_order_of_the_changes_whatever_overlap_says(
    t: TriggeredHarness, overlap: Overlap
) -> None:
    t.harness.pool.held.add(ORDERS)
    await t.settle(make_listener(overlap=overlap))
    for key in ("a", "b", "a", "c"):
        await t.change(key)
    started = []
    for run in (1, 2, 3, 4):
        started.append(t.handled())
        await t.harness.finish(run)

    assert started == [["a"], ["a", "b"], ["a", "b", "a"], ["a", "b", "a", "c"]]
    assert await t.harness.record() == ["orders state success"] * 4


async def test_a_newer_start_that_replaces_leaves_what_changes_have_started_alone(t: TriggeredHarness) -> None:
    t.harness.pool.held.add(ORDERS)
    job = make_listener(overlap=Overlap.REPLACE)
    await t.settle(job)
    await t.change("a")
    await t.change("b")
    await t.harness.start(job)
    await t.harness.finish(1, 2, 3)

    assert "cancel" not in " ".join(t.harness.pool.story)
    assert await t.harness.record() == ["orders state success"] * 2 + ["orders manual success"]


async def test_later_changes_of_a_key_wait_for_the_retries_of_an_earlier_one_and_others_do_not(
    t: TriggeredHarness,
) -> None:
    t.harness.pool.endings[ORDERS] = [FAILED]
    await t.settle(make_listener(retry=Retry(retries=1, delay_ms=10_000, jitter=False)))
    for key in ("a", "a", "b"):
        await t.write(key)
    await t.harness.clock.turn(9)
    assert t.handled() == ["a", "b"]
    await t.harness.clock.turn(1)

    assert t.handled() == ["a", "b", "a", "a"]
    assert await t.harness.record() == [
        "orders state failed",
        "orders state success",
        "orders state success",
        "orders retry success attempt 2",
    ]


async def test_a_retry_is_told_of_the_same_change(t: TriggeredHarness) -> None:
    t.harness.pool.endings[ORDERS] = [FAILED]
    await t.settle(make_listener(retry=Retry(retries=1, jitter=False), on=on(scope="orders", when="f")))
    await t.change("a", b"1")
    await t.change("a", b"2")
    await t.harness.clock.turn(60)

    first, again, second = t.events()
    assert first == again
    assert second["old_value"] == "1"
    arguments = t.harness.pool.requests[1].arguments
    assert arguments[0]["trigger"] == {"type": "retry", "of": 1}  # type: ignore[index]  # the ctx table
    assert arguments[3] == ["f"]


async def test_what_has_no_room_stays_in_the_store_comes_later_and_holds_up_no_other_job(t: TriggeredHarness) -> None:
    count = CAUSED_LIMIT + 2 * PAGE
    slow, quick = JobId("slow"), JobId("quick")
    t.harness.pool.held.add(slow)
    await t.settle(make_listener("slow"), make_listener("quick"))
    for number in range(count):
        await t.change(str(number))
    assert t.handled("quick") == [str(number) for number in range(count)]
    assert t.handled("slow") == ["0"]
    waiting = len(await t.harness.store.runs.open())
    assert CAUSED_LIMIT <= waiting <= CAUSED_LIMIT + 1
    assert len(await t.left()) == count - waiting
    t.harness.pool.held.clear()
    t.harness.pool.finish(next(run.id for run in t.harness.live.running() if run.job == slow))
    await t.harness.clock.turn()

    assert t.handled("slow") == t.handled("quick") == [str(number) for number in range(count)]
    assert quick not in {run.job for run in await t.harness.store.runs.open()}
    assert await t.left() == []


async def test_a_job_whose_runs_have_all_ended_when_it_is_found_full_gets_the_rest(
    t: TriggeredHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.settle(make_listener())
    wanted, read = t.harness.store.events.wanted, asyncio.Event()

    async def wanted_slowly(limit: int, *, after: Position = BEFORE_ALL) -> list[WantedChange]:
        page = await wanted(limit, after=after)
        if after == (ORDERS, CAUSED_LIMIT):
            await read.wait()
        return page

    monkeypatch.setattr(t.harness.store.events, "wanted", wanted_slowly)
    for number in range(CAUSED_LIMIT + 10):
        await t.write(str(number))
    await t.harness.clock.turn()
    assert len(t.handled()) == CAUSED_LIMIT
    read.set()
    await t.harness.clock.turn()

    assert len(t.handled()) == CAUSED_LIMIT + 10


async def test_changes_for_a_job_that_is_gone_leave_the_store(t: TriggeredHarness) -> None:
    t.harness.pool.held.add(ORDERS)
    job = make_listener()
    await t.settle(job, make_listener("quick"))
    for number in range(CAUSED_LIMIT + PAGE):
        await t.write(str(number))
    await t.harness.clock.turn()
    t.harness.live.remove(ORDERS)
    t.harness.live.link()
    t.harness.runner.forget(job)
    t.harness.pool.finish(next(iter(job.queue.in_flight)))
    await t.harness.clock.turn()

    assert await t.left() == []
    assert len(t.handled("quick")) == CAUSED_LIMIT + PAGE


# Chains


async def test_a_chain_goes_on_through_retries_and_the_jobs_that_follow(t: TriggeredHarness) -> None:
    t.harness.pool.endings[ORDERS] = [FAILED]
    follower = make_job("follower", schedule=Never(), after=(After(job=ORDERS),))
    await t.settle(make_listener(retry=Retry(retries=1)), follower)
    await t.change("k", origin=Origin(depth=4))
    await t.harness.clock.turn(60)

    depths = [(run.job, run.attempt, run.trigger.depth) for run in await t.harness.store.runs.list()]
    assert depths == [("follower", 1, 5), ("orders", 2, 5), ("orders", 1, 5)]


# Crashes, stops and refusals


@pytest.mark.parametrize("policy", list(MisfirePolicy))
async def test_after_a_crash_runs_in_flight_and_waiting_begin_again_in_order(policy: MisfirePolicy) -> None:
    store = MemoryStore(clock := FakeClock())
    misfire = Misfire(policy=policy)
    async with triggered_harness(store, clock) as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener(misfire=misfire))
        for key in ("a", "b", "a"):
            await t.change(key, b"v")
        async with triggered_harness(store, clock) as after:
            await after.settle(make_listener(misfire=misfire))
            await clock.turn()

            assert after.handled() == ["a", "b", "a"]
            assert after.events()[0]["new_value"] == "v"
            assert await after.harness.record() == [
                "orders state lost",
                "orders state success",
                "orders state success",
                "orders retry success attempt 2",
            ]


async def test_a_restart_does_not_deliver_again_to_a_job_that_was_quicker_than_another() -> None:
    store = MemoryStore(clock := FakeClock())
    count = CAUSED_LIMIT + PAGE
    async with triggered_harness(store, clock) as t:
        t.harness.pool.held.add(JobId("slow"))
        await t.settle(make_listener("slow"), make_listener("quick"))
        for number in range(count):
            await t.write(str(number))
        await clock.turn()
        assert len(t.handled("quick")) == count
        assert await t.left() != []
        t.triggers.stop()
        await t.harness.runner.drain(0)
    async with triggered_harness(store, clock) as after:
        await after.settle(make_listener("slow"), make_listener("quick"))
        await clock.turn()

        assert after.handled("quick") == []
        assert after.handled("slow") == [str(number) for number in range(count)]


async def test_a_change_is_forgotten_once_the_runs_that_it_started_have_ended(t: TriggeredHarness) -> None:
    t.harness.pool.held |= {ORDERS, JobId("other")}
    await t.settle(make_listener(), make_listener("other"))
    await t.change("a")
    find = t.harness.store.events.find
    assert await t.left() == []
    await t.harness.finish(1)
    assert await find(1) is not None
    await t.harness.finish(2)
    assert await find(1) is None


@pytest.mark.parametrize("error", [StoreError("the disk is full"), NoAccess("spyweb.db: no access as me")])
async def test_a_store_that_refuses_is_asked_again_and_nothing_is_lost_or_doubled(
    t: TriggeredHarness, error: SpywebError, monkeypatch: pytest.MonkeyPatch
) -> None:
    await t.settle(make_listener())
    runs = t.harness.store.runs
    record = runs.record

    monkeypatch.setattr(runs, "record", partial(refuse, error=error))
    await t.change("a")
    assert t.handled() == []
    monkeypatch.setattr(runs, "record", record)
    await t.harness.clock.turn(5)

    assert t.handled() == ["a"]
    assert await t.harness.record() == ["orders state success"]


async def test_a_schedule_and_changes_share_the_job_one_run_at_a_time(t: TriggeredHarness) -> None:
    t.harness.pool.held.add(ORDERS)
    await t.settle(make_listener(schedule=Every(period_ms=60_000), overlap=Overlap.QUEUE))
    await t.harness.clock.turn(1)
    await t.change("a")
    for run in (1, 2):
        assert len(t.harness.pool.story) == run
        await t.harness.finish(run)

    assert await t.harness.record() == ["orders schedule success", "orders state success"]


async def test_a_writer_does_not_wait_for_what_its_change_starts(t: TriggeredHarness) -> None:
    await t.settle(make_listener())
    written = t.harness.store.values.transform("scope:orders", b"a", lambda _: Put(1))
    assert written.done()
    assert t.harness.pool.story == []


# Jobs that can't be loaded yet

BROKEN = frozenset({"orders"})


@pytest.fixture
async def after() -> AsyncIterator[TriggeredHarness]:
    """An earlier daemon has kept three changes for `orders`, and one of them has begun to be handled."""
    store = MemoryStore(clock := FakeClock())
    async with triggered_harness(store, clock) as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener())
        await t.change("a")
        t.triggers.stop()
        await t.change("b")
        await t.change("c")
        await t.harness.runner.drain(0)
    async with triggered_harness(store, clock) as opened:
        opened.harness.live.set_unloadable(BROKEN)
        yield opened


async def test_changes_wait_for_a_job_whose_file_is_broken_when_the_daemon_starts(after: TriggeredHarness) -> None:
    after.harness.live.set_unloadable(BROKEN | {"other"})
    await after.settle(make_listener("quick"))
    await after.change("d")
    assert after.handled() == ["d"], "it did not watch before"
    assert await after.left() == ["b", "c"]
    await after.harness.settle(make_listener())
    after.harness.live.set_unloadable(frozenset({"other"}))
    await after.harness.clock.turn()

    assert after.handled("orders") == ["a", "b", "c"]
    assert after.handled("quick") == ["d"]
    assert await after.left() == []


async def test_a_job_that_loads_while_changes_are_read_gets_its_waiting_run_before_them(
    after: TriggeredHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, read = after.harness.store.events.wanted, asyncio.Event()

    async def wanted_slowly(limit: int, *, after: Position = BEFORE_ALL) -> list[WantedChange]:
        await asyncio.sleep(0)  # an answer takes a turn of the loop at least
        page = await wanted(limit, after=after)
        await read.wait()
        return page

    monkeypatch.setattr(after.harness.store.events, "wanted", wanted_slowly)
    await after.settle()
    read.set()  # the page is on its way to be handed out
    await after.harness.settle(make_listener())
    await after.harness.clock.turn()

    assert after.handled() == ["a", "b", "c"]


async def test_changes_for_a_broken_job_leave_the_store_once_it_is_deleted(after: TriggeredHarness) -> None:
    await after.settle()
    assert await after.left() == ["b", "c"]
    assert [run.state for run in await after.harness.store.runs.open()] == [RunState.WAITING]
    after.harness.live.set_unloadable(frozenset())
    await after.harness.clock.turn()

    assert await after.left() == []
    assert await after.harness.store.runs.open() == []
    assert after.events() == []


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_what_has_passed_a_paused_job_does_not_come_again_after_a_restart(is_resumed: bool) -> None:
    """The change is still there for another job, which has more of them waiting than it may."""
    store, paused, count = MemoryStore(clock := FakeClock()), JobId("paused"), CAUSED_LIMIT + 20
    async with triggered_harness(store, clock) as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener(), job := make_listener("paused"))
        await t.harness.scheduler.pause(job)
        for number in range(count):
            await t.write(str(number))
        await t.harness.clock.turn()
        assert await t.left() != []
        if is_resumed:
            await t.harness.scheduler.resume(job)
        draining = t.harness.tasks.create_task(t.harness.runner.drain(0))
        await t.harness.clock.turn(1)
        await draining
    async with triggered_harness(store, clock) as t:
        await t.settle(make_listener(), make_listener("paused"))
        await t.harness.clock.turn()
        assert await t.harness.record(paused) == [f"paused state paused x{count}"]


async def test_after_a_crash_a_run_of_a_job_that_can_not_be_loaded_begins_again_once_it_can() -> None:
    store = MemoryStore(clock := FakeClock())
    async with triggered_harness(store, clock) as t:
        t.harness.pool.held.add(ORDERS)
        await t.settle(make_listener())
        await t.change("a", b"v")
        async with triggered_harness(store, clock) as after:
            after.harness.live.set_unloadable(BROKEN)
            await after.settle()
            assert await after.harness.record() == ["orders state lost", "orders retry waiting attempt 2"]
            await after.harness.settle(make_listener())
            after.harness.live.set_unloadable(frozenset())
            await clock.turn()

            assert [event["new_value"] for event in after.events()] == ["v"]
            assert await after.harness.record() == ["orders state lost", "orders retry success attempt 2"]


async def test_a_job_that_comes_back_under_its_name_waits_for_the_change_still_at_work(t: TriggeredHarness) -> None:
    t.harness.pool.held.add(JobId("orders"))
    await t.settle(job := make_listener(overlap=Overlap.ALLOW))
    await t.change("1")
    t.harness.live.remove(job.id)
    t.harness.runner.forget(job)
    await t.harness.settle(make_listener(overlap=Overlap.ALLOW))
    await t.change("2")
    assert t.handled() == ["1"]
    await t.harness.finish(1)
    assert t.handled() == ["1", "2"]


# Several nodes


async def test_a_node_hands_out_the_changes_of_its_own_jobs_and_reads_no_more_than_a_page_of_another_job(
    t: TriggeredHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, others = make_listener("mine"), make_listener("a-job-of-others")
    others.mine = False
    await t.settle(mine, others)
    events, pages = t.harness.store.events, list[Position]()

    def wanted(limit: int, *, after: Position = BEFORE_ALL) -> Future[list[WantedChange]]:
        pages.append(after)
        return read(limit, after=after)

    read = events.wanted
    for number in range(3 * PAGE):
        await t.write(f"{number}")
    await t.harness.clock.turn(60)
    assert len(t.handled("mine")) == len(t.handled()) == len(await t.left()) == 3 * PAGE

    monkeypatch.setattr(events, "wanted", wanted)
    await t.change("last")
    assert t.handled("mine")[-1] == "last"
    assert len(pages) == 2


async def test_only_the_owner_of_its_slot_drops_the_change_of_an_unknown_job_and_not_while_files_are_rolled_out(
    t: TriggeredHarness,
) -> None:
    ownership, gone = t.harness.live.ownership, make_listener("gone")
    ownership.node, ownership.owned = "fra", set()
    await t.settle(gone)
    t.harness.live.remove(gone.id)
    await t.write("1")
    await t.harness.clock.turn(2 * 3600)
    t.triggers.wake()
    await t.harness.clock.turn()
    assert await t.left() == ["1"]

    ownership.owned.add(slot_of("gone"))
    t.triggers.wake()
    await t.harness.clock.turn()
    assert await t.left() == []
    await t.change("2")
    assert await t.left() == ["2"]
