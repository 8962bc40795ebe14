"""Questions about past runs, to every kind of store."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.errors import CursorMoved, StoreClosed
from spyweb.model import Failure, JobId, Outcome, RunId, RunMark, RunState, Trigger, TriggerType
from spyweb.store.model.runs import NO_TIME, Change, End, NewRun, RunFilter, ScheduleStep, SkippedRange, StripWish
from spyweb.store.sqlite import past_runs
from spyweb.store.sqlite.store import Store
from tests.fakes.changes import NEWS, PRICES, make_cursor, make_skipped, run_once
from tests.fakes.clock import FakeClock
from tests.fakes.memory_store import MemoryStore
from tests.fakes.stores import ENGINES, until_told

STORES = ENGINES

LATE = 1_000


async def begin(store: Store, job: JobId = PRICES, **changes: object) -> RunId:
    new = NewRun(job=job, state=RunState.RUNNING, trigger=Trigger(type="manual"), started_ms=1_000)
    (run,) = await store.runs.record(Change(new=[replace(new, **changes)]))
    assert run is not None
    return run


async def end(store: Store, run: RunId, outcome: Outcome, **changes: object) -> None:
    await store.runs.record(Change(end=[replace(End(run=run, ended_ms=3_000, outcome=outcome), **changes)]))


async def ran(store: Store, outcome: Outcome, job: JobId = PRICES, *, at: int = 1_000, **changes: object) -> RunId:
    run = await begin(store, job, started_ms=at, **changes)
    await end(store, run, outcome, ended_ms=at + 500)
    return run


async def strip(store: Store, job: JobId = PRICES, count: int = 40) -> tuple[str, list[int]]:
    found = await store.past_runs.strips([StripWish(job, LATE)], count)
    assert len(found[job].ids) == len(found[job].marks) == len(found[job].took_ms)
    return found[job].marks, list(found[job].took_ms)


async def test_a_strip_has_a_letter_for_each_run_oldest_first(store: Store) -> None:
    for outcome in (Outcome.SUCCESS, Outcome.LOST, Outcome.STOPPED, Outcome.FAILED):
        await ran(store, outcome)
    await end(store, await begin(store), Outcome.FAILED, failure=Failure.CANCELLED)
    await store.runs.record(Change(skipped=[make_skipped()]))
    await store.runs.record(Change(skipped=[replace_range(Outcome.PAUSED), replace_range(Outcome.SKIPPED)]))
    await begin(store)
    await begin(store, state=RunState.WAITING, started_ms=None)

    marks, took_ms = await strip(store)
    assert marks == "slxfcmpkrw"
    assert took_ms == [500, 500, 500, 500, 2000, *[NO_TIME] * 5]


def replace_range(outcome: Outcome) -> SkippedRange:
    return SkippedRange(job=PRICES, outcome=outcome, first_due_ms=1, last_due_ms=1, count=1, reason="", at_ms=1)


async def test_plans_dry_runs_and_alert_hooks_are_no_runs_in_strips_charts_and_series(store: Store) -> None:
    await ran(store, Outcome.FAILED, at=1_000)
    asides = [Trigger(type="manual", debug=True), Trigger(type="manual", dry_run=True), Trigger(incident={"id": 1})]
    for aside in asides:
        await ran(store, Outcome.SUCCESS, trigger=aside, at=2_000)
    named = await ran(store, Outcome.FAILED, trigger=Trigger(type="manual", payload={"debug": True}), at=3_000)
    await begin(store, trigger=asides[0])

    assert (await strip(store, count=2))[0] == "ff"
    points = await store.past_runs.points(PRICES, since_ms=0, limit=10)
    assert [point.at_ms for point in points] == [3_000, 1_000]
    series = (await store.past_runs.failing([PRICES]))[PRICES]
    assert (series.count, series.since_ms) == (2, 1_000)
    own = await store.past_runs.search(RunFilter(job=PRICES, own=True), limit=10)
    assert [run.id for run in own.runs] == [named, RunId(1)]


async def test_of_more_runs_a_strip_has_the_newest_and_of_another_job_none(store: Store) -> None:
    for outcome in (Outcome.FAILED, Outcome.SUCCESS, Outcome.LOST):
        await ran(store, outcome)
    await ran(store, Outcome.FAILED, NEWS)

    assert (await strip(store, count=2))[0] == "sl"
    assert (await strip(store, JobId("nobody")))[0] == ""


@pytest.mark.parametrize(
    ("late_ms", "attempt", "mark"),
    [(LATE, 1, RunMark.SUCCESS), (LATE + 1, 1, RunMark.LATE), (9_000, 2, RunMark.SUCCESS)],
)
async def test_a_success_that_began_late_is_a_late_one_unless_it_is_a_retry(
    store: Store, late_ms: int, attempt: int, mark: RunMark
) -> None:
    await ran(store, Outcome.SUCCESS, at=10_000 + late_ms, due_ms=10_000, attempt=attempt)

    assert (await strip(store))[0] == mark


async def test_a_series_of_failures_goes_back_to_the_last_success_and_counts_no_retries(store: Store) -> None:
    await ran(store, Outcome.FAILED, at=1)
    await ran(store, Outcome.SUCCESS, at=2)
    first = await ran(store, Outcome.FAILED, at=3, due_ms=3)
    await ran(store, Outcome.FAILED, at=4, due_ms=3, attempt=2)
    await end(store, await begin(store, started_ms=5), Outcome.FAILED, failure=Failure.CANCELLED)
    await ran(store, Outcome.LOST, at=6)
    await store.runs.record(Change(skipped=[make_skipped()]))
    await ran(store, Outcome.SUCCESS, NEWS)

    found = await store.past_runs.failing([PRICES, NEWS, JobId("nobody")])
    assert {job: (series.since_ms, series.count, series.first) for job, series in found.items()} == {
        PRICES: (3, 2, first)
    }


async def test_a_job_that_never_succeeded_fails_since_its_first_failure(store: Store) -> None:
    await store.runs.record(Change(skipped=[make_skipped()]))
    first = await ran(store, Outcome.FAILED, at=7)

    found = await store.past_runs.failing([PRICES])
    assert (found[PRICES].since_ms, found[PRICES].count, found[PRICES].first) == (7, 1, first)


async def test_runs_are_found_by_job_outcome_trigger_and_time(store: Store) -> None:
    one = await ran(store, Outcome.SUCCESS, at=1_000)
    two = await ran(store, Outcome.FAILED, at=2_000, trigger=Trigger(type="schedule"))
    three = await ran(store, Outcome.FAILED, NEWS, at=3_000)
    four = await begin(store, started_ms=4_000)

    async def ids(wanted: RunFilter) -> list[int]:
        return [run.id for run in (await store.past_runs.search(wanted, limit=9)).runs]

    assert await ids(RunFilter()) == [four, three, two, one]
    assert await ids(RunFilter(job=PRICES)) == [four, two, one]
    assert await ids(RunFilter(outcomes=[Outcome.FAILED, Outcome.LOST])) == [three, two]
    assert await ids(RunFilter(outcomes=[Outcome.SUCCESS])) == [one]
    assert await ids(RunFilter(job=PRICES, outcomes=[Outcome.FAILED])) == [two]
    assert await ids(RunFilter(triggers=[TriggerType.MANUAL])) == [four, three, one]
    assert await ids(RunFilter(since_ms=2_000, until_ms=4_000)) == [three, two]


async def test_no_character_of_what_was_sent_hides_a_run(store: Store) -> None:
    sent = {"incident": "\0 \\u0000 \U0010ffff \U0010ffff0", "dry_run": {"\0": r"\u0000\0"}}
    trigger = Trigger(type=TriggerType.WEBHOOK, payload=sent, query={"debug": "\0"})
    run = await ran(store, Outcome.SUCCESS, trigger=trigger)

    assert await strip(store) == ("s", [500])
    assert list(await store.runs.latest()) == [PRICES]
    found = await store.past_runs.search(RunFilter(triggers=[TriggerType.WEBHOOK], own=True), limit=9)
    assert [each.trigger for each in found.runs] == [trigger]
    assert await store.past_runs.followers(run, limit=1) == []


async def test_a_search_goes_on_where_a_page_ends(store: Store) -> None:
    runs = [await ran(store, Outcome.FAILED) for _ in range(5)]

    pages, before = [], None
    while True:
        page = await store.past_runs.search(RunFilter(outcomes=[Outcome.FAILED]), limit=2, before=before)
        pages += [run.id for run in page.runs]
        before = page.before
        if before is None:
            break

    assert pages == runs[::-1]


async def test_points_of_a_chart_are_the_runs_that_ended_newest_first(store: Store) -> None:
    old = await ran(store, Outcome.SUCCESS, at=1_000)
    late = await ran(store, Outcome.FAILED, at=5_000, due_ms=4_000)
    again = await ran(store, Outcome.SUCCESS, at=9_000, due_ms=4_000, attempt=2)
    await ran(store, Outcome.SUCCESS, NEWS, at=9_000)
    await begin(store, started_ms=9_500)

    found = await store.past_runs.points(PRICES, since_ms=5_000, limit=9)
    assert found == [(again, 9_000, 500, 0, RunMark.SUCCESS), (late, 5_000, 500, 1_000, RunMark.FAILED)]
    assert [point.run for point in await store.past_runs.points(PRICES, since_ms=0, limit=9, before=late)] == [old]
    assert len(await store.past_runs.points(PRICES, since_ms=0, limit=1)) == 1


async def test_what_came_of_a_run_is_found_by_the_triggers_that_name_it(store: Store) -> None:
    run = await ran(store, Outcome.FAILED)
    await ran(store, Outcome.SUCCESS)
    retry = await ran(store, Outcome.SUCCESS, trigger=Trigger(type="retry", of=run), attempt=2)
    after = await ran(store, Outcome.SUCCESS, NEWS, trigger=Trigger(type="after", job="prices", run_id=run))
    state = await ran(store, Outcome.SUCCESS, NEWS, trigger=Trigger(type="state", by=run))
    cause = Trigger(type="retry", of=state, cause=Trigger(type="state", by=run))
    of_state = await ran(store, Outcome.SUCCESS, NEWS, trigger=cause, attempt=2)

    assert [each.id for each in await store.past_runs.followers(run, limit=9)] == [retry, after, state, of_state]
    assert [each.id for each in await store.past_runs.followers(run, limit=1)] == [retry]
    assert await store.past_runs.followers(of_state, limit=9) == []


async def test_whoever_listens_is_told_of_each_change_with_its_ids_until_he_leaves(store: Store) -> None:
    told: list[tuple[Change, object]] = []
    leave = store.runs.on_recorded(lambda change, ids: told.append((change, ids)))
    change = Change(new=[NewRun(job=PRICES, state=RunState.RUNNING, trigger=Trigger(), started_ms=1)])

    ids = await store.runs.record(change)
    await until_told()
    assert told == [(change, ids)]

    leave()
    await store.runs.record(change)
    await until_told()
    assert len(told) == 1


async def test_whoever_listens_is_told_of_nothing_that_was_refused(store: Store) -> None:
    told: list[object] = []
    store.runs.on_recorded(lambda *recorded: told.append(recorded))
    await store.close()

    with pytest.raises(StoreClosed):
        await store.runs.record(Change())
    await until_told()
    assert told == []


ADD = """
    INSERT INTO run (job, state, attempt, "trigger", started_ms, ended_ms, outcome)
    VALUES ('prices', 'ended', 1, ?, ?, ?, ?)
