"""A run in words, and the figures of a job's runs."""

from __future__ import annotations

import pytest
from msgspec import convert

from spyweb.model import Failure, Outcome, RunId, RunMark, RunState, Trigger, TriggerType
from spyweb.store.model.runs import NO_TIME, RunPoint
from spyweb.subjects.runs import views
from tests.fakes.daemon_service import NOW_MS, PRICES, make_run
from tests.fakes.harness import make_spec

CREATED = {"type": "state", "key": "k", "scope": "orders", "event_type": "state:created", "by": 5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Succeeded"),
        ({"outcome": Outcome.FAILED, "failure": Failure.ERROR}, "Failed"),
        ({"outcome": Outcome.FAILED, "failure": Failure.TIMEOUT}, "Over its timeout"),
        ({"outcome": Outcome.FAILED, "failure": Failure.CANCELLED}, "Cancelled"),
        ({"outcome": Outcome.MISSED, "count": 1_200}, "Missed, 1,200 due times"),
        ({"outcome": None, "state": RunState.RUNNING}, "Running"),
        ({"outcome": None, "state": RunState.WAITING}, "Waiting"),
        ({"outcome": None, "state": RunState.WAITING, "start_after_ms": 5}, "Waiting for its retry"),
    ],
)
def test_how_a_run_ended_is_said(changes: dict[str, object], words: str) -> None:
    assert views.run_words(make_run(1, **changes)) == words


def test_every_failure_has_words() -> None:
    assert all(views.run_words(make_run(outcome=Outcome.FAILED, failure=failure)) for failure in Failure)


@pytest.mark.parametrize(
    ("trigger", "words", "cause"),
    [
        ({"type": "schedule"}, "due", None),
        ({"type": "manual"}, "started manually", None),
        ({"type": "manual", "debug": True, "values": {"a": 1}}, "started manually, to debug, with values", None),
        ({"type": "webhook"}, "a request to its webhook", None),
        ({"type": "startup"}, "the daemon started", None),
        ({"type": "depends", "job": "news", "incident_id": 3}, "news depends on it, and is failing", None),
        ({"type": "after", "job": "news", "run_id": 3, "outcome": "failed"}, "news ended: failed", 3),
        ({"type": "retry", "of": 4}, "attempt 2, of run 4", 4),
        (CREATED, "k of orders was created", 5),
        ({"type": "alert", "hook": "on_down", "incident": {"id": 42, "run": 6}}, "on_down: incident 42 has begun", 6),
        ({"type": "alert", "hook": "on_up", "incident": {"id": 42, "closed": 1.5}}, "on_up: incident 42 is over", None),
        ({}, "started by an unknown trigger", None),
        ({"type": "state"}, "a change of state", None),
        ({"type": "retry"}, "a retry", None),
        ({"type": "magic", "x": 4}, "started by an unknown trigger", None),
        ({"type": "retry", "of": 9}, "attempt 2, of run 9", None),
        ({"type": "after"}, "another job ended", None),
    ],
)  # fmt: skip
def test_what_started_a_run_is_said(trigger: dict[str, object], words: str, cause: int | None) -> None:
    run = make_run(9, trigger=convert(trigger, Trigger), attempt=2)
    assert views.view_cause(run, None).words == words
    assert views.cause_run(run) == cause


def test_a_cause_is_shown_with_the_run_before_and_its_job_by_name_or_with_how_often_it_was_due() -> None:
    after = make_run(9, trigger=Trigger(type="after", job="news", run_id=RunId(3), outcome="success"))
    step = views.view_cause(after, make_run(3), "News")
    assert (step.words, step.at_ms) == ("News ended: success", NOW_MS - 58_766)
    assert step.run is not None
    assert (step.run.run, step.kind) == (RunId(3), "after")

    step = views.view_cause(make_run(outcome=Outcome.MISSED, count=7), None)
    assert (step.words, step.at_ms) == ("due 7 times", NOW_MS - 60_000)


