"""Drift as people and machines are shown it: what is not as the jobs have left it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from spyweb.model import JobId, RunId
from spyweb.words import counted

MOST_NAMED = 3  # resources in the reason of a run


class DriftView(Struct, frozen=True, kw_only=True):
    """One resource that is not as it was recorded."""

    resource: str  # its key in the scope `resources`: JOB:MODULE:TARGET
    job: JobId
    module: str
    target: str
    expected: str
    actual: str
    since_ms: int | None = None  # when it was last as recorded, by a run of its job
    run: RunId | None = None  # that run


class DriftReport(Struct, frozen=True, kw_only=True):
    """The outcome of one comparison."""

    checked: int = 0  # resources that were compared
    differences: Sequence[DriftView] = ()
    remarks: Sequence[str] = ()  # what was not compared, and why, a line each


def describe_drift(differences: Sequence[DriftView]) -> str:
    """Return one line that names the first of them: `2 resources differ: web/a.conf: not there; …`."""
    named = [f"{each.module} {each.target}: {each.actual}" for each in differences[:MOST_NAMED]]
    more = len(differences) - len(named)
    count = counted(len(differences), "resource differs", "resources differ")
    return f"{count}: {'; '.join(named)}" + (f"; and {more} more" if more else "")