"""


@pytest.fixture
def memory(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock)


def add(memory: MemoryStore, outcome: str, trigger: str = "{}") -> None:
    memory.execute(ADD, trigger, 1, 2, outcome)


async def test_a_search_says_how_far_it_looked_and_finds_what_failed_without_a_walk_over_what_succeeded(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_runs, "SEARCHED", 10)
    add(memory, "lost")
    for _ in range(25):
        add(memory, "success")

    wanted = RunFilter(triggers=[TriggerType.MANUAL])
    first = await memory.past_runs.search(wanted, limit=5)
    second = await memory.past_runs.search(wanted, limit=5, before=first.before)
    third = await memory.past_runs.search(wanted, limit=5, before=second.before)

    assert [page.before for page in (first, second, third)] == [17, 7, None]
    assert first.runs == second.runs == third.runs == []

    page = await memory.past_runs.search(RunFilter(outcomes=[Outcome.LOST]), limit=5)
    assert ([run.id for run in page.runs], page.before) == ([1], None)


async def test_a_damaged_trigger_is_no_error(memory: MemoryStore) -> None:
    add(memory, "success", "no JSON")
    add(memory, "success", "no JSON")

    wanted = RunFilter(job=JobId("prices"), triggers=[TriggerType.RETRY])
    assert (await memory.past_runs.search(wanted, limit=5)).runs == []
    assert await memory.past_runs.followers(RunId(1), limit=5) == []


async def test_points_of_a_check_are_the_latencies_that_its_results_name(store: Store) -> None:
    results = [
        '{"latency":85.9,"status":200}',
        '{"latency":"fast"}',
        '{"latency"',
        "7",
        '{"latency":1e300}',
        '{"status":200}',
        "",
    ]
    for at, result in enumerate(results, 1):
        await end(store, await begin(store, started_ms=at), Outcome.SUCCESS, ended_ms=1_000, result=result)
    await end(store, await begin(store, started_ms=9), Outcome.FAILED, ended_ms=2_000, result=results[0])

    found = await store.past_runs.points(PRICES, since_ms=0, limit=9, of_latency=True)
    assert [point.took_ms for point in reversed(found)] == [86, *[NO_TIME] * 7]


async def test_the_schedules_of_a_job_and_the_rows_about_its_due_times_are_kept_and_pruned_with_its_runs(
    store: Store,
) -> None:
    steps = [
        ScheduleStep(job=PRICES, until_ms=at_ms, due_ms=at_ms, schedule=f"every {at_ms}") for at_ms in (1_000, 4_000)
    ]
    await store.runs.record(Change(cursors=[make_cursor(due_ms=1_000)], steps=steps[:1]))
    with pytest.raises(CursorMoved):
        await store.runs.record(Change(expects={PRICES: None}, steps=steps))
    for due_ms in (2_000, 3_000):
        await run_once(store, due_ms=due_ms, ended_ms=due_ms + 500)
    await begin(store, due_ms=3_000, attempt=2)
    await begin(store)
    missed = make_skipped(first=3_200, last=3_900, count=8)
    await store.runs.record(Change(cursors=[make_cursor(due_ms=4_000)], steps=steps[1:], skipped=[missed]))
    of_state = replace(make_skipped(first=4_100, last=4_100, count=1), trigger=TriggerType.STATE)
    await store.runs.record(Change(skipped=[of_state, make_skipped(first=5_000, last=6_000, count=2, reason="down")]))
    await begin(store, due_ms=7_000, started_ms=None, state=RunState.WAITING)
    await begin(store, due_ms=8_000, started_ms=8_501)

    steps, rows, known_ms = await store.past_runs.due(PRICES, 2_000, 8_000, 500)
    assert [(step.schedule, step.run) for step in steps] == [("every 1000", 0), ("every 4000", 4)]
    assert [(*row[:3], row.range is not None, row.kind) for row in rows] == [
        (3_000, 3_000, 1, False, "ran"),
        (3_200, 3_900, 8, True, "missed"),
        (5_000, 6_000, 2, True, "missed"),
        (7_000, 7_000, 1, False, "waiting"),
        (8_000, 8_000, 1, False, "late"),
    ]
    assert [row.first_ms for row in (await store.past_runs.due(PRICES, 3_500, 5_000, 0))[1]] == [3_200, 5_000]
    assert known_ms == 0
    assert await store.past_runs.due(NEWS, 0, 9_000, 0) == ([], [], 0)

    assert await store.runs.prune(keep=2, older_than_ms=2_000) == 2
    steps, _, known_ms = await store.past_runs.due(PRICES, 0, 9_000, 0)
    assert (known_ms, len(steps)) == (3_900, 2), "a success is kept, however old"
    await store.runs.record(Change(cursors=[make_cursor(due_ms=9_000)]))
    await store.runs.prune(keep=1, older_than_ms=2_000)
    steps, _, known_ms = await store.past_runs.due(PRICES, 0, 9_000, 0)
    assert (known_ms, [step.schedule for step in steps]) == (4_100, ["every 4000"])


async def test_a_change_of_the_schedule_begins_a_row_and_a_job_has_a_bounded_number_of_them(store: Store) -> None:
    for first in (1_000, 2_000, 3_000):
        step = ScheduleStep(job=PRICES, until_ms=first, due_ms=first, schedule="never")
        skipped = make_skipped(first=first, last=first, count=1)
        await store.runs.record(Change(skipped=[skipped], steps=[step] if first == 3_000 else []))
    assert [row.times for row in (await store.past_runs.due(PRICES, 0, 9_000, 0))[1]] == [2, 1]

    many = [ScheduleStep(job=PRICES, until_ms=n, due_ms=n, schedule="never") for n in range(1_100)]
    await store.runs.record(Change(steps=many))
    kept, *_ = await store.past_runs.due(PRICES, 0, 9_000, 0)
    assert (len(kept), kept[-1].due_ms) == (1_000, 1_099)


async def test_of_very_many_rows_about_due_times_the_newest_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for due_ms in range(1_000, 6_000, 1_000):
        await run_once(store, due_ms=due_ms)
    monkeypatch.setattr(past_runs, "MOST_DUE", 3)
    _, rows, known_ms = await store.past_runs.due(PRICES, 0, 9_000, 0)
    assert ([row.first_ms for row in rows], known_ms) == ([3_000, 4_000, 5_000], 3_000)
