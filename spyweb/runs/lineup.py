"""Whose turn it is among the runs of a job that wait.

Runs that changes of state have started run one at a time and in the order of the changes, whatever `overlap` says;
while one of them waits to be tried again, those of later changes of the same key wait with it.
"""

from __future__ import annotations

from spyweb.model import Overlap, Run
from spyweb.runs.live import LiveJob
from spyweb.runs.state_trigger import event_of, is_caused, subject_of

CAUSED_LIMIT = 200  # runs of one job that wait; further changes wait in the store


def room_for_caused(job: LiveJob) -> int:
    """How many more runs may be claimed for changes."""
    waiting = [*job.waiting, *(delay.run for delay in job.delayed.values())]
    return max(0, CAUSED_LIMIT - sum(map(is_caused, waiting)))


def queued(job: LiveJob) -> int:
    """How many others wait, or will once their claim is committed."""
    return job.queueing + (sum(not is_caused(run) for run in job.waiting) if job.waiting else 0)


def line_up(job: LiveJob, run: Run) -> None:
    """Among those that changes have started, in the order of the changes; else last."""
    event = event_of(run.trigger)
    place = len(job.waiting)
    if event is not None:
        later = (index for index, other in enumerate(job.waiting) if (event_of(other.trigger) or 0) > event)
        place = next(later, place)
    job.waiting.insert(place, run)


def take_next(job: LiveJob) -> Run | None:
    """The run that may start now; it waits no longer."""
    if job.busy and job.spec.overlap is not Overlap.ALLOW:
        return None
    for index, run in enumerate(job.waiting):
        if not is_caused(run) or may_follow(job, run):
            del job.waiting[index]
            return run
    return None


def may_follow(job: LiveJob, run: Run) -> bool:
    """Whether no earlier change is still at work that this one has to wait for."""
    return not job.serving and subject_of(run) not in {subject_of(delay.run) for delay in job.delayed.values()}


def may_start_at_once(job: LiveJob, run: Run) -> bool:
    """A newcomer that a change starts: nothing is before it."""
    free = not job.busy or job.spec.overlap is Overlap.ALLOW
    return free and not any(map(is_caused, job.waiting)) and may_follow(job, run)
