"""The overview in words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.cooperative import run_at_once
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.store.model.runs import FailingSeries, RunStrip
from spyweb.subjects.jobs.overview import (
    OverviewRow,
    Standing,
    make_overview,
    make_verdict,
    standing_of,
    view_row,
)
from spyweb.views.jobs import JobState, JobView, view_job
from tests.fakes.daemon_service import make_run, make_spec, three_jobs

SERIES = FailingSeries(since_ms=5, count=7, first=RunId(3))


def job(name: str = "prices", **changes: object) -> JobView:
    view = view_job(make_spec(JobId(name)), last=make_run(job=JobId(name)))
    return replace(view, **changes)


def rows(*standings: Standing) -> list[OverviewRow]:
    return [OverviewRow(job=job(f"job{at}"), standing=standing) for at, standing in enumerate(standings)]


@pytest.mark.parametrize(
    ("changes", "is_failing", "standing"),
    [
        ({}, False, Standing.WELL),
        ({}, True, Standing.FAILING),
        ({"state": JobState.RUNNING}, False, Standing.RUNNING),
        ({"state": JobState.RUNNING}, True, Standing.FAILING),
        ({"state": JobState.PAUSED}, True, Standing.FAILING),
        ({"state": JobState.PAUSED}, False, Standing.PAUSED),
        ({"state": JobState.WAITING}, False, Standing.WAITING),
        ({"error": "jobs/prices.lua:1: x"}, False, Standing.OUTDATED),
        ({"enabled": False, "state": JobState.DISABLED}, True, Standing.DISABLED),
        ({"enabled": False, "state": JobState.RUNNING}, False, Standing.RUNNING),
        ({"state": JobState.BROKEN, "enabled": False}, False, Standing.BROKEN),
        ({"last": None}, False, Standing.NEW),
    ],
)
def test_what_needs_somebody_is_stronger_than_what_goes_on(
    changes: dict[str, object], is_failing: bool, standing: Standing
) -> None:
    assert standing_of(job("prices", **changes), is_failing=is_failing) is standing


@pytest.mark.parametrize("changes", [{"storage_errors": 2}, {"note": "not as expected: no items"}])
def test_a_success_with_something_wrong_is_to_be_looked_at(changes: dict[str, object]) -> None:
    view = view_job(make_spec(), last=make_run(1, **changes))
    assert standing_of(view, is_failing=False) is Standing.DOUBTFUL


@pytest.mark.parametrize(
    ("standings", "words"),
    [
        ([], "No jobs yet"),
        ([Standing.WELL], "The one job is well"),
        ([Standing.WELL] * 1_200, "All 1,200 jobs well"),
        ([Standing.PAUSED, Standing.WELL], "All 2 jobs well"),
        ([Standing.FAILING, Standing.WELL], "1 of 2 jobs failing"),
        ([Standing.FAILING, Standing.BROKEN, Standing.OUTDATED], "1 of 3 jobs failing; 2 files do not load"),
        ([Standing.BROKEN], "1 file does not load"),
        ([Standing.DOUBTFUL, Standing.WELL], "1 of 2 jobs to look at"),
    ],
)
def test_the_verdict_says_how_it_stands(standings: list[Standing], words: str) -> None:
    verdict = make_verdict(rows(*standings))
    assert verdict.words == words
    assert verdict.is_well is (words.startswith(("All", "The", "No")))


def test_what_is_wrong_with_the_daemon_comes_first() -> None:
    verdict = make_verdict(rows(Standing.WELL), problems=["nothing is stored: disk full", "x"])
    assert verdict.words == "nothing is stored: disk full, and 1 more"
    assert not verdict.is_well


def test_the_worst_stand_first_and_the_others_by_name() -> None:
    standings = [Standing.WELL, Standing.DOUBTFUL, Standing.RUNNING, Standing.FAILING]
    given = rows(*standings)
    found = run_at_once(make_overview(given, problems=[], warnings=["x"], now_ms=9))
    assert (found.verdict.warnings, found.at_ms) == (["x"], 9)
    assert [row.job.id for row in found.rows] == ["job3", "job1", "job0", "job2"]
    assert found.states == {"failing": 1, "doubtful": 1, "running": 1, "well": 1}


def test_the_last_error_or_result_is_one_short_line() -> None:
    backup, prices, typo = three_jobs()
    assert view_row(backup).result == "jobs/backup.lua:3: disk"
    assert view_row(prices).result == "succeeded"
    assert (view_row(backup).standing, view_row(backup, strip=RunStrip()).standing) == (
        Standing.FAILING,
        Standing.PAUSED,
    )
    assert view_row(typo).result.startswith("jobs/typo.lua:1: unexpected symbol")
    long = view_job(make_spec(), last=make_run(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="x" * 999 + "\ny"))
    assert view_row(long).result == "x" * 199 + "…"
    refused = view_job(make_spec(), last=make_run(result="42", storage_errors=1))
    assert view_row(refused).result == "42; 1 storage error"


def test_a_row_says_since_when_it_fails_and_what_the_strip_says() -> None:
    strip = RunStrip(ids=[3, 4, 0], marks="sfm", took_ms=[10, 30, -1])
    row = view_row(job(), strip=strip, series=SERIES, held_up=["news"])
    assert row.failing is not None
    assert (row.failing.since_ms, row.failing.words) == (5, "7 runs in a row")
    assert (row.success_rate, row.median_ms, row.newest, row.held_up) == (0.5, 10, 4, ["news"])
    assert view_row(job(), strip=strip, held_up=["news"]).held_up == ()
