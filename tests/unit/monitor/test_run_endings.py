"""What a run comes to whose cycles have ended."""

from __future__ import annotations

from spyweb.lua.endings import ended_for
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Outcome
from spyweb.monitor.context import CycleFailed
from spyweb.monitor.run import conclude, ending_of

GOOD = Ending(outcome=Outcome.SUCCESS, cpu_ms=2)
BAD = Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="no", traceback="where", cpu_ms=3)
KILLED = Ending(outcome=Outcome.FAILED, failure=Failure.CPU, reason="x.lua:1: over", cpu_ms=9, globals_reset=True)


def test_one_cycle_speaks_for_itself() -> None:
    assert conclude([BAD], Why.NOTHING) is BAD


def test_when_all_went_well_so_did_the_run() -> None:
    assert conclude([GOOD, GOOD], Why.NOTHING) == Ending(outcome=Outcome.SUCCESS, cpu_ms=4)


def test_the_first_that_went_wrong_stands_for_all() -> None:
    ending = conclude([GOOD, KILLED, BAD], Why.NOTHING)
    assert (ending.failure, ending.reason, ending.cpu_ms) == (Failure.CPU, "x.lua:1: over (2 of 3 cycles)", 14)
    assert ending.globals_reset


def test_a_run_that_was_told_to_end_ends_for_that() -> None:
    told = ended_for(Why.TIMEOUT, " in fetch")
    ending = conclude([GOOD, told], Why.TIMEOUT)
    assert (ending.outcome, ending.failure, ending.reason) == (
        Outcome.FAILED,
        Failure.TIMEOUT,
        "over its timeout in fetch",
    )
    assert conclude([GOOD], Why.STOPPED).outcome is Outcome.STOPPED
    assert conclude([], Why.CANCELLED).reason == "cancelled"


def test_a_failed_cycle_keeps_its_traceback() -> None:
    assert ending_of(CycleFailed("no", "where")) == Ending(
        outcome=Outcome.FAILED, failure=Failure.ERROR, reason="no", traceback="where"
    )
    assert ending_of(None).outcome is Outcome.SUCCESS
