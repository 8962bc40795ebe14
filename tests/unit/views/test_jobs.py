"""What people and machines are shown of jobs and runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from spyweb.errors import Problem
from spyweb.logs.job import NAME
from spyweb.model import (
    After,
    At,
    Cron,
    Cursor,
    Ending,
    Every,
    Failure,
    JobId,
    Never,
    On,
    Outcome,
    RunState,
    Schedule,
)
from spyweb.views.jobs import (
    LOG_NAME,
    JobFacts,
    JobState,
    JobView,
    LogLine,
    RunEnded,
    RunEvent,
    broken_job,
    describe_moment,
    describe_schedule,
    describe_start,
    event_from_json,
    event_to_json,
    find_job,
    last_run,
    log_file,
    log_line,
    next_run,
    no_such_job,
    run_ended,
    to_json,
    view_job,
    zone_of,
)
from tests.fakes.daemon_service import NOW_MS, PRICES, a_watched_run, make_run, make_spec, three_jobs

NEWS = JobId("news")
PAUSED = Cursor(job=PRICES, due_ms=NOW_MS, schedule="", paused=True)


@pytest.mark.parametrize(
    ("facts", "enabled", "state"),
    [
        (JobFacts(), True, JobState.IDLE),
        (JobFacts(waiting=2), True, JobState.WAITING),
        (JobFacts(in_flight=1, waiting=2), True, JobState.RUNNING),
        (JobFacts(cursor=PAUSED), True, JobState.PAUSED),
        (JobFacts(cursor=PAUSED), False, JobState.DISABLED),
        (JobFacts(cursor=PAUSED, in_flight=1), False, JobState.RUNNING),
        (JobFacts(error="broken on disk"), True, JobState.IDLE),
    ],
)
def test_the_state_is_what_matters_most_now(facts: JobFacts, enabled: bool, state: JobState) -> None:
    assert view_job(make_spec(enabled=enabled), facts).state is state


def test_a_job_shows_its_last_run_and_how_long_it_took() -> None:
    last = view_job(make_spec(), JobFacts(last=make_run())).last
    assert last is not None
    assert (last.outcome, last.duration_ms) == (Outcome.SUCCESS, 1_234)


def test_a_run_under_way_is_no_last_run() -> None:
    assert last_run(make_run(state=RunState.RUNNING, outcome=None, ended_ms=None)) is None


def test_a_clock_set_back_makes_no_negative_duration() -> None:
    last = last_run(make_run(ended_ms=NOW_MS - 90_000))
    assert last is not None
    assert last.duration_ms == 0


def test_a_file_that_does_not_load_is_shown_with_all_its_errors() -> None:
    problems = [Problem("jobs/typo.lua", 1, None, "no"), Problem("jobs/typo.lua", 2, "every", "neither")]
    view = broken_job(JobId("typo"), problems)
    assert (view.path, view.state, view.enabled) == ("jobs/typo.lua", JobState.BROKEN, False)
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
    assert describe_schedule(schedule) == text


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
    assert describe_start(spec) == text


@pytest.mark.parametrize(
    ("ms", "zone", "text"),
    [
        (1_774_746_000_000, "Europe/Berlin", "Sun 2026-03-29 03:00:00 CEST"),
        (1_774_745_999_000, "Europe/Berlin", "Sun 2026-03-29 01:59:59 CET"),
        (NOW_MS + 7, "UTC", "Thu 2026-01-01 00:00:00.007 UTC"),
        (-1, "UTC", "Wed 1969-12-31 23:59:59.999 UTC"),
        (1 << 53, "UTC", "9007199254740992 ms since 1970"),
        (253_402_300_799_000, "Europe/Berlin", "253402300799000 ms since 1970"),
        (-62_135_596_800_000, "America/New_York", "-62135596800000 ms since 1970"),
    ],
)
def test_a_moment_says_its_zone(ms: int, zone: str, text: str) -> None:
    assert describe_moment(ms, zone) == text


def test_next_runs_are_told_in_the_zone_of_the_cron_expression() -> None:
    cron = Cron(expression="0 3 * * *", timezone="Asia/Tokyo")
    assert zone_of(cron, "UTC") == "Asia/Tokyo"
    assert zone_of(Every(period_ms=1), "UTC") == "UTC"
    assert next_run(PRICES, NOW_MS, "Asia/Tokyo").local == "Thu 2026-01-01 09:00:00 JST"


def test_a_job_is_found_by_id_before_name() -> None:
    jobs = [make_spec(JobId("a"), name="b"), make_spec(JobId("b"), name="Bee"), make_spec(JobId("c"), name="b")]
    assert find_job(jobs, "b") == "b"
    assert find_job(jobs, "Bee") == "b"
    assert find_job(jobs, "nothing") is None


def test_a_name_that_two_jobs_have_finds_neither() -> None:
    assert find_job([make_spec(JobId("a"), name="x"), make_spec(JobId("c"), name="x")], "x") is None


def test_an_unknown_job_is_told_with_its_nearest_or_how_to_list_them() -> None:
    assert no_such_job(three_jobs(), "bakcup") == "no job is named 'bakcup': did you mean 'backup'?"
    assert no_such_job([], "x") == "no job is named 'x': `spyweb jobs` lists them"


def test_a_job_that_does_not_load_is_not_called_unknown() -> None:
    assert no_such_job(three_jobs(), "typo") == "typo does not load: jobs/typo.lua:1: unexpected symbol near 'x'"


def test_the_log_shown_is_the_log_written() -> None:
    assert LOG_NAME == NAME
    assert log_file(Path("/p"), "jobs/a") == Path("/p/jobs/a/hooks.log")


def test_a_log_line_that_is_no_text_is_shown_all_the_same() -> None:
    assert log_line("info", b"a\xffb", NOW_MS).text == "a\ufffdb"


# -- JSON -----------------------------------------------------------------------------------------------------


def test_jobs_come_back_from_json_as_they_were() -> None:
    assert msgspec.json.decode(to_json(three_jobs()), type=list[JobView]) == three_jobs()


@pytest.mark.parametrize("event", a_watched_run())
def test_events_come_back_from_their_line_as_they_were(event: RunEvent) -> None:
    line = event_to_json(event)
    assert b"\n" not in line
    assert event_from_json(line) == event


def test_a_log_line_with_newlines_stays_one_line() -> None:
    line = event_to_json(LogLine(level="info", text="a\nb\r\u2028", at_ms=NOW_MS))
    assert len(line.splitlines()) == 1


def test_the_end_of_a_run_tells_all_that_is_known() -> None:
    ending = Ending(
        outcome=Outcome.FAILED, failure=Failure.CPU, reason="too long", traceback="tb", cpu_ms=9, globals_reset=True
    )
    assert run_ended(make_run(5, generation=3), ending, NOW_MS - 59_000) == RunEnded(
        job=PRICES,
        run=make_run(5).id,
        outcome=Outcome.FAILED,
        failure=Failure.CPU,
        reason="too long",
        traceback="tb",
        duration_ms=1_000,
        cpu_ms=9,
        generation=3,
        globals_reset=True,
    )
