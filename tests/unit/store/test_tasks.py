"""The ends of tasks, in every kind of store: kept with their run, and taken over by the run that resumes it."""

from __future__ import annotations

import pytest

from spyweb.limits import SHOWN_OUTPUTS
from spyweb.model import RunId
from spyweb.store.model.runs import Change, RunPlan
from spyweb.store.sqlite import tasks
from spyweb.store.sqlite.store import Store
from spyweb.store.sqlite.tasks import match_plan
from tests.fakes.changes import PRICES, make_end
from tests.fakes.stores import ENGINES
from tests.fakes.task_rows import FAILED, SKIPPED, begin_run, row, story

STORES = ENGINES


async def test_a_row_is_told_back_whole(store: Store) -> None:
    run = await begin_run(store)
    whole = row("Bauen ✓", 3, FAILED, workflow="w", attempts=2, message="nö\0", output=b"\x91\x01")
    await store.tasks.add(run, [whole])

    assert await store.tasks.of_runs([run]) == {run: [whole]}


async def test_rows_come_in_the_order_of_their_definition_of_their_run_alone_and_as_recorded_last(store: Store) -> None:
    first, second, bare = [await begin_run(store) for _ in range(3)]
    await store.tasks.add(first, [row("b", 1), row("c", 2, FAILED)])
    await store.tasks.add(first, [row("c", 2, SKIPPED), row("a", 0)])
    await store.tasks.add(second, [row("x")])

    found = await store.tasks.of_runs([first, second, bare])

    assert {run: story(rows) for run, rows in found.items()} == {
        first: ["a success", "b success", "c skipped"],
        second: ["x success"],
    }


async def test_the_newest_runs_with_tasks_are_found(store: Store) -> None:
    first, _, second, third = [await begin_run(store) for _ in range(4)]
    for run in (second, first, third):
        await store.tasks.add(run, [row("a"), row("b", 1)])
    assert await store.tasks.newest(2) == [third, second]
    assert await store.tasks.newest(10) == [third, second, first]


async def test_a_run_that_begins_anew_takes_nothing_over(store: Store) -> None:
    await store.tasks.add(await begin_run(store), [row("a")])

    assert await store.tasks.take_over(await begin_run(store), [("", "a")]) == []
    assert await store.tasks.take_over(RunId(999), [("", "a")]) == []


async def test_a_chain_is_gathered_also_over_a_run_that_took_nothing_over(store: Store) -> None:
    first = await begin_run(store)
    await store.tasks.add(first, [row("a"), row("b", 1, FAILED)])
    await begin_run(store, resumes=first)  # it was lost before its first op
    third = await begin_run(store, resumes=first)
    await store.tasks.add(third, [row("b", 1)])
    other = await begin_run(store)
    await store.tasks.add(other, [row("c", 2)])
    fourth = await begin_run(store, resumes=first)

    taken = await store.tasks.take_over(fourth, [("", "a"), ("", "b"), ("", "c")])

    assert story(taken) == ["a success", "b success"]


async def test_a_retry_takes_over_the_run_that_it_names_and_what_resumes_it_both(store: Store) -> None:
    first = await begin_run(store)
    await store.tasks.add(first, [row("a"), row("b", 1, FAILED)])
    retry = await begin_run(store, retry_of=first)
    await store.tasks.take_over(retry, [("", "a"), ("", "b"), ("", "c")])
    await store.tasks.add(retry, [row("b", 1)])
    await begin_run(store, retry_of=first)  # another retry, which did nothing
    resumed = await begin_run(store, retry_of=first, resumes=retry)

    taken = await store.tasks.take_over(resumed, [("", "a"), ("", "b"), ("", "c")])

    assert [(each.name, each.taken_from) for each in taken] == [("a", first), ("b", retry)]
    assert await store.tasks.chain(resumed) == [first, retry]
    again = await begin_run(store, retry_of=resumed)
    taken = await store.tasks.take_over(again, [("", "a"), ("", "b")])
    assert [(each.name, each.taken_from) for each in taken] == [("a", first), ("b", retry)]


async def test_a_plan_goes_with_the_tasks_of_its_run_and_with_the_run(store: Store) -> None:
    plan = RunPlan(code={"": "d1"}, tasks=[("", "a"), ("", "b")], needs=[[], [0]])
    runs = [await ended_run(store) for _ in range(3)]
    for run in runs:
        await store.tasks.declare(run, plan)
    assert await store.tasks.plan(runs[0]) == plan
    await store.tasks.declare(await begin_run(store, dry_run=True), plan)
    assert await store.tasks.newest_of(PRICES) == runs[-1]
    await store.runs.prune(keep=1, older_than_ms=0)
    assert [await store.tasks.plan(run) is not None for run in runs] == [False, False, True]
    assert await kept(store, runs) == runs[-1:]


async def test_a_task_is_known_by_its_workflow_and_name_and_by_a_name_that_is_the_only_one(store: Store) -> None:
    first = await begin_run(store)
    rows = [row("build", 0, workflow="old"), row("test", 1, workflow="a"), row("test", 2, workflow="b", message="b")]
    await store.tasks.add(first, rows)
    second = await begin_run(store, resumes=first)

    taken = await store.tasks.take_over(second, [("b", "test"), ("c", "test"), ("new", "build"), ("new", "other")])

    assert taken == [
        row("test", 0, workflow="b", message="b", attempts=0, taken_from=first),
        row("build", 2, workflow="new", attempts=0, taken_from=first),
    ]


async def test_of_very_large_outputs_the_first_are_shown_and_all_are_taken_over(store: Store) -> None:
    first = await begin_run(store)
    large = b"x" * (SHOWN_OUTPUTS // 2)
    await store.tasks.add(first, [row(f"t{ordinal}", ordinal, output=large) for ordinal in range(4)])
    await store.tasks.add(first, [row("bare", 4)])
    second = await begin_run(store, resumes=first)

    shown = (await store.tasks.of_runs([first]))[first]
    taken = await store.tasks.take_over(second, [("", f"t{ordinal}") for ordinal in range(4)])

    assert [each.output for each in shown] == [large, large, None, None, None]
    assert [each.output for each in taken] == [large] * 4


async def ended_run(store: Store, tasks: int = 1) -> RunId:
    run = await begin_run(store)
    await store.tasks.add(run, [row(f"t{ordinal}", ordinal) for ordinal in range(tasks)])
    await store.runs.record(Change(end=[make_end(run)]))
    return run


async def kept(store: Store, runs: list[RunId]) -> list[RunId]:
    return list(await store.tasks.of_runs(runs))


async def test_the_tasks_of_the_newest_runs_stay(store: Store) -> None:
    runs = [await ended_run(store) for _ in range(2)]
    bare = await begin_run(store)  # without tasks, so it does not count
    runs.append(await ended_run(store))

    assert await store.tasks.prune(keep=2) == 1
    assert await kept(store, [*runs, bare]) == runs[1:]
    assert len(await store.runs.list(limit=9)) == 4
    assert await store.tasks.prune(keep=2) == 0


async def test_very_many_rows_do_not_go_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_ROWS", 20)
    runs = [await ended_run(store, 10) for _ in range(4)]

    assert await store.tasks.prune(keep=1) == 2
    assert await kept(store, runs) == [runs[0], runs[3]]
    assert await store.tasks.prune(keep=1) == 1


def test_of_several_rows_of_a_task_the_last_one_counts() -> None:
    (taken,) = match_plan([row("a", message="first"), row("a", message="last")], [("", "a")])
    assert taken.message == "last"
