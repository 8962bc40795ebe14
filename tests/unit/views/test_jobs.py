"""What people and machines are shown of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spyweb.errors import Problem
from spyweb.model import After, At, Cron, Cursor, Every, JobId, Never, On, Schedule
from spyweb.views import jobs as job_views
from tests.fakes.daemon_service import NOW_MS, PRICES, three_jobs
from tests.fakes.harness import make_spec

NEWS = JobId("news")
PAUSED = Cursor(job=PRICES, due_ms=NOW_MS, schedule="", paused=True)


@pytest.mark.parametrize(
    ("facts", "enabled", "state"),
    [
        ({}, True, job_views.JobState.IDLE),
        ({"waiting": 2}, True, job_views.JobState.WAITING),
        ({"in_flight": 1, "waiting": 2}, True, job_views.JobState.RUNNING),
        ({"cursor": PAUSED}, True, job_views.JobState.PAUSED),
        ({"cursor": PAUSED}, False, job_views.JobState.DISABLED),
        ({"cursor": PAUSED, "in_flight": 1}, False, job_views.JobState.RUNNING),
    ],
)
def test_the_state_is_what_matters_most_now(facts: dict[str, Any], enabled: bool, state: job_views.JobState) -> None:
    assert job_views.view_job(make_spec(enabled=enabled), **facts).state is state


def test_a_file_that_does_not_load_is_shown_with_all_its_errors() -> None:
    problems = [Problem("jobs/typo.lua", 1, None, "no"), Problem("jobs/typo.lua", 2, "every", "neither")]
    view = job_views.broken_job(JobId("typo"), problems)
    assert (view.path, view.state, view.enabled) == ("jobs/typo.lua", job_views.JobState.BROKEN, False)
    assert view.error == "jobs/typo.lua:1: no; jobs/typo.lua:2: every: neither"


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (Every(period_ms=90_000), "every 1m30s"),
        (Cron(expression="0 3 * * *", timezone="Europe/Berlin"), "cron 0 3 * * * (Europe/Berlin)"),
        (At(at_ms=NOW_MS), "at Thu 2026-01-01 00:00:00 UTC"),
        (Never(), "never"),
    ],
)
def test_a_schedule_reads_as_in_a_job_file(schedule: Schedule, text: str) -> None:
    assert job_views.describe_schedule(schedule) == text


@pytest.mark.parametrize(
    ("schedule", "after", "on", "text"),
    [
        (Every(period_ms=1000), (After(job=PRICES),), (On(namespace="state"),), "every 1s"),
        (Never(), (After(job=PRICES),), (), "after prices"),
        (Never(), (), (On(namespace="state"),), "on state"),
        (Never(), (After(job=PRICES), After(job=NEWS)), (On(namespace="state"),), "after prices, news, on state"),
        (Never(), (), (), "never"),
    ],
)
def test_a_job_without_a_schedule_shows_what_starts_it(
    schedule: Schedule, after: tuple[After, ...], on: tuple[On, ...], text: str
) -> None:
    spec = replace(make_spec(PRICES), schedule=schedule, after=after, on=on)
    assert job_views.describe_start(spec) == text


def test_next_runs_are_told_in_the_zone_of_the_cron_expression() -> None:
    cron = Cron(expression="0 3 * * *", timezone="Asia/Tokyo")
    assert job_views.zone_of(cron, "UTC") == "Asia/Tokyo"
    assert job_views.zone_of(Every(period_ms=1), "UTC") == "UTC"
    assert job_views.next_run(PRICES, NOW_MS, "Asia/Tokyo").local == "Thu 2026-01-01 09:00:00 JST"


def test_a_job_is_found_by_id_before_name_and_by_a_name_that_is_its_alone() -> None:
    jobs = [make_spec(JobId("a"), name="b"), make_spec(JobId("b"), name="Bee"), make_spec(JobId("c"), name="b")]
    assert job_views.find_job(jobs, "b") == "b"
    assert job_views.find_job(jobs, "Bee") == "b"
    assert job_views.find_job(jobs, "nothing") is None
    assert job_views.find_job(jobs[::2], "b") is None, "two have this name"


def test_an_unknown_job_is_told_with_its_nearest_or_how_to_list_them() -> None:
    assert job_views.no_such_job(three_jobs(), "bakcup") == "no job is named 'bakcup': did you mean 'backup'?"
    assert job_views.no_such_job([], "x") == "no job is named 'x': `spyweb jobs` lists them"


def test_a_job_that_does_not_load_is_not_called_unknown() -> None:
    assert (
        job_views.no_such_job(three_jobs(), "typo") == "typo does not load: jobs/typo.lua:1: unexpected symbol near 'x'"
    )
