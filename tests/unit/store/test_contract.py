"""What every store promises: the same tests run against the real one and the one of dictionaries."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.structs import replace

from spyweb.errors import CursorMoved, StoreClosed, StoreError
from spyweb.limits import IDEMPOTENCY_KEYS
from spyweb.model import Cursor, Failure, JobId, Outcome, Run, RunId, RunState, Trigger, TriggerType
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.model.entries import GLOBAL
from spyweb.store.model.runs import Begin, Change, End, NewRun, RequestKey
from spyweb.store.sqlite import runs
from spyweb.store.sqlite.connections import SLICE
from spyweb.store.sqlite.runs import read_trigger, storable
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.changes import (
    NEWS,
    PRICES,
    make_cursor,
    make_end,
    make_run,
    make_skipped,
    refuse,
    run_once,
    start_run,
    tell,
)
from tests.fakes.clock import FakeClock
from tests.fakes.stores import opened

# Entries


NUMBERS = {b"6": 7, b"-3": -2, b"+5": 6, b"007": 8, b"0" * 5000 + b"7": 8, b"-9223372036854775808": 1 - (1 << 63)}
NO_NUMBERS = [
    None, b"", b"abc", b"12abc", b"1.5", b"1e3", b" 7", b"7\n", b"1_000", b"-", b"9223372036854775808", b"9" * 5000,
    "٣".encode(),  # a digit to Unicode, not to us
]  # fmt: skip


async def test_increment_adds_to_a_whole_number_and_to_the_default_otherwise(store: Store) -> None:
    for before, after in [*NUMBERS.items(), *((text, 101) for text in NO_NUMBERS)]:
        if before is None:
            await store.values.delete(GLOBAL, b"k")
        else:
            await store.values.set(GLOBAL, b"k", before)

        assert await store.values.increment(GLOBAL, b"k", 100, 1) == after, before
        assert await store.values.get(GLOBAL, b"k") == b"%d" % after


# Runs


async def test_a_run_is_told_back_whole(store: Store) -> None:
    new = NewRun(
        job=PRICES,
        state=RunState.WAITING,
        trigger=Trigger(type="webhook", payload={"url": "http://example.org", "ok": True, "n": [1, 2.5, None]}),
        attempt=3,
        due_ms=1000,
        start_after_ms=1500,
    )
    run = (await store.runs.record(Change(new=[new])))[0]
    assert run is not None
    begin = Begin(run=run, started_ms=1600, generation=5)
    end = End(
        run=run,
        ended_ms=1900,
        outcome=Outcome.FAILED,
        failure=Failure.MEMORY,
        reason="too läge",
        traceback="jobs/prices.lua:3: too large",
        cpu_ms=12,
        storage_errors=1,
        result="läte",
        http_status=404,
        items_found=3,
        items_new=2,
        items_changed=1,
        note="held the loop",
    )
    await store.runs.record(Change(begin=[begin]))
    await store.runs.record(Change(end=[end]))

    parts = {name: value for part in (new, end, begin) for name, value in structs.asdict(part).items()}
    expected = {name: parts[name] for name in Run.__struct_fields__ if name in parts}
    assert await store.runs.list() == [Run(**(expected | {"id": run, "state": RunState.ENDED}))]


async def test_a_due_time_is_claimed_once_for_each_attempt_and_runs_without_one_never_clash(store: Store) -> None:
    first = await store.runs.record(Change(new=[make_run(), make_run(), make_run(attempt=2), make_run(NEWS)]))
    again = await store.runs.record(Change(new=[make_run(), make_run(due_ms=2000)]))

    more = await store.runs.record(Change(new=[make_run(due_ms=None), make_run(due_ms=None)]))
    made = [*first, *again, *more]
    assert [number is None for number in made] == [False, True, False, False, True, False, False, False]
    numbers = [number for number in made if number is not None]
    assert numbers == sorted(set(numbers)), "some may be left out"


async def test_a_stretch_claims_nothing(store: Store) -> None:
    await store.runs.record(Change(skipped=[make_skipped(first=1000, last=1000, count=1)]))

    assert await store.runs.record(Change(new=[make_run(due_ms=1000)])) == [2]


async def test_only_a_waiting_run_begins_and_a_run_ends_once(store: Store) -> None:
    run = await run_once(store, ended_ms=2000)
    await store.runs.record(Change(begin=[Begin(run=run, started_ms=9000)]))
    await store.runs.record(Change(end=[make_end(run, ended_ms=9000, outcome=Outcome.LOST)]))

    (told,) = await store.runs.list()
    assert (told.state, told.started_ms) == (RunState.ENDED, 1000)
    assert (told.outcome, told.ended_ms) == (Outcome.SUCCESS, 2000)


async def test_what_follows_a_run_is_recorded_with_an_end_that_applied_alone(store: Store) -> None:
    run = await start_run(store)
    retry = replace(make_run(attempt=2, state=RunState.WAITING), follows=run)
    dependent = replace(make_run(NEWS, due_ms=None, state=RunState.WAITING), follows=run)
    first, second = await store.runs.record(Change(end=[make_end(run)], new=[retry, dependent]))
    assert None not in (first, second)

    late = [replace(retry, attempt=3), dependent, make_run(NEWS, due_ms=7000)]
    passed_over = replace(make_skipped(NEWS), follows=run)
    again = Change(end=[make_end(run, outcome=Outcome.LOST)], new=late, skipped=[passed_over])
    ids = await store.runs.record(again)

    assert ids[:2] == [None, None]
    assert ids[2] is not None, "it follows nothing"
    assert [each.id for each in await store.runs.open()] == [first, second, ids[2]]
    assert [each.id for each in await store.runs.list()] == [ids[2], second, first, run], "no skipped range"


async def test_a_change_is_refused_as_a_whole_where_a_cursor_is_not_as_it_expects(store: Store) -> None:
    there, elsewhere = make_cursor(due_ms=1000), make_cursor(due_ms=2000)
    await store.runs.record(Change(cursors=[there, make_cursor(NEWS)]))

    nobody = JobId("nobody")
    for job, wrong in ((PRICES, elsewhere), (PRICES, make_cursor(paused=True)), (PRICES, None), (nobody, there)):
        moved = [make_cursor(due_ms=3000), make_cursor(NEWS, due_ms=3000)]
        claim = Change(expects={NEWS: make_cursor(NEWS), job: wrong}, cursors=moved, new=[make_run(due_ms=3000)])
        with pytest.raises(CursorMoved) as refused:
            await store.runs.record(claim)
        assert (refused.value.job, refused.value.found) == (job, there if job == PRICES else None)
    assert await store.runs.list() == []
    assert await store.runs.cursors() == {PRICES: there, NEWS: make_cursor(NEWS)}

    claim = Change(expects={PRICES: there, nobody: None}, cursors=[elsewhere], new=[make_run(due_ms=2000)])
    (run,) = await store.runs.record(claim)
    assert run is not None
    assert (await store.runs.cursors())[PRICES] == elsewhere


Runs = dict[JobId, RunId]  # the last of each job


def draw_change(chance: random.Random, due_ms: int, stores: Sequence[Runs]) -> list[Change]:
    """Return a change for each of the stores, which differ in the ids of their runs."""
    jobs = [JobId(f"job-{number}") for number in range(4)]
    job, other = chance.sample(jobs, 2)
    drawn = {part for part in ("expects", "cursors", "end", "skipped", "new", "heard") if chance.random() < 0.4}
    expected = chance.choice((None, make_cursor(job, due_ms=1), make_cursor(job, due_ms=2)))
    cursors = [make_cursor(each, due_ms=chance.choice((1, 2))) for each in (job, other)[: chance.randrange(3)]]
    changes = []
    for ended in stores:
        end = [make_end(ended[each]) for each in (job, other) if each in ended] if "end" in drawn else []
        follower = structs.replace(make_run(job, due_ms=due_ms), follows=end[0].run if end else None)
        change = Change(
            expects={job: expected} if "expects" in drawn else {},
            cursors=cursors if "cursors" in drawn else [],
            end=end,
            skipped=[make_skipped(other, first=due_ms, last=due_ms, count=1)] if "skipped" in drawn else [],
            new=[follower, make_run(other, due_ms=due_ms % 7)] if "new" in drawn else [],
            heard={other: due_ms} if "heard" in drawn else {},
        )
        changes.append(change)
    return changes


async def answer_of(runs: Runs, change: Change, answer: Future[list[RunId | None]]) -> str:
    """Tell which new runs were recorded, and remember them."""
    try:
        ids = await answer
    except CursorMoved as moved:
        return f"{moved.job}: {moved.found}"
    runs |= {new.job: run for new, run in zip(change.new, ids, strict=True) if run}
    return str([run is not None for run in ids])


async def runs_left(store: Store) -> list[Run]:
    """Return all runs without their ids, which say in which order they were recorded, but not of which job first."""
    runs = [structs.replace(run, id=RunId(0)) for run in await store.runs.list(limit=500)]
    return sorted(runs, key=lambda run: run.job)


@pytest.mark.parametrize("seed", range(4))
async def test_changes_that_share_a_commit_leave_what_they_leave_one_after_another(
    store: Store, clock: FakeClock, tmp_path: Path, seed: int
) -> None:
    chance, mine, others = random.Random(seed), Runs(), Runs()
    async with opened("memory", tmp_path / "other.db", clock) as other:
        for number in range(12):
            drawn = [draw_change(chance, number * 10 + each, (mine, others)) for each in range(6)]
            asked = [(change, store.runs.record(change)) for change, _ in drawn]

            together = [await answer_of(mine, change, answer) for change, answer in asked]
            assert together == [await answer_of(others, change, other.runs.record(change)) for _, change in drawn]

            assert await store.runs.cursors() == await other.runs.cursors()
            assert await runs_left(store) == await runs_left(other)


async def test_open_runs_are_those_that_have_not_ended_oldest_first(store: Store) -> None:
    running = await start_run(store)
    await run_once(store, NEWS)
    waiting = (await store.runs.record(Change(new=[make_run(NEWS, due_ms=5000, state=RunState.WAITING)])))[0]
    await store.runs.record(Change(skipped=[make_skipped()]))

    assert [run.id for run in await store.runs.open()] == [running, waiting]


async def test_a_list_is_newest_first_and_can_be_paged(store: Store) -> None:
    for due_ms in range(5):
        await start_run(store, PRICES, due_ms=due_ms)
        await start_run(store, NEWS, due_ms=due_ms)

    assert [run.id for run in await store.runs.list(limit=3)] == [10, 9, 8]
    assert [run.id for run in await store.runs.list(limit=3, before=RunId(8))] == [7, 6, 5]
    assert [run.id for run in await store.runs.list(NEWS, limit=2, before=RunId(8))] == [6, 4]
    assert await store.runs.list(JobId("unknown")) == []
    assert await store.runs.list(limit=0) == []


async def test_the_latest_of_a_job_has_really_run_and_ended(store: Store) -> None:
    await run_once(store, PRICES, due_ms=1000)
    latest = await run_once(store, PRICES, due_ms=2000)
    await store.runs.record(Change(skipped=[make_skipped(PRICES), make_skipped(NEWS)]))
    await start_run(store, PRICES, due_ms=9000)
    other = await run_once(store, JobId("archive"))

    assert {job: run.id for job, run in (await store.runs.latest()).items()} == {PRICES: latest, "archive": other}


async def test_a_skipped_run_is_the_latest_of_its_job_only_where_there_is_no_other(store: Store) -> None:
    failed = await run_once(store, PRICES, outcome=Outcome.FAILED)
    for due_ms in (2000, 3000):
        await run_once(store, PRICES, due_ms=due_ms, outcome=Outcome.SKIPPED)
        skipped = await run_once(store, NEWS, due_ms=due_ms, outcome=Outcome.SKIPPED)

    assert {job: run.id for job, run in (await store.runs.latest()).items()} == {PRICES: failed, NEWS: skipped}


@pytest.mark.parametrize("trial", [Trigger(type="manual", dry_run=True), Trigger(type="manual", debug=True)])
async def test_a_run_that_changes_nothing_is_neither_the_latest_of_its_job_nor_a_success(
    store: Store, trial: Trigger
) -> None:
    true_run = await run_once(store, PRICES, due_ms=1000, ended_ms=2000)
    request = replace(make_run(PRICES, due_ms=None), trigger=trial)
    (dry,) = await store.runs.record(Change(new=[request]))
    assert dry is not None
    await store.runs.record(Change(end=[make_end(dry, ended_ms=3000)]))
    assert {job: run.id for job, run in (await store.runs.latest()).items()} == {PRICES: true_run}
    assert await store.runs.succeeded() == {PRICES: 2000}


async def test_a_stretch_of_the_same_reason_lengthens_the_newest_row(store: Store) -> None:
    await store.runs.record(Change(skipped=[make_skipped(first=1000, last=3000, count=3)]))
    await store.runs.record(Change(skipped=[make_skipped(NEWS)]))
    await store.runs.record(Change(skipped=[make_skipped(first=4000, last=5000, count=2)]))

    (told,) = await store.runs.list(PRICES)
    assert (told.due_ms, told.last_due_ms, told.count, told.ended_ms) == (1000, 5000, 5, 5500)
    assert (told.outcome, told.reason, told.state) == (Outcome.MISSED, "the daemon was down", RunState.ENDED)


async def test_a_stretch_begins_anew_after_another_reason_a_run_or_another_trigger(store: Store) -> None:
    await store.runs.record(Change(skipped=[make_skipped()]))
    await store.runs.record(Change(skipped=[make_skipped(first=4000, last=5000, reason="paused")]))
    await store.runs.record(Change(skipped=[make_skipped(first=6000, last=6000, count=1)]))
    await run_once(store, due_ms=7000)
    await store.runs.record(Change(skipped=[make_skipped(first=8000, last=8000, count=1)]))
    of_state = replace(make_skipped(first=9000, last=9000, count=1), trigger=TriggerType.STATE)
    await store.runs.record(Change(skipped=[of_state]))

    assert [run.trigger.type for run in await store.runs.list(limit=2)] == ["state", "schedule"]
    assert tell(await store.runs.list()) == [
        "6 prices missed",
        "5 prices missed",
        "4 prices success",
        "3 prices missed",
        "2 prices missed x3",
        "1 prices missed x3",
    ]


async def test_in_one_change_what_was_missed_comes_before_what_starts(store: Store) -> None:
    await store.runs.record(Change(new=[make_run(due_ms=4000)], skipped=[make_skipped(first=1000, last=3000)]))

    assert tell(await store.runs.list()) == ["2 prices running", "1 prices missed x3"]


async def test_cursors_are_those_last_recorded(store: Store) -> None:
    await store.runs.record(Change(cursors=[make_cursor(due_ms=1000), make_cursor(NEWS, due_ms=5)]))
    moved = Cursor(
        job=PRICES,
        due_ms=2000,
        schedule="every 2s",
        paused=True,
        paused_for="3 failures in a row",
        idle_since_ms=1500,
        active_since_ms=900,
    )
    await store.runs.record(Change(cursors=[moved]))

    assert await store.runs.cursors() == {PRICES: moved, NEWS: make_cursor(NEWS, due_ms=5)}


async def test_pruning_deletes_what_ended_long_ago_and_never_what_is_open(store: Store) -> None:
    still_open = await start_run(store, PRICES, due_ms=1)
    await run_once(store, PRICES, due_ms=2, ended_ms=2000)
    recent = await run_once(store, PRICES, due_ms=3, ended_ms=3000)
    newest = await run_once(store, NEWS, ended_ms=1000)

    assert await store.runs.prune(keep=100, older_than_ms=3000) == 1
    assert [run.id for run in await store.runs.list()] == [newest, recent, still_open]


async def test_pruning_keeps_the_last_success_of_a_job_that_only_fails_since(store: Store) -> None:
    await run_once(store, PRICES, due_ms=1)
    success = await run_once(store, PRICES, due_ms=2)
    failures = [await run_once(store, PRICES, due_ms=due_ms, outcome=Outcome.FAILED) for due_ms in range(3, 6)]

    assert await store.runs.prune(keep=1, older_than_ms=1 << 50) == 3
    assert [run.id for run in await store.runs.list()] == [failures[-1], success], "it is the newest row of all, too"
    assert (await store.runs.succeeded()).keys() == {PRICES}


async def test_when_the_newest_run_of_each_job_has_started(store: Store) -> None:
    await run_once(store, PRICES, due_ms=1)
    await store.runs.record(Change(new=[replace(make_run(due_ms=2), started_ms=7_000)]))
    dry = Trigger(type="manual", dry_run=True)
    finding = Trigger(type="drift", finding="a file")
    later = [replace(make_run(due_ms=None), started_ms=9_000, trigger=trigger) for trigger in (dry, finding)]
    await store.runs.record(Change(new=later, skipped=[make_skipped()]))

    assert await store.runs.started() == {PRICES: 7_000}


async def test_ids_never_repeat_after_pruning(store: Store) -> None:
    first = await run_once(store, due_ms=1, ended_ms=1)
    second = await run_once(store, due_ms=2, ended_ms=1)
    await store.runs.prune(keep=0, older_than_ms=1 << 50)

    assert await start_run(store, due_ms=3) not in {first, second}


async def test_a_due_time_may_be_claimed_again_once_its_row_is_pruned(store: Store) -> None:
    await run_once(store, due_ms=1)
    await run_once(store, due_ms=2)
    await store.runs.prune(keep=1, older_than_ms=0)

    assert await store.runs.record(Change(new=[make_run(due_ms=1), make_run(due_ms=2)])) == [3, None]


# The store itself


async def test_stats_count_what_was_committed(store: Store, clock: FakeClock) -> None:
    assert store.stats().last_commit_ms is None
    before = store.commit_sizes().count
    clock.advance(1)
    await store.values.set(GLOBAL, b"k", b"1")
    assert store.commit_sizes().count == before + 1
    await store.values.get(GLOBAL, b"k")
    await start_run(store)

    stats = store.stats()
    assert (stats.writes, stats.errors, stats.pending, stats.failed) == (2, 0, 0, "")
    assert stats.last_commit_ms == clock.now_ms()


async def test_a_probe_is_answered_while_the_store_is_open(store: Store) -> None:
    await store.try_write()
    await store.probe()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.probe()


async def test_that_a_ping_was_heard_moves_the_cursor_of_its_job_alone(store: Store) -> None:
    paused = replace(make_cursor(), paused=True)
    await store.runs.record(Change(cursors=[paused, make_cursor(NEWS)]))
    await store.runs.record(Change(heard={PRICES: 9_000, JobId("nobody"): 1}))
    assert await store.runs.cursors() == {PRICES: replace(paused, due_ms=9_000), NEWS: make_cursor(NEWS)}


def test_text_is_stored_as_it_is_but_for_lone_surrogates() -> None:
    assert storable("läuft ✓ \udcff") == "läuft ✓ ?"


def test_a_trigger_that_is_damaged_or_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert read_trigger('{"type":"manual"}') == Trigger(type="manual")
    assert read_trigger("{x") == read_trigger('{"resumes":"7"}') == Trigger()
    assert read_trigger('{"type":"magic","of":4,"wand":{}}') == Trigger(type="magic", of=RunId(4))


JOBS = [JobId(f"job{number}") for number in range(3)]
RUNS_OF_EACH = SLICE


async def test_pruning_works_in_slices_over_all_jobs(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "spyweb.db", clock=FakeClock())
    new = [make_run(job, due_ms=due_ms) for due_ms in range(RUNS_OF_EACH) for job in JOBS]
    runs = await store.runs.record(Change(new=new))
    await store.runs.record(Change(end=[make_end(run) for run in runs if run is not None]))
    batches = store.stats().batches

    async with asyncio.TaskGroup() as tasks:
        pruning = tasks.create_task(store.runs.prune(keep=10, older_than_ms=0))
        while not pruning.done():
            await store.values.set(GLOBAL, b"k", b"other writes go on")

    assert pruning.result() == len(JOBS) * (RUNS_OF_EACH - 10)
    assert store.stats().batches > batches + len(JOBS)
    for job in JOBS:
        left = [run.due_ms for run in await store.runs.list(job, limit=99)]
        assert left == [RUNS_OF_EACH - 1 - age for age in range(10)]
    await store.close()


def with_key(key: bytes, at_ms: int) -> RequestKey:
    return RequestKey(scope="prices", key=key, fingerprint=b"f", at_ms=at_ms)


KEY = with_key(b"k1", 1_000)


def asked(request: RequestKey | None = KEY, *, payload: bytes | None = None, due_ms: int | None = None) -> NewRun:
    return replace(make_run(due_ms=due_ms), trigger=Trigger(type="webhook"), payload=payload, request=request)


async def start(store: Store, new: NewRun) -> RunId:
    (run,) = await store.runs.record(Change(new=[new]))
    assert run is not None
    return run


async def test_a_request_is_found_by_its_scope_and_key_with_the_run_that_was_started_last(store: Store) -> None:
    run = await start(store, asked())
    known = await store.runs.find_request("prices", b"k1")
    assert known is not None
    assert (known.run, known.fingerprint, known.at_ms) == (run, b"f", 1_000)
    assert await store.runs.find_request("news", b"k1") is None
    assert await store.runs.find_request("prices", b"k2") is None

    later = await start(store, asked(with_key(b"k1", 1_000 + 2 * DAY_MS)))
    known = await store.runs.find_request("prices", b"k1")
    assert known is not None
    assert known.run == later


async def test_a_change_that_is_refused_and_a_run_that_was_recorded_before_record_no_request(store: Store) -> None:
    with pytest.raises(CursorMoved):
        await store.runs.record(Change(expects={PRICES: make_cursor()}, new=[asked(payload=b"{}")]))
    assert await store.runs.find_request("prices", b"k1") is None
    assert await store.runs.payload(RunId(1)) is None

    await start(store, asked(None, due_ms=5))
    assert await store.runs.record(Change(new=[asked(due_ms=5)])) == [None]
    assert await store.runs.find_request("prices", b"k1") is None


async def test_keys_of_yesterday_are_cleared_as_new_ones_come(store: Store) -> None:
    for number in range(6):
        await start(store, asked(with_key(b"old%d" % number, 1_000)))
    for number in range(3):
        await start(store, asked(with_key(b"new%d" % number, 1_000 + DAY_MS + HOUR_MS)))
    found = [await store.runs.find_request("prices", b"old%d" % number) for number in range(6)]
    assert found == [None] * 6
    assert await store.runs.find_request("prices", b"new0") is not None


async def test_only_so_many_keys_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "IDEMPOTENCY_KEYS", 3)
    assert IDEMPOTENCY_KEYS > 3
    async with opened("sqlite", tmp_path / "few.db", FakeClock()) as store:
        for number in range(8):
            await start(store, asked(with_key(b"k%d" % number, 1_000)))
        found = [await store.runs.find_request("prices", b"k%d" % number) for number in range(8)]
        assert [known is not None for known in found] == [False] * 5 + [True] * 3


async def test_a_payload_is_kept_until_its_own_run_has_ended(store: Store) -> None:
    run = await start(store, asked(payload=b'{"a":1}'))
    other = await start(store, asked(None))
    await store.runs.record(Change(end=[make_end(other)]))
    assert await store.runs.payload(run) == b'{"a":1}'
    await store.runs.record(Change(end=[payload_end(run)]))
    assert await store.runs.payload(run) is None


async def test_a_payload_stays_for_the_attempt_that_follows(store: Store) -> None:
    run = await start(store, asked(payload=b"[]"))
    retry = replace(make_run(due_ms=None, attempt=2, state=RunState.WAITING), follows=run, of_payload=run)
    (second,) = await store.runs.record(Change(end=[payload_end(run)], new=[retry]))
    assert second is not None
    assert await store.runs.payload(run) == b"[]"

    await store.runs.record(Change(end=[payload_end(second, of=run)]))
    assert await store.runs.payload(run) is None


def payload_end(run: RunId, *, of: RunId | None = None) -> End:
    return End(run=run, ended_ms=2_000, outcome=Outcome.FAILED, of_payload=of or run)


async def test_what_is_written_is_decided_by_what_is_on_record(store: Store) -> None:
    stored = [make_cursor(due_ms=5000), make_cursor(NEWS)]
    await store.runs.record(Change(cursors=stored))
    known: dict[JobId, Cursor | None] = {PRICES: make_cursor(), NEWS: None}
    decided: list[list[int]] = []

    def decide() -> Change:
        cursors = [replace(known[job] or make_cursor(job, due_ms=0), paused=True) for job in (PRICES, NEWS)]
        decided.append([cursor.due_ms for cursor in cursors])
        return Change(expects=known, cursors=cursors)

    written = await store.runs.write_cursors(decide, known.__setitem__)

    assert decided == [[1000, 0], [5000, 0], [5000, 1000]]
    assert written.cursors == [replace(cursor, paused=True) for cursor in stored]
    assert await store.runs.cursors() == {cursor.job: cursor for cursor in written.cursors}


async def test_a_cursor_that_is_on_record_no_more_is_told_as_none(store: Store) -> None:
    known: dict[JobId, Cursor | None] = {PRICES: make_cursor()}

    def decide() -> Change:
        return Change(expects=known, cursors=[known[PRICES] or make_cursor(due_ms=7000)])

    await store.runs.write_cursors(decide, known.__setitem__)
    assert await store.runs.cursors() == {PRICES: make_cursor(due_ms=7000)}


async def test_any_other_refusal_is_for_whoever_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.runs, "record", refuse)
    with pytest.raises(StoreError, match="full"):
        await store.runs.write_cursors(lambda: Change(cursors=[make_cursor()]), lambda *_: None)