def test_facts_stand_beside_their_limits_and_say_what_is_over_one() -> None:
    time, cpu, memory = views.view_limits(make_run(cpu_ms=2_500), make_spec())
    assert (time.words, time.used, time.is_over) == ("1.234s of 5m", 1_234, False)
    assert (cpu.words, cpu.share) == ("2.5s of 10s", 0.25)
    assert (memory.words, memory.used) == ("at most 64MB", None)

    over = views.view_limits(make_run(outcome=Outcome.FAILED, failure=Failure.CPU, cpu_ms=99_000), make_spec())
    assert [limit.is_over for limit in over] == [False, True, False]
    assert over[1].share == 1.0
    running = make_run(outcome=None, state=RunState.RUNNING, ended_ms=None)
    assert [limit.used for limit in views.view_limits(running, make_spec())] == [None, None, None]


def test_a_brief_has_one_line_of_the_reason() -> None:
    assert views.brief(make_run(reason="a\nb")).reason == "a"


def test_whatever_starts_a_run_is_known_as_its_cause() -> None:
    words = [views.view_cause(make_run(trigger=Trigger(type=each)), None).words for each in TriggerType]
    assert "started by an unknown trigger" not in words


DAY_MS = views.TimeSpan.DAY.ms


def point(at: int, mark: RunMark = RunMark.SUCCESS, *, took: int = 10, late: int = 0) -> RunPoint:
    return RunPoint(at, at, took, late, mark)


def test_figures_count_what_came_to_an_end_of_its_own() -> None:
    since = NOW_MS - DAY_MS
    marks = [RunMark.SUCCESS, RunMark.LATE, RunMark.FAILED, RunMark.CANCELLED, RunMark.LOST, RunMark.SKIPPED]
    runs = [point(since + at, mark, took=at, late=at * 2) for at, mark in enumerate(marks)]
    found = views.make_statistics(PRICES, views.TimeSpan.DAY, runs, NOW_MS)

    assert (found.runs, found.succeeded, found.failed, found.success_rate) == (5, 2, 2, 0.5)
    assert found.took_ms is not None
    assert (found.took_ms.p50, found.took_ms.most) == (2, 4)
    assert found.late_ms is not None
    assert found.late_ms.p99 == 8
    assert (found.since_ms, found.until_ms, found.is_thinned, list(found.points)) == (since, NOW_MS, False, runs)


def test_a_job_without_runs_has_no_figures() -> None:
    found = views.make_statistics(PRICES, views.TimeSpan.MONTH, [], NOW_MS)
    assert (found.success_rate, found.uptime, found.took_ms, found.late_ms) == (None, None, None, None)
    assert views.percentiles([]) is None


def test_of_many_runs_a_chart_has_some() -> None:
    since = NOW_MS - DAY_MS
    found = views.make_statistics(
        PRICES, views.TimeSpan.DAY, [point(since + at * 10_000) for at in range(8_640)], NOW_MS
    )
    assert found.is_thinned
    assert views.MOST_POINTS - 10 <= len(found.points) <= views.MOST_POINTS


def test_a_failed_check_is_drawn_where_the_latency_was_and_counts_for_none() -> None:
    took, since = [NO_TIME, 80, NO_TIME, 90], NOW_MS - DAY_MS
    marks = [RunMark.FAILED, RunMark.SUCCESS, RunMark.FAILED, RunMark.SUCCESS]
    runs = [point(since + at, mark, took=each) for at, (mark, each) in enumerate(zip(marks, took, strict=True))]
    found = views.make_statistics(PRICES, views.TimeSpan.DAY, runs, NOW_MS)
    assert [each.took_ms for each in found.points] == [80, 80, 80, 90]
    assert found.took_ms == views.Percentiles(p50=80, p95=90, p99=90, most=90)
    assert [each.took_ms for each in views.at_level([point(1, took=NO_TIME)])] == [0]
