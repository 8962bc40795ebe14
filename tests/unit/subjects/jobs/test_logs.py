"""Failures of runs among the lines that a script logs."""

from __future__ import annotations

from collections.abc import Sequence

from spyweb.errors import Refused
from spyweb.model import Failure, Outcome, Run
from spyweb.subjects.jobs.logs import POLL, SETTLED_MS, Failures
from tests.fakes.daemon_service import NOW_MS, make_run

LATER = NOW_MS + 60_000


class Runs:
    """A job's history, which grows."""

    def __init__(self, *newest_first: Run) -> None:
        self.found: Sequence[Run] = newest_first
        self.asked = 0

    def __call__(self) -> Sequence[Run]:
        self.asked += 1
        return self.found


def failed(number: int, reason: str = "it is down") -> Run:
    return make_run(number, outcome=Outcome.FAILED, failure=Failure.ERROR, reason=reason)


def look(failures: Failures, now_ms: int = LATER) -> list[str]:
    """What is told at the next time that the daemon is asked."""
    return [line for _ in range(POLL) for line in failures.look(now_ms)]


def test_runs_that_fail_from_now_on_are_told_once_in_their_order() -> None:
    runs = Runs(failed(2), make_run(1))
    failures = Failures(runs)
    assert look(failures) == []
    runs.found = (make_run(5), failed(4, "status 500"), failed(3), *runs.found)
    assert look(failures) == [
        "2025-12-31T23:59:01.234Z ERROR run 3 failed: it is down",
        "2025-12-31T23:59:01.234Z ERROR run 4 failed: status 500",
    ]
    assert look(failures) == []


def test_a_run_that_was_under_way_before_is_told_when_it_fails() -> None:
    runs = Runs(make_run(2), make_run(1, outcome=None, ended_ms=None))
    failures = Failures(runs)
    look(failures)
    runs.found = (make_run(2), make_run(1, outcome=Outcome.LOST, reason="the daemon died"))
    assert look(failures) == ["2025-12-31T23:59:01.234Z ERROR run 1 was lost: the daemon died"]


def test_the_lines_that_a_run_logged_have_time_to_reach_the_file_before_its_end_is_told() -> None:
    runs = Runs()
    failures = Failures(runs)
    look(failures)
    run = failed(1)
    runs.found = (run,)
    assert run.ended_ms
    assert look(failures, run.ended_ms + SETTLED_MS - 1) == []
    assert len(look(failures, run.ended_ms + SETTLED_MS)) == 1


def test_without_a_daemon_there_is_nothing_to_tell_until_one_is_there() -> None:
    runs = Runs()

    def ask() -> Sequence[Run]:
        if runs.asked == 1:
            runs.asked += 1
            raise Refused("the daemon ended before it had answered")
        return runs()

    failures = Failures(ask)
    look(failures)
    assert look(failures) == []
    runs.found = (failed(1),)
    assert len(look(failures)) == 1


def test_the_daemon_is_asked_once_a_second_and_not_at_every_look() -> None:
    runs = Runs()
    failures = Failures(runs)
    for _ in range(3 * POLL):
        failures.look(LATER)
    assert runs.asked == 3


def test_a_reason_of_several_lines_can_not_pass_for_lines_of_the_log() -> None:
    runs = Runs()
    failures = Failures(runs)
    look(failures)
    runs.found = (failed(1, "one\ntwo"),)
    assert look(failures) == ["2025-12-31T23:59:01.234Z ERROR run 1 failed: one two"]
