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


def admit(overlap: Overlap, *, busy: bool, waiting: int, made_up_for: int = 0) -> Admission:
    """`made_up_for`: it is one of at most so many due times that are made up for, and waits where another would be
    skipped."""
    if not busy or overlap is Overlap.ALLOW:
        return Admission.START
    if overlap is Overlap.REPLACE and not made_up_for:
        return Admission.REPLACE
    if overlap is Overlap.QUEUE or made_up_for:
        return Admission.WAIT if waiting < max(QUEUE_LIMIT, made_up_for) else Admission.SKIP
    return Admission.SKIP
