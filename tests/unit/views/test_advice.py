"""Health in words, and that there is something to do about everything that it can say."""

from __future__ import annotations

import pytest

from spyweb.stalls import LoopStats
from spyweb.views.advice import OTHERWISE, REMEDIES, advise, health_words
from spyweb.views.health import view_health
from tests.fakes.daemon_service import NOW_MS, make_stats, make_vitals

WRONG: dict[str, object] = {
    "scheduler_lag_ms": 60_000,
    "store": make_stats(failed="disk full", stalled_s=60.0),
    "refused_ms": 60_000,
    "dead_messages": 2,
    "server_is_broken": True,
    "descriptors_left": 3,
    "refused_connections": "200 connections were refused: 1,000 are open",
    "loop": LoopStats(stalls=1, worst_ms=900, last_at_ms=NOW_MS),
    "storage_error_at_ms": NOW_MS,
    "held_back": {"prices": "it held up the loop"},
    "now_ms": NOW_MS,
}


def test_there_is_something_to_do_about_each_thing_that_is_wrong() -> None:
    found = advise(view_health(make_vitals(**WRONG), [], short_monitors=1))

    assert len(found.advice) >= 11
    assert [each.words for each in found.advice if each.remedy == OTHERWISE] == []
    assert [each.is_problem for each in found.advice] == sorted(
        (each.is_problem for each in found.advice), reverse=True
    )
    assert not found.is_well


def test_what_is_not_known_is_in_the_log() -> None:
    health = view_health(make_vitals(), [])
    assert advise(health).advice == []
    assert all(remedy.endswith(".") for _, remedy, _ in REMEDIES)


@pytest.mark.parametrize(
    ("vitals", "words"),
    [
        ({}, "Jobs run on time; all is well"),
        ({"dead_messages": 1}, "Jobs run on time; 1 message never arrived and was given up"),
        ({"dead_messages": 1, "server_is_broken": True}, "Jobs run on time; 2 things to look at"),
        ({"scheduler_lag_ms": 60_000}, "The scheduler is 1m behind"),
        ({"scheduler_lag_ms": 60_000, "dead_messages": 1}, "The scheduler is 1m behind, and 1 more"),
    ],
)
def test_one_line_says_whether_jobs_run_on_time(vitals: dict[str, object], words: str) -> None:
    assert health_words(view_health(make_vitals(**vitals), [])) == words
