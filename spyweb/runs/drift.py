"""Runs that drift starts: a finding, which runs no script and fails, and a repair, which is like any other.  Pure."""

from __future__ import annotations

from spyweb.lua.endings import failed
from spyweb.model import Ending, Outcome, Run

NO_MORE = "nothing differs any more"


def is_finding(run: Run) -> bool:
    """Return whether a run only tells what differs."""
    return run.trigger.finding is not None


def is_drifting(run: Run | None) -> bool:
    """Return whether a job's latest run has told that something differs."""
    return run is not None and is_finding(run) and run.outcome is Outcome.FAILED


def ending_of(run: Run) -> Ending:
    """Return how a finding ends: as its trigger says, also when a daemon died before it was recorded."""
    return failed(run.trigger.finding) if run.trigger.finding else Ending(outcome=Outcome.SUCCESS, note=NO_MORE)
