"""A page that answers with an error, or on which nothing is found any more, is told, also after a restart."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from msgspec import convert

from spyweb.model import Ending, Failure, JobId, Monitor, OnEmpty, Outcome, Run, RunId, RunState, Trigger
from spyweb.monitor.expectations import count_streak, is_short, shortfall
from spyweb.runs.live import LiveJob
from spyweb.runs.records import end_of
from spyweb.store.model.runs import Change, NewRun
from tests.fakes.monitor import SHOP, URL, Shop, make_monitor, page, shop

GOOD = (200, 2)
MISSING = (404, 0)
BARE = (200, 0)


async def watch(s: Shop, job: LiveJob, status: int, items: int, **trigger: object) -> Run:
    """One run, with its row in the store."""
    s.http.answers[URL] = page(status=status)
    s.extractor.otherwise = [{"title": f"{number}"} for number in range(items)]
    ending = await s.run(job, **trigger)
    told = convert({"type": "manual", **trigger}, Trigger)
    new = NewRun(job=job.id, state=RunState.RUNNING, trigger=told, started_ms=1)
    (run_id,) = await s.store.runs.record(Change(new=[new]))
    assert run_id
    run = Run(id=run_id, job=job.id, state=RunState.RUNNING)
    await s.store.runs.record(Change(end=[end_of(run, ending, 2)]))
    found = await s.store.past_runs.find(run_id)
    assert found
    return found


async def watch_all(s: Shop, job: LiveJob, *answers: tuple[int, int]) -> list[str]:
    """The notes of several runs."""
    return [(await watch(s, job, *answer)).note for answer in answers]


def make_run(status: int | None, found: int | None, **trigger: object) -> Run:
    return Run(
        id=RunId(next(NUMBERS)),
        job=SHOP,
        state=RunState.ENDED,
        outcome=Outcome.SUCCESS,
        http_status=status,
        items_found=found,
        trigger=convert(trigger, Trigger),
    )


NUMBERS = count(1)


def monitor(**settings: Any) -> Monitor:
    found = make_monitor(**settings).spec.monitor
    assert found
    return found


@pytest.mark.parametrize(
    ("settings", "run", "told"),
    [
        ({}, make_run(200, 2), ""),
        ({}, make_run(404, 2), "http status 404"),
        ({}, make_run(200, 0), "no items"),
        ({}, make_run(404, None), ""),  # a hook said that there is nothing to take apart: a 304, for one
        ({}, make_run(None, None), ""),
        ({"expect_status": ((404, 404),)}, make_run(404, 2), ""),
        ({"expect_status": ((200, 299), (404, 410))}, make_run(500, 2), "http status 500"),
        ({"min_items": 3}, make_run(200, 1), "1 item, 3 are expected"),
        ({"min_items": 0}, make_run(200, 0), ""),
    ],
)
def test_what_falls_short_is_said_in_a_few_words(settings: dict[str, Any], run: Run, told: str) -> None:
    assert shortfall(monitor(**settings), run, has_found=True) == told


def test_where_nothing_was_ever_found_nothing_is_missed() -> None:
    assert shortfall(monitor(), make_run(200, 0), has_found=False) == ""
    assert shortfall(monitor(min_items=1), make_run(200, 0), has_found=False) == "no items"


def test_runs_in_a_row_are_counted_by_their_rows() -> None:
    rows = [make_run(*BARE), make_run(None, None), make_run(*GOOD, debug=True), make_run(*MISSING), make_run(*GOOD)]
    streak = count_streak(monitor(), [*rows, make_run(*BARE)], has_found=False)
    assert (streak.count, streak.has_found) == (2, True)


async def test_a_page_that_answers_404_is_told_after_three_runs_and_no_longer_once_it_is_back() -> None:
    async with shop() as s:
        notes = await watch_all(s, make_monitor(), GOOD, MISSING, MISSING, MISSING, MISSING, GOOD, MISSING)
    assert notes == [
        *["", "", "", "not as expected: http status 404 in 3 runs in a row"],
        *["not as expected: http status 404 in 4 runs in a row", "", ""],
    ]


async def test_a_404_is_reported_at_once_where_no_run_has_ever_found_anything(s: Shop) -> None:
    notes = await watch_all(s, make_monitor(), *[MISSING] * 3, GOOD, MISSING, MISSING, MISSING)
    missing = "not as expected: http status 404"
    assert notes == [
        *[f"{missing}; nothing found yet", f"{missing} in 2 runs in a row; nothing found yet"],
        *[f"{missing} in 3 runs in a row", "", "", "", f"{missing} in 3 runs in a row"],
    ]


async def test_a_page_without_items_is_told_only_where_it_once_had_some() -> None:
    async with shop() as s:
        hint = "nothing found yet: check that .item matches elements of the page"
        assert await watch_all(s, make_monitor(), *[BARE] * 4) == [hint] * 4
        assert await watch_all(s, make_monitor(min_items=0), BARE) == [""]
        notes = await watch_all(s, make_monitor(), GOOD, *[BARE] * 3)
    assert notes[-1] == "not as expected: no items in 3 runs in a row"


async def test_the_count_goes_on_over_a_restart_and_an_edit(s: Shop) -> None:
    job = make_monitor()
    await watch_all(s, job, GOOD, BARE, BARE)
    s.monitors.forget(job.id)
    assert (await watch(s, job, *BARE)).note == "not as expected: no items in 3 runs in a row"
    assert (await watch(s, make_monitor(), *BARE)).note == "not as expected: no items in 4 runs in a row"


async def test_a_run_that_took_no_page_apart_does_not_hide_what_was_before_a_restart(s: Shop) -> None:
    await watch_all(s, make_monitor(), MISSING, MISSING)
    job = make_monitor(lua=True)
    s.vms.hooks = {"after_fetch": lambda _result, _ctx: None}
    await watch(s, job, *MISSING)
    s.vms.hooks = {}
    assert (await watch(s, job, *MISSING)).note == "not as expected: http status 404 in 3 runs in a row"


async def test_a_record_shows_that_there_were_items_where_the_runs_are_gone() -> None:
    async with shop() as s:
        await s.run()
        notes = await watch_all(s, make_monitor(empty_after=1), BARE)
    assert notes == ["not as expected: no items"]


async def test_where_the_settings_say_so_the_run_fails() -> None:
    async with shop() as s:
        job = make_monitor(on_empty=OnEmpty.FAIL, empty_after=2)
        runs = [await watch(s, job, *MISSING) for _ in range(3)]
    assert [run.outcome for run in runs] == [Outcome.SUCCESS, Outcome.FAILED, Outcome.FAILED]
    assert (runs[1].failure, runs[1].reason) == (Failure.ERROR, "not as expected: http status 404 in 2 runs in a row")
    assert (runs[2].http_status, runs[2].items_found) == (404, 0)


async def test_what_was_told_stays_told_where_a_person_looks_and_sees_the_same(s: Shop) -> None:
    job = make_monitor()
    await watch_all(s, job, MISSING, MISSING, MISSING)
    assert (await watch(s, job, *MISSING, debug=True)).note == "not as expected: http status 404 in 3 runs in a row"
    assert (await watch(s, job, *GOOD, debug=True)).note == ""
    assert (await watch(s, job, *MISSING)).note == "not as expected: http status 404 in 4 runs in a row"


async def test_it_is_logged_once_and_again_when_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    async with shop() as s:
        await watch_all(s, make_monitor(), *[MISSING] * 5, GOOD, *[MISSING] * 5, GOOD)
    lines = [line for line in capsys.readouterr().out.splitlines() if "expected" in line]
    assert len(lines) == 4
    for line, times in ((lines[0], ""), (lines[2], " in 3 runs in a row")):
        assert "a monitor does not find what is expected" in line
        assert f"http status 404{times}" in line
    assert "as expected again" in lines[1]
    assert "as expected again" in lines[3]


def test_a_run_that_was_told_of_is_known_by_its_row() -> None:
    told = Run(id=RunId(1), job=JobId("x"), state=RunState.ENDED, note="held the loop; not as expected: no items")
    assert is_short(told)
    assert not is_short(None)
    assert not is_short(make_run(*MISSING))


async def test_several_cycles_add_up_and_the_worst_status_stands(s: Shop) -> None:
    urls = tuple(f"http://shop.example/{number}" for number in range(3))
    for url, status in zip(urls, (200, 404, 204), strict=True):
        s.http.answers[url] = page(url, status=status)
    ending = await s.run(make_monitor(urls=urls, is_queue=True))
    assert (ending.http_status, ending.items_found, ending.items_new) == (404, 6, 2)


async def test_a_hook_that_skips_leaves_open_what_it_did_not_look_at(s: Shop) -> None:
    s.http.answers[URL] = page(status=304)
    s.vms.hooks = {"after_fetch": lambda _result, _ctx: None}
    ending = await s.run(make_monitor(lua=True))
    assert ending == Ending(outcome=Outcome.SUCCESS, http_status=304)
