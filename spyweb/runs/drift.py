"""Runs that drift starts: a finding, which runs no script and fails, and a repair, which is like any other.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from spyweb.lua.endings import failed
from spyweb.model import Ending, Outcome, Run, TriggerType

FINDING, REPAIRS = "finding", "repairs"  # in a trigger: what differs; an empty finding: nothing any more
NO_MORE = "nothing differs any more"


def finding_trigger(reason: str) -> Mapping[str, object]:
    """Return the trigger of a run that only tells what differs; with an empty reason, that nothing does any more."""
    return {"type": TriggerType.DRIFT.value, FINDING: reason}


def repair_trigger(reason: str) -> Mapping[str, object]:
    return {"type": TriggerType.DRIFT.value, REPAIRS: reason}


def is_finding(run: Run) -> bool:
    return run.trigger.get("type") == TriggerType.DRIFT and FINDING in run.trigger


def is_repair(run: Run) -> bool:
    return run.trigger.get("type") == TriggerType.DRIFT and REPAIRS in run.trigger


def is_drifting(run: Run | None) -> bool:
    """Return whether a job's latest run has told that something differs."""
    return run is not None and is_finding(run) and run.outcome is Outcome.FAILED


def ending_of(run: Run) -> Ending:
    """Return how a finding ends: as its trigger says, also when a daemon died before it was recorded."""
    reason = str(run.trigger.get(FINDING) or "")
    return failed(reason) if reason else Ending(outcome=Outcome.SUCCESS, note=NO_MORE)
