"""Lists of jobs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.model import JobId
from spyweb.subjects.jobs.views import JobSort, JobsQuery, pick_jobs
from spyweb.views.jobs import JobState, JobView
from tests.fakes.daemon_service import three_jobs

BACKUP, PRICES, TYPO = three_jobs()
VIEWS = [replace(PRICES, tags=("shop", "eu"), description="What it Costs"), TYPO, BACKUP]


def ids(**wanted: object) -> list[str]:
    return [view.id for view in pick_jobs(VIEWS, JobsQuery(**wanted))[0]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"state": JobState.PAUSED}, ["backup"]),
        ({"tag": "eu"}, ["prices"]),
        ({"tag": "e"}, []),
        ({"q": "COSTS"}, ["prices"]),
        ({"q": "sho"}, ["prices"]),
        ({"q": "backup"}, ["backup"]),
        ({"q": "backup", "state": JobState.IDLE}, []),
    ],
)
def test_filters_hold_together(wanted: dict[str, object], found: list[str]) -> None:
    assert ids(**wanted) == found


@pytest.mark.parametrize(
    ("sort", "found"),
    [
        (JobSort.NAME, ["backup", "prices", "typo"]),
        (JobSort.STATE, ["typo", "prices", "backup"]),
        (JobSort.NEXT, ["prices", "backup", "typo"]),
        (JobSort.ID_REVERSED, ["typo", "prices", "backup"]),
        (JobSort.LAST, ["backup", "prices", "typo"]),
        (JobSort.LAST_REVERSED, ["typo", "prices", "backup"]),
        (JobSort.DURATION, ["backup", "prices", "typo"]),
    ],
)
def test_they_are_sorted_by_what_is_asked_for_then_by_id(sort: JobSort, found: list[str]) -> None:
    assert ids(sort=sort) == found


@pytest.mark.parametrize("sort", list(JobSort))
def test_pages_in_any_order_hold_each_job_once(sort: JobSort) -> None:
    many: list[JobView] = [replace(PRICES, id=JobId(f"job{number}"), name="the same") for number in range(7)]
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = pick_jobs(many, JobsQuery(sort=sort, limit=3, after=after))
        seen += [view.id for view in page]
    assert sorted(seen) == [view.id for view in many]
    assert len(seen) == len(set(seen))
