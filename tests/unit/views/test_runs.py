"""What people and machines are shown of runs."""

from __future__ import annotations

import pytest

from spyweb.model import (
    Ending,
    Failure,
    Outcome,
    RunState,
)
from spyweb.views.runs import LogLine, RunEnded, RunEvent, event_from_json, event_to_json, last_run, log_line, run_ended
from tests.fakes.daemon_service import NOW_MS, PRICES, a_watched_run, make_run


def test_a_run_under_way_is_no_last_run() -> None:
    assert last_run(make_run(state=RunState.RUNNING, outcome=None, ended_ms=None)) is None


def test_a_clock_set_back_makes_no_negative_duration() -> None:
    last = last_run(make_run(ended_ms=NOW_MS - 90_000))
    assert last is not None
    assert last.duration_ms == 0


def test_a_log_line_that_is_no_text_is_shown_all_the_same() -> None:
    assert log_line("info", b"a\xffb", NOW_MS).text == "a\ufffdb"


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
