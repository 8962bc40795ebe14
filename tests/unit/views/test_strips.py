"""A run in one letter, and what a strip of letters says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spyweb.model import Failure, Outcome, RunMark, RunState
from spyweb.views.strips import (
    LATE_MS,
    late_after,
    lateness_of,
    mark_of,
    median_ms,
    moment_of,
    success_rate,
    took_of,
)
from tests.fakes.daemon_service import NOW_MS, make_run
from tests.fakes.harness import make_job


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({}, RunMark.SUCCESS),
        ({"due_ms": NOW_MS - 62_000}, RunMark.LATE),
        ({"due_ms": NOW_MS - 62_000, "attempt": 2}, RunMark.SUCCESS),
        ({"outcome": Outcome.FAILED, "failure": Failure.TIMEOUT}, RunMark.FAILED),
        ({"outcome": Outcome.FAILED, "failure": Failure.CANCELLED}, RunMark.CANCELLED),
        ({"outcome": Outcome.LOST}, RunMark.LOST),
        ({"outcome": None, "state": RunState.RUNNING}, RunMark.RUNNING),
        ({"outcome": None, "state": RunState.WAITING}, RunMark.WAITING),
    ],
)
def test_a_run_has_one_letter(changes: dict[str, object], mark: RunMark) -> None:
    assert mark_of(make_run(1, **changes)) is mark


def test_jitter_makes_no_run_late() -> None:
    assert (late_after(make_job(jitter_ms=5_000).spec), late_after(None)) == (LATE_MS + 5_000, LATE_MS)


def test_a_run_that_never_began_took_no_time_and_is_shown_where_it_was_due_last() -> None:
    missed = make_run(outcome=Outcome.MISSED, started_ms=None, last_due_ms=NOW_MS)
    assert (took_of(missed), lateness_of(missed), moment_of(missed)) == (None, 0, NOW_MS)
    assert took_of(make_run(ended_ms=NOW_MS - 90_000)) == 0  # the clock was set back


def test_a_run_that_waits_has_the_moment_at_which_it_was_due_if_it_was() -> None:
    waiting = make_run(outcome=None, state=RunState.WAITING, due_ms=None, started_ms=None, ended_ms=None)
    assert moment_of(waiting) is None
    assert moment_of(replace(waiting, due_ms=NOW_MS)) == NOW_MS


def test_the_success_rate_counts_what_came_to_an_end_of_its_own() -> None:
    assert success_rate("sstflxckmprw") == 3 / 5
    assert success_rate("xckmprw") is None
    assert success_rate("") is None


def test_the_median_is_of_runs_that_took_time() -> None:
    assert median_ms([-1, 5, 1, -1, 9]) == 5
    assert median_ms([5, 1]) == 1
    assert median_ms([-1]) is None
