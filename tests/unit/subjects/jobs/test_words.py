"""The rows of the overview: what each says, which are shown, and in which order."""

from __future__ import annotations

import pytest

from spyweb.subjects.jobs.overview import Standing, overview_seen_by
from spyweb.subjects.jobs.words import (
    MARKS,
    JobFilter,
    JobOrder,
    in_trouble,
    sort_rows,
    state_of,
)
from tests.fakes.dashboard import overview_of, three_rows


def ids(rows: object) -> list[str]:
    return [row.job.id for row in rows]  # type: ignore[attr-defined]


def test_every_standing_has_a_mark() -> None:
    assert set(MARKS) == set(Standing)


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (JobFilter(), ["backup", "prices", "typo"]),
        (JobFilter(q="PRI"), ["prices"]),
        (JobFilter(q="disk"), ["backup"]),
        (JobFilter(q="europe/berlin"), ["backup"]),
        (JobFilter(state="failing"), ["backup"]),
        (JobFilter(tag="home"), []),
        (JobFilter(q="pri", state="failing"), []),
    ],
)
def test_a_filter_looks_at_what_a_row_says(chosen: JobFilter, found: list[str]) -> None:
    assert ids(row for row in three_rows() if chosen.takes(row)) == found


@pytest.mark.parametrize(
    ("order", "found"),
    [
        (JobOrder.WORST, ["backup", "typo", "prices"]),
        (JobOrder.NAME, ["backup", "prices", "typo"]),
        (JobOrder.NEXT, ["prices", "backup", "typo"]),
        (JobOrder.SLOWEST, ["prices", "backup", "typo"]),
    ],
)
def test_rows_are_sorted(order: JobOrder, found: list[str]) -> None:
    assert ids(sort_rows(overview_of(three_rows()).rows, order)) == found


def test_the_icon_shows_the_worst() -> None:
    assert state_of([Standing.FAILING, Standing.WELL], [], []) == "bad"
    assert state_of([Standing.BROKEN], [], []) == "bad"
    assert state_of([Standing.WELL], [], []) == "ok"
    assert state_of([Standing.WELL, Standing.OUTDATED], [], []) == "warn"
    assert state_of([Standing.WELL], [], ["the disk fills up"]) == "warn"
    assert state_of([Standing.WELL], ["nothing is stored"], []) == "bad"


def test_whoever_may_see_one_job_is_told_of_no_other() -> None:
    overview = overview_of(three_rows(), problems=["nothing is stored"])
    seen = overview_seen_by(overview, lambda job: job == "prices")
    assert ids(seen.rows) == ["prices"]
    assert (seen.verdict.problems, seen.verdict.jobs, seen.states) == ((), 1, {"well": 1})
    assert in_trouble(seen.rows) == []
    assert overview_seen_by(overview, lambda _: True) is overview
