"""Reduce a run to one letter, and many runs of a job to a strip of letters.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spyweb.model import Failure, JobSpec, Outcome, Run, RunMark, RunState

LATE_MS = 1_000  # after the due time, and what jitter may add: from there on a start is late
SUCCEEDED: Final = frozenset({RunMark.SUCCESS, RunMark.LATE})
FAILING: Final = frozenset({RunMark.FAILED, RunMark.LOST})
DECISIVE: Final = SUCCEEDED | FAILING  # of whether a job fails


def mark_of(run: Run, late_ms: int = LATE_MS) -> RunMark:
    if run.outcome is None:
        return RunMark.WAITING if run.state is RunState.WAITING else RunMark.RUNNING
    if run.outcome is Outcome.SUCCESS and lateness_of(run) > late_ms:
        return RunMark.LATE
    if run.failure is Failure.CANCELLED:
        return RunMark.CANCELLED
    return RunMark[run.outcome.name]


def late_after(spec: JobSpec | None) -> int:
    """Return from when on after its due time a start of this job is late: jitter makes it later by intent."""
    return LATE_MS + (spec.jitter_ms if spec else 0)


def lateness_of(run: Run) -> int:
    """Return how long after its due time a run began; a retry is later by intent, and never late."""
    if run.started_ms is None or run.due_ms is None or run.attempt > 1:
        return 0
    return max(0, run.started_ms - run.due_ms)


def took_of(run: Run) -> int | None:
    """Return how long a run took; None of one that is not over, or never began."""
    if run.started_ms is None or run.ended_ms is None or run.outcome is Outcome.SKIPPED:
        return None
    return max(0, run.ended_ms - run.started_ms)


def moment_of(run: Run) -> int | None:
    """Return the moment under which a run is shown: its start, else when it was due last, else its end.

    One that waits and was due at no time has none.
    """
    moments = (run.started_ms, run.last_due_ms, run.due_ms, run.ended_ms)
    return next((moment for moment in moments if moment is not None), None)


def success_rate(marks: str) -> float | None:
    """Return the share of the runs that succeeded; None where none has come to an end of its own."""
    good, bad = sum(marks.count(mark) for mark in SUCCEEDED), sum(marks.count(mark) for mark in FAILING)
    return good / (good + bad) if good + bad else None


def median_ms(took_ms: Sequence[int]) -> int | None:
    known = sorted(ms for ms in took_ms if ms >= 0)
    return known[(len(known) - 1) // 2] if known else None
