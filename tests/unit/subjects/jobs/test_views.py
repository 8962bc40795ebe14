"""A job in words."""

from __future__ import annotations

import pytest

from spyweb.model import After, At, ChangeKind, Cron, Every, JobId, JobSpec, Never, On, Outcome
from spyweb.subjects.jobs.views import last_error, long_duration, schedule_words, tie
from tests.fakes.daemon_service import make_run, make_spec

BERLIN = "Europe/Berlin"
NEWS = JobId("news")
SCOPE = On(namespace="scope:orders", key=b"new:*", kinds=frozenset({ChangeKind.CREATED, ChangeKind.UPDATED}))


def spec(**changes: object) -> JobSpec:
    return make_spec(NEWS, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": Every(period_ms=300_000)}, "every 5 minutes"),
        ({"schedule": Every(period_ms=60_000), "jitter_ms": 5_000}, "every minute, each up to 5s later"),
        ({"schedule": Cron(expression="0 3 * * 1-5", timezone=BERLIN)}, "at 03:00, Monday to Friday, Europe/Berlin"),
        ({"schedule": Cron(expression="0 0 1 * 5", timezone="UTC")}, "cron 0 0 1 * 5, UTC"),
        ({"schedule": At(at_ms=1_767_225_600_000)}, "once, at Thu 2026-01-01 01:00:00 CET"),
        ({"schedule": Never()}, "only by hand"),
        ({"schedule": Never(), "after": (After(job=JobId("prices")),)}, "after prices"),
        (
            {"schedule": Every(period_ms=3_600_000), "after": (After(job=JobId("a")), After(job=JobId("b")))},
            "every hour; after a, b",
        ),
        ({"schedule": Never(), "on": (SCOPE,)}, "when new:* of orders is created or updated"),
    ],
)
def test_a_schedule_is_said_in_words(changes: dict[str, object], words: str) -> None:
    assert schedule_words(spec(**changes), BERLIN) == words


def test_changes_of_any_scope_and_key_and_a_condition_are_said() -> None:
    on = On(namespace="scope:", is_prefix=True, kinds=frozenset({ChangeKind.DELETED}), when="is_big")
    words = schedule_words(spec(schedule=Never(), on=(on,)), BERLIN)
    assert words == "when any key of any scope is deleted, if is_big() allows it"


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
