"""Queue the runs of one job that have not ended: on their way to the store, waiting, or in flight.

Only the queue admits a run, counts it and decides which one starts next.  The job's `overlap` applies to scheduled and
manual runs.  Runs for changes of state start one at a time and in the order of the changes, regardless of `overlap`;
while one of them waits for its retry, the runs for later changes of the same key wait with it.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from msgspec.structs import replace

from spyweb.clock import Handle
from spyweb.model import JobSpec, Overlap, Run, RunId, RunState, Trigger
from spyweb.runs.records import first_of
from spyweb.store.model.runs import NewRun

QUEUE_LIMIT = 100  # runs of one job that may wait
CAUSED_LIMIT = 200  # runs of one job that wait because of changes; further changes wait in the store


class Admission(StrEnum):
    START = "start"
    WAIT = "wait"  # until the job is idle
    REPLACE = "replace"  # wait, and cancel the runs in flight and those that wait
    SKIP = "skip"


def admit(overlap: Overlap, *, busy: bool, waiting: int, made_up_for: int = 0) -> Admission:
    """Decide whether a scheduled or manual run starts, waits, replaces others or is skipped.

    `made_up_for` counts the missed due times that are caught up on: their runs wait where another would be skipped.
    """
    if not busy or overlap is Overlap.ALLOW:
        return Admission.START
    if overlap is Overlap.REPLACE and not made_up_for:
        return Admission.REPLACE
    if overlap is Overlap.QUEUE or made_up_for:
        return Admission.WAIT if waiting < max(QUEUE_LIMIT, made_up_for) else Admission.SKIP
    return Admission.SKIP


class RunQueue:
    """Admits, counts and starts the runs of one job."""

    __slots__ = ("_claimed_to_wait", "_serves_change", "claimed_to_start", "delayed", "in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight: dict[RunId, Run] = {}
        self.waiting: list[Run] = []  # for their turn; a list since a deque takes more memory, and most jobs are idle
        self.delayed: dict[RunId, tuple[Run, Handle]] = {}  # retries whose delay has not passed yet, and their timers
        self.claimed_to_start = 0  # on their way to the store
        self._claimed_to_wait = 0  # likewise, without the runs that changes start
        self._serves_change = False  # a run that a change has started is in flight or about to be

    @property
    def is_busy(self) -> bool:
        return bool(self.in_flight or self.claimed_to_start)

    @property
    def waiting_count(self) -> int:
        """Count the runs on record that have not started."""
        return len(self.waiting) + len(self.delayed)

    @property
    def _delayed_runs(self) -> list[Run]:
        return [run for run, _ in self.delayed.values()]

    def open_runs(self) -> list[Run]:
        """Return the runs on record that have not ended."""
        return [*self.in_flight.values(), *self.waiting, *self._delayed_runs]

    @property
    def room_for_caused(self) -> int:
        """Count the runs that may still be claimed for changes."""
        caused = sum(run.trigger.change is not None for run in (*self.waiting, *self._delayed_runs))
        return max(0, CAUSED_LIMIT - caused)

    def admission(self, spec: JobSpec, *, made_up_for: bool = False) -> Admission:
        """Return how another scheduled or manual run would be admitted."""
        waiting = self._claimed_to_wait
        if self.waiting:
            waiting += sum(not run.trigger.is_owed for run in self.waiting)
        limit = spec.misfire.limit
        if not made_up_for:  # behind dry runs, debug runs and alert hooks a scheduled run waits
            is_aside = not self.claimed_to_start and all(run.trigger.is_aside for run in self.in_flight.values())
            limit = 1 if spec.overlap is Overlap.SKIP and is_aside and not waiting else 0
        return admit(spec.overlap, busy=self.is_busy, waiting=waiting, made_up_for=limit)

    def claim(self, spec: JobSpec, *, made_up_for: bool = False, may_replace: bool = True) -> Admission:
        """Admit a scheduled or manual run; unless it is skipped, it counts until `end_claim`."""
        admission = self.admission(spec, made_up_for=made_up_for)
        if admission is Admission.REPLACE and not may_replace:
            admission = Admission.WAIT if self.waiting_count < QUEUE_LIMIT else Admission.SKIP
        if admission is Admission.START:
            self.claimed_to_start += 1
        elif admission is not Admission.SKIP:
            self._claimed_to_wait += 1
        return admission

    def claim_for_change(self, spec: JobSpec, trigger: Trigger) -> Admission:
        """Admit a run for a change: at once where no other run precedes it, else it waits for its turn."""
        is_free = not self.is_busy or spec.overlap is Overlap.ALLOW
        is_first = all(run.trigger.change is None for run in self.waiting)
        if not is_free or not is_first or not self._may_follow(trigger):
            return Admission.WAIT
        self.claimed_to_start += 1
        self._serves_change = True
        return Admission.START

    def claim_in_turn(self) -> Admission:
        """Admit a run that waits for its turn, regardless of `overlap`; it counts until `end_claim`."""
        self._claimed_to_wait += 1
        return Admission.WAIT

    def end_claim(self, new: NewRun, run: Run | None) -> None:
        """Stop counting a claim; `run` is recorded now, None where it was refused or had been recorded before."""
        is_caused_by_change = new.trigger.change is not None
        if new.state is RunState.RUNNING:
            self.claimed_to_start -= 1
            if run is not None:
                self.in_flight[run.id] = run
            elif is_caused_by_change:
                self._serves_change = False
        elif not is_caused_by_change:
            self._claimed_to_wait -= 1

    def line_up(self, run: Run) -> None:
        """Queue a run: runs for incidents first, runs for changes in the order of the changes, others last."""
        event = run.trigger.change_event
        place = len(self.waiting)
        if run.trigger.incident:
            hooks = [other for other in self.waiting if other.trigger.incident]
            place = sum(first_of(other) < first_of(run) for other in hooks)
        elif event is not None:
            later = (index for index, other in enumerate(self.waiting) if (other.trigger.change_event or 0) > event)
            place = next(later, place)
        self.waiting.insert(place, run)

    def start_next(self, spec: JobSpec, now_ms: int) -> Run | None:
        """Return the next run that may start, which is in flight from now on."""
        if not self.waiting or (self.is_busy and spec.overlap is not Overlap.ALLOW):
            return None
        for index, waiting in enumerate(self.waiting):
            if self._has_its_turn(waiting):
                del self.waiting[index]
                run = replace(waiting, state=RunState.RUNNING, started_ms=now_ms)
                self.in_flight[run.id] = run
                self._serves_change |= run.trigger.change is not None
                return run
        return None

    def _has_its_turn(self, run: Run) -> bool:
        if run.trigger.incident:  # the hook for its end must not run before the one for its start, which may be retried
            return not any(other.trigger.incident for other in (*self.in_flight.values(), *self._delayed_runs))
        return run.trigger.change is None or self._may_follow(run.trigger)

    def _may_follow(self, trigger: Trigger) -> bool:
        """Return whether this change waits for no earlier one."""
        return not self._serves_change and trigger.subject not in {run.trigger.subject for run in self._delayed_runs}

    def leave(self, run: Run) -> None:
        """Stop counting a run as in flight, if it is."""
        if self.in_flight.pop(run.id, None) and run.trigger.change:
            self._serves_change = False

    def leave_elsewhere(self) -> list[Run]:
        """Stop counting the runs that happen elsewhere, and return them."""
        left = [run for run in self.in_flight.values() if run.trigger.ping]
        for run in left:
            del self.in_flight[run.id]
        return left

    def forget_all_but(self, under_way: Collection[RunId]) -> None:
        """Leave all other runs of the job to the record, and to the daemon that takes them up."""
        self.clear()
        for run in [run for run in self.in_flight.values() if run.id not in under_way]:
            self.leave(run)

    def make_way(self) -> list[Run]:
        """Drop the waiting runs and return them, except runs for a change or an incident: those start only once."""
        dropped = [run for run in self.waiting if not run.trigger.is_owed]
        self.waiting = [run for run in self.waiting if run.trigger.is_owed]
        return dropped

    def give_up(self, run_id: RunId) -> Run | None:
        """Drop one run that waits, and return it."""
        if run_id in self.delayed:
            run, timer = self.delayed.pop(run_id)
            timer.cancel()
            return run
        found = next((waiting for waiting in self.waiting if waiting.id == run_id), None)
        if found is not None:
            self.waiting.remove(found)
        return found

    def clear(self) -> list[Run]:
        """Drop every run that has not started, and return them."""
        dropped = [*self._delayed_runs, *self.waiting]
        for _, timer in self.delayed.values():
            timer.cancel()
        self.delayed.clear()
        self.waiting.clear()
        return dropped

    def busy_with(self, spec: JobSpec) -> str:
        """Return why a run cannot start, as the reason with which it is skipped."""
        if spec.overlap is Overlap.QUEUE:
            return f"overlap: {QUEUE_LIMIT} runs are waiting already"
        running = ", ".join(map(str, self.in_flight)) or "about to start"
        return f"overlap: the job is busy (run {running})"
