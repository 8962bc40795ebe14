from __future__ import annotations

import pytest

from spyweb.model import Overlap
from spyweb.runs.overlap import QUEUE_LIMIT, Admission, admit


@pytest.mark.parametrize("overlap", Overlap)
def test_an_idle_job_starts_whatever_its_overlap(overlap: Overlap) -> None:
    assert admit(overlap, busy=False, waiting=0) is Admission.START


@pytest.mark.parametrize(
    ("overlap", "verdict"),
    [
        (Overlap.SKIP, Admission.SKIP),
        (Overlap.QUEUE, Admission.WAIT),
        (Overlap.REPLACE, Admission.REPLACE),
        (Overlap.ALLOW, Admission.START),
    ],
)
def test_a_busy_job_follows_its_overlap(overlap: Overlap, verdict: Admission) -> None:
    assert admit(overlap, busy=True, waiting=0) is verdict


def test_a_full_queue_takes_no_more() -> None:
    assert admit(Overlap.QUEUE, busy=True, waiting=QUEUE_LIMIT) is Admission.SKIP


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.REPLACE, Overlap.QUEUE])
def test_a_start_that_is_made_up_for_waits(overlap: Overlap) -> None:
    assert admit(overlap, busy=True, waiting=0, made_up_for=1) is Admission.WAIT


@pytest.mark.parametrize(("made_up_for", "verdict"), [(1, Admission.SKIP), (QUEUE_LIMIT + 1, Admission.WAIT)])
def test_as_many_wait_as_may_be_made_up_for_where_that_is_more_than_a_queue(
    made_up_for: int, verdict: Admission
) -> None:
    assert admit(Overlap.SKIP, busy=True, waiting=QUEUE_LIMIT, made_up_for=made_up_for) is verdict
