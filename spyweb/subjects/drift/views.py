"""Drift as clients see it: resources that differ from their recorded state."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from spyweb.model import JobId, RunId
from spyweb.words import counted

MOST_NAMED = 3  # resources in the reason of a run


class DriftView(Struct, frozen=True, kw_only=True):
    """One resource that differs from its record."""

    resource: str  # its key in the scope `resources`: JOB:MODULE:TARGET
    job: JobId
    module: str
    target: str
    expected: str
    actual: str
    since_ms: int | None = None  # when a run of its job recorded it
    run: RunId | None = None  # that run


class DriftReport(Struct, frozen=True, kw_only=True):
    """The outcome of one comparison."""

    checked: int = 0  # resources that were compared
    differences: Sequence[DriftView] = ()
    remarks: Sequence[str] = ()  # resources that were not compared, and why, a line each

    def __bool__(self) -> bool:
        """Return whether there was anything to compare."""
        return bool(self.checked or self.remarks)


def describe_drift(differences: Sequence[DriftView]) -> str:
    """Return one line that names the first of them: `2 resources differ: web/a.conf: not there; …`."""
    named = [f"{each.module} {each.target}: {each.actual}" for each in differences[:MOST_NAMED]]
    more = len(differences) - len(named)
    count = counted(len(differences), "resource differs", "resources differ")
    return f"{count}: {'; '.join(named)}" + (f"; and {more} more" if more else "")
