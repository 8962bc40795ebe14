"""A job, lists of jobs, and the rows of the overview, in words and charts."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from spyweb.model import After, At, ChangeKind, Cron, Every, JobId, JobSpec, Never, On, Outcome, RunMark
from spyweb.subjects.jobs.overview import Standing, overview_seen_by
from spyweb.subjects.jobs.views import JobSort, JobsQuery, last_error, long_duration, pick_jobs, schedule_words, tie
from spyweb.subjects.jobs.words import ORDERS, SPAN_WORDS, STANDINGS, JobFilter, state_of
from spyweb.subjects.runs.views import TimeSpan
from spyweb.subjects.runs.words import show_run
from spyweb.views.jobs import JobState, JobView
from spyweb.web.pages.charts import KINDS
from tests.fakes.daemon_service import make_run, three_jobs
from tests.fakes.dashboard import overview_of, three_rows
from tests.fakes.harness import make_spec

BERLIN = "Europe/Berlin"
NEWS = JobId("news")
SCOPE = On(namespace="scope:orders", key=b"new:*", kinds=frozenset({ChangeKind.CREATED, ChangeKind.UPDATED}))
ANY = On(namespace="scope:", is_prefix=True, kinds=frozenset({ChangeKind.DELETED}), when="is_big")


def spec(**changes: object) -> JobSpec:
    return make_spec(NEWS, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": Every(period_ms=300_000)}, "every 5 minutes"),
        ({"schedule": Every(period_ms=60_000), "jitter_ms": 5_000}, "every minute, each up to 5s later"),
        (
            {"schedule": Cron(expression="0 3 * * 1-5", timezone=BERLIN)},
            "at 03:00 on Monday through Friday, Europe/Berlin",
        ),
        ({"schedule": Cron(expression="@hourly", timezone="UTC")}, "at the start of every hour, UTC"),
        (
            {"schedule": Cron(expression="1,2,9 1-5,8 3-3/4 JAN 5L", timezone="UTC")},
            "cron 1,2,9 1-5,8 3-3/4 JAN 5L, UTC",
        ),
        ({"schedule": At(at_ms=1_767_225_600_000)}, "once, at Thu 2026-01-01 01:00:00 CET"),
        ({"schedule": Never()}, "only manually"),
        ({"schedule": Never(), "after": (After(job=JobId("prices")),)}, "after prices"),
        (
            {"schedule": Every(period_ms=3_600_000), "after": (After(job=JobId("a")), After(job=JobId("b")))},
            "every hour; after a, b",
        ),
        ({"schedule": Never(), "on": (SCOPE,)}, "when new:* of orders is created or updated"),
        ({"schedule": Never(), "on": (ANY,)}, "when any key of any scope is deleted, if is_big() allows it"),
    ],
)
def test_a_schedule_is_said_in_words(changes: dict[str, object], words: str) -> None:
    assert schedule_words(spec(**changes), BERLIN) == words


def test_durations_are_in_the_largest_unit_that_is_whole() -> None:
    shown = [long_duration(ms) for ms in (1_000, 90_000, 86_400_000, 7_200_000, 250, 1_500)]
    assert shown == ["second", "90 seconds", "day", "2 hours", "250ms", "1.5s"]


def test_a_tie_says_after_which_outcomes_and_whether_the_job_is_there() -> None:
    found = tie(After(job=NEWS, outcomes=frozenset({Outcome.LOST, Outcome.SUCCESS})), NEWS, None)
    assert (list(found.outcomes), found.name, found.is_there) == ([Outcome.SUCCESS, Outcome.LOST], "news", False)


def test_an_error_is_the_same_where_all_failures_have_its_reason() -> None:
    run = make_run(reason="boom")
    found = [last_error(run, [], None, reasons).is_same for reasons in (["boom"], ["boom"] * 2, ["boom", "bang"])]
    assert found == [None, True, False]


BACKUP, PRICES, TYPO = three_jobs()
VIEWS = [replace(PRICES, tags=("shop", "eu"), description="What it Costs"), TYPO, BACKUP]


def ids(**wanted: object) -> list[str]:
    return [view.id for view in pick_jobs(VIEWS, JobsQuery(**wanted))[0]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"state": JobState.PAUSED}, ["backup"]),
        ({"tag": "eu"}, ["prices"]),
        ({"failing": True}, ["backup"]),
        ({"failing": False}, ["prices", "typo"]),
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
        ("name", ["backup", "prices", "typo"]),
        ("state", ["typo", "prices", "backup"]),
        ("next", ["prices", "backup", "typo"]),
        ("-id", ["typo", "prices", "backup"]),
        ("last", ["backup", "prices", "typo"]),
        ("-last", ["typo", "prices", "backup"]),
        ("duration", ["backup", "prices", "typo"]),
    ],
)
def test_they_are_sorted_by_what_is_asked_for_then_by_id(sort: JobSort, found: list[str]) -> None:
    assert ids(sort=sort) == found


@pytest.mark.parametrize("sort", get_args(JobSort))
def test_pages_in_any_order_hold_each_job_once(sort: JobSort) -> None:
    many: list[JobView] = [replace(PRICES, id=JobId(f"job{number}"), name="the same") for number in range(7)]
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = pick_jobs(many, JobsQuery(sort=sort, limit=3, after=after))
        seen += [view.id for view in page]
    assert sorted(seen) == [view.id for view in many]
    assert len(seen) == len(set(seen))


def ids_of(rows: object) -> list[str]:
    return [row.job.id for row in rows]  # type: ignore[attr-defined]


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
    assert ids_of(row for row in three_rows() if chosen.takes(row)) == found


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ("worst", ["backup", "typo", "prices"]),
        ("name", ["backup", "prices", "typo"]),
        ("next", ["prices", "backup", "typo"]),
        ("slowest", ["prices", "backup", "typo"]),
    ],
)
def test_rows_are_sorted(order: str, found: list[str]) -> None:
    assert ids_of(sorted(overview_of(three_rows()).rows, key=ORDERS[order][1])) == found


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
    assert ids_of(seen.rows) == ["prices"]
    assert (seen.verdict.problems, seen.verdict.jobs, seen.states) == ((), 1, {"well": 1})
    assert overview_seen_by(overview, lambda _: True) is overview


def test_every_standing_outcome_and_span_has_words_and_a_mark() -> None:
    assert set(STANDINGS) == set(Standing)
    assert set(KINDS) == set(RunMark)
    assert set(SPAN_WORDS) == set(TimeSpan)


def test_a_run_is_shown_with_how_late_it_was_where_that_is_known() -> None:
    shown = show_run(make_run(1), None)
    assert (shown.word, shown.tone, shown.mark, shown.took_ms, shown.late_ms) == ("succeeded", "ok", "ok", 1_234, 0)
    missed = show_run(make_run(3, started_ms=None, outcome=Outcome.MISSED, count=7), None)
    assert (missed.word, missed.tone, missed.took_ms, missed.late_ms) == ("missed 7 times", "warn", None, None)
    assert show_run(make_run(2, attempt=2), None).late_ms is None
