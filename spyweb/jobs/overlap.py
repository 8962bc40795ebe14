"""What happens to a start while the job is busy: one pure decision."""

from __future__ import annotations

from enum import StrEnum

from spyweb.model import Overlap

QUEUE_LIMIT = 100  # runs of one job that may wait


class Admission(StrEnum):
    START = "start"
    WAIT = "wait"  # until the job is idle
    REPLACE = "replace"  # wait, and cancel what runs and what waits
    SKIP = "skip"


def admit(overlap: Overlap, *, busy: bool, waiting: int, patient: bool = False) -> Admission:
    """A patient start is a due time that is made up for: it waits where another would be skipped."""
    if not busy or overlap is Overlap.ALLOW:
        return Admission.START
    if overlap is Overlap.REPLACE and not patient:
        return Admission.REPLACE
    if overlap is Overlap.QUEUE or patient:
        return Admission.WAIT if waiting < QUEUE_LIMIT else Admission.SKIP
    return Admission.SKIP
