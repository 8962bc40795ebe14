"""From changes of stored values to the runs that they start.

The store keeps each change that a live job watches, in the transaction of the change.  Here the changes are taken in
their order; a run is claimed in the commit that takes the change out of the store's outbox, so a crash neither loses
it nor starts it twice.  A job that has as many runs waiting as it may leaves its changes in the store, and holds up no
other job; a writer never waits for any of this.  What a job asks for that can't be loaded is not known: changes that an
earlier daemon left wait until it can be, or is gone.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED
from spyweb.logs.refusals import tell_refusal
from spyweb.model import JobId, On, Outcome, RunId, TriggerType
from spyweb.runs.cause import Trigger, caused_by, trigger_of
from spyweb.runs.lineup import room_for_caused
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.run import Runner
from spyweb.specs.watches import concerns, scope_of, watches_of
from spyweb.store.protocol import Change, ChangeEvent, SkippedRange, Store

log = structlog.get_logger()

MOST_DEPTH = 16  # changes that lead to each other; a chain that goes on is taken for one without end
PAGE = 50  # changes claimed in one commit; each may hold two values of a megabyte
REFILL = 50  # runs of a job that may wait again before more are claimed: a commit for each would cost more
PATIENCE = 5.0  # seconds before the store is asked again after it refused

Listener = tuple[LiveJob, On]


class Listeners:
    """The `on` of every live job, by what it is about."""

    def __init__(self, jobs: Sequence[LiveJob]) -> None:
        self.jobs = {job.id for job in jobs}
        self.watches = watches_of(job.spec for job in jobs)
        self._exact: dict[str, list[Listener]] = {}
        self._prefixes: list[Listener] = []
        for job in jobs:
            for on in job.spec.on:
                group = self._prefixes if on.is_prefix else self._exact.setdefault(on.namespace, [])
                group.append((job, on))

    def of(self, event: ChangeEvent) -> Iterator[tuple[LiveJob, list[On]]]:
        """The jobs that it concerns, each with those of its `on` that say so."""
        found: dict[JobId, tuple[LiveJob, list[On]]] = {}
        for job, on in (*self._exact.get(event.namespace, ()), *self._prefixes):
            if concerns(on, event):
                found.setdefault(job.id, (job, []))[1].append(on)
        return iter(found.values())


@dataclass(slots=True)
class Progress:
    """How far the changes have been handed out."""

    frontier: int = 0  # the last change that was looked at
    behind: dict[JobId, int] = field(default_factory=dict)  # jobs without room: the first change they still have to get

    def first_of(self, job: JobId) -> int:
        return self.behind.get(job, self.frontier + 1)


@dataclass(slots=True)
class Handout:
    """What comes of one page of changes, to be committed as a whole."""

    behind: dict[JobId, int]
    starts: list[tuple[LiveJob, Trigger]] = field(default_factory=list)
    delivered: list[int] = field(default_factory=list)
    skipped: list[SkippedRange] = field(default_factory=list)
    passed: list[tuple[int, JobId]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.starts or self.delivered or self.skipped)

    def give(self, job: LiveJob, event: ChangeEvent, matched: Sequence[On]) -> None:
        self.starts.append((job, trigger_of(event, matched)))
        if job.id in self.behind:
            self.behind[job.id] = event.id + 1

    def pass_over(self, job: LiveJob, event: ChangeEvent) -> None:
        """The job is paused.  That is noted with the change, which may be looked at again because of other jobs."""
        self.skipped.append(passed_over(job, event, Outcome.PAUSED, "a change while the job was paused"))
        self.passed.append((event.id, job.id))


class Triggers:
    """Hands out changes for as long as `deliver` runs."""

    def __init__(self, *, store: Store, live: LiveJobs, runner: Runner, clock: Clock) -> None:
        self._events, self._runs = store.events, store.runs
        self._live = live
        self._runner = runner
        self._clock = clock
        self._listeners = Listeners([])
        self._progress = Progress()
        self._starts_over = False
        self._awaited: frozenset[str] = frozenset()  # LiveJobs.awaited, as of the last look
        self._last_left = sys.maxsize  # the last change that was there before; known once all were looked at
        self._stopped = False
        self._woken = asyncio.Event()
        self._events.on_committed(self._woken.set)
        runner.on_served(self._served)
        live.on_linked(self.link)

    def link(self) -> None:
        """Watch what the live jobs ask for; called each time that specs have changed."""
        self._listeners = Listeners([job for job in self._live if job.spec.on and job.spec.enabled])
        self._events.watch(self._listeners.watches)
        self._starts_over |= not self._progress.behind.keys() <= self._listeners.jobs
        self._starts_over |= not self._awaited <= self._live.awaited
        self._awaited = self._live.awaited
        self._woken.set()

    def stop(self) -> None:
        """Start nothing more; what has not been handed out stays in the store."""
        self._stopped = True

    def _served(self, job: LiveJob) -> None:
        if job.id in self._progress.behind and (not job.waiting or room_for_caused(job) >= REFILL):
            self._woken.set()

    async def deliver(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._hand_out_all()
            except STORE_REFUSED as error:
                tell_refusal("changes could not be handed out yet", error, again_in_s=PATIENCE)
                self._starts_over = True
                await self._clock.sleep(PATIENCE)
                self._woken.set()

    async def _hand_out_all(self) -> None:
        """Every page from where the first job with room goes on, skipping those that are only for jobs without."""
        if self._starts_over:
            self._progress, self._starts_over = Progress(), False
        rooms: dict[JobId, int] = {}
        position = 0
        while not self._stopped:
            position = max(position, self._next_position(rooms))
            page = await self._events.pending(PAGE, after=position)
            if not page:
                self._last_left = min(self._last_left, position)
                return
            await self._hand_out(page, rooms)
            position = page[-1].id

    def _next_position(self, rooms: dict[JobId, int]) -> int:
        progress = self._progress
        firsts = [first for job, first in progress.behind.items() if self._room(job, rooms)]
        return min([first - 1 for first in firsts] + [progress.frontier])

    def _room(self, job_id: JobId, rooms: dict[JobId, int]) -> int:
        """Asked once for all pages: a job that was left out must not get a later change before the earlier one."""
        if job_id not in rooms:
            job = self._live.find(job_id)
            rooms[job_id] = room_for_caused(job) if job else 0
        return rooms[job_id]

    async def _hand_out(self, page: Sequence[ChangeEvent], rooms: dict[JobId, int]) -> None:
        handout = Handout(dict(self._progress.behind))
        for event in page:
            concerned = list(self._listeners.of(event))
            if concerned and event.origin.depth >= MOST_DEPTH:
                await self._end_chain(event, concerned, handout)
            elif self._give(event, concerned, handout, rooms) and not self._is_kept(event):
                handout.delivered.append(event.id)
        last = page[-1].id
        if handout:
            change = Change(delivered=handout.delivered, skipped=handout.skipped, passed=handout.passed)
            await self._runner.start_for_events(handout.starts, change)
        self._progress = Progress(
            max(self._progress.frontier, last), caught_up(handout.behind, rooms, last, self._progress.frontier)
        )

    def _is_kept(self, event: ChangeEvent) -> bool:
        """A job that can't be loaded may have been promised it by an earlier daemon."""
        return bool(self._awaited) and event.id <= self._last_left

    def _give(
        self,
        event: ChangeEvent,
        concerned: Sequence[tuple[LiveJob, list[On]]],
        handout: Handout,
        rooms: dict[JobId, int],
    ) -> bool:
        """Start a run of each job that it concerns; False when one has to get it later."""
        complete = True
        for job, matched in concerned:
            if job.id in event.started or event.id < self._progress.first_of(job.id):
                continue
            if job.cursor.paused:
                handout.pass_over(job, event)
            elif self._room(job.id, rooms):
                rooms[job.id] -= 1
                handout.give(job, event, matched)
            else:
                handout.behind.setdefault(job.id, event.id)
                complete = False
        return complete

    async def _end_chain(
        self, event: ChangeEvent, concerned: Sequence[tuple[LiveJob, list[On]]], handout: Handout
    ) -> None:
        names = " → ".join([*reversed(await self._chain(event)), *sorted(job.id for job, _ in concerned)])
        scope, key = scope_of(event.namespace), event.key.decode("utf-8", "backslashreplace")
        log.error("jobs that start each other were stopped", depth=MOST_DEPTH, chain=names, scope=scope, key=key)
        reason = f"the last of {MOST_DEPTH} changes that led to each other"
        handout.skipped += [passed_over(job, event, Outcome.SKIPPED, reason) for job, _ in concerned]
        handout.delivered.append(event.id)

    async def _chain(self, event: ChangeEvent) -> list[str]:
        """The jobs whose runs led to this change, the latest first."""
        names: list[str] = []
        run_id = event.origin.run
        while run_id is not None and len(names) < MOST_DEPTH:
            found = await self._runs.list(limit=1, before=RunId(run_id + 1))
            if not found or found[0].id != run_id:
                break
            names.append(found[0].job)
            run_id = caused_by(found[0].trigger)
        return names


def caught_up(behind: Mapping[JobId, int], rooms: Mapping[JobId, int], last: int, frontier: int) -> dict[JobId, int]:
    """Where jobs that are behind go on once a page that ends so is handed out."""
    moved = {job: last + 1 if rooms.get(job) and first <= last else first for job, first in behind.items()}
    return {job: first for job, first in moved.items() if first <= max(frontier, last)}


def passed_over(job: LiveJob, event: ChangeEvent, outcome: Outcome, reason: str) -> SkippedRange:
    """For the record: this change starts no run."""
    return SkippedRange(
        job=job.id,
        outcome=outcome,
        first_due_ms=event.at_ms,
        last_due_ms=event.at_ms,
        count=1,
        reason=reason,
        at_ms=event.at_ms,
        trigger=TriggerType.STATE,
    )
