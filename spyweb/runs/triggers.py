"""Start runs for changes of stored values.

The store keeps each change that jobs watch, once for each of them, in the transaction of the change.  Triggers takes
the changes of each job in their order, and claims a run in the commit that removes its change: a crash neither loses a
run nor starts it twice.  Changes stay in the store while their job has no room for more waiting runs, or while its file
can't be loaded; other jobs are not held up.  A writer of values never waits for any of this.

In a cluster each node hands out the changes of its own jobs.  One of a job that is in no file here may be of a job that
other nodes have already: the owner of its slot drops it only after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from msgspec import Struct, field

from spyweb.clock import Clock
from spyweb.errors import STORE_REFUSED
from spyweb.logs.output import tell_refusal
from spyweb.model import JobId, Outcome, RunId, RunState, Trigger, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import skip_of, trigger_of
from spyweb.runs.runner import Runner, RunRequest
from spyweb.settings.units import HOUR_MS
from spyweb.specs.watches import concerns, scope_of, watches_of
from spyweb.store.model.entries import BEFORE_ALL, Position, WantedChange
from spyweb.store.model.runs import Change, NewRun, SkippedRange
from spyweb.store.sqlite.store import Store

log = structlog.get_logger()

MOST_DEPTH = 16  # changes that lead to each other; a longer chain is stopped as endless
PAGE = 50  # changes claimed in one commit
REFILL = 50  # free places of a job before more runs are claimed: a commit for each run would cost more
PATIENCE = 5.0  # seconds before the store is asked again after it refused
ROLL_OUT_MS = HOUR_MS  # how long nodes may have different files
BEHIND_ALL = (1 << 63) - 1  # greater than the id of any change


class Handout(Struct):
    """The decisions about one page of changes, committed as a whole."""

    rooms: dict[JobId, int]  # runs of each job that may still be claimed
    starts: list[tuple[LiveJob, RunRequest]] = field(default_factory=list)
    dropped: list[WantedChange] = field(default_factory=list)
    skipped: list[SkippedRange] = field(default_factory=list)
    too_deep: dict[int, list[WantedChange]] = field(default_factory=dict)  # by event
    left: set[JobId] = field(default_factory=set)  # jobs whose changes stay in the store

    def take_room(self, job: LiveJob) -> bool:
        """Reserve a place for one more waiting run; return whether there was one."""
        room = self.rooms.setdefault(job.id, job.queue.room_for_caused)
        self.rooms[job.id] = max(0, room - 1)
        return room > 0

    def skip(self, change: WantedChange, outcome: Outcome, reason: str) -> None:
        """Start no run for this change, and record the reason."""
        self.dropped.append(change)
        new = NewRun(job=change.job, state=RunState.WAITING, trigger=Trigger(type=TriggerType.STATE))
        self.skipped.append(skip_of(new, change.at_ms, reason, outcome))


class Triggers:
    """Hands out changes for as long as `deliver` runs."""

    def __init__(self, *, store: Store, live: LiveJobs, runner: Runner, clock: Clock) -> None:
        self._events, self._runs = store.events, store.runs
        self._live = live
        self._runner = runner
        self._clock = clock
        self._full: set[JobId] = set()  # had no room when their changes were last checked
        self._has_linked = False  # since the round under way began
        self._stopped = False
        self._woken = asyncio.Event()
        self._events.on_committed(self._woken.set)
        runner.served.append(self._served)
        live.on_linked(self.link)

    def link(self) -> None:
        """Watch the values that the live jobs ask for; call this when specs have changed."""
        self._events.watch(watches_of(job.spec for job in self._live))
        self._has_linked = True
        self._woken.set()

    def wake(self) -> None:
        """Look soon for changes of which this daemon has not heard."""
        self._woken.set()

    def stop(self) -> None:
        """Start nothing more; changes that have not been handed out stay in the store."""
        self._stopped = True

    def _served(self, job: LiveJob) -> None:
        if job.id in self._full and (not job.queue.waiting or job.queue.room_for_caused >= REFILL):
            self._woken.set()

    async def deliver(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._hand_out_all()
                await self._clock.sleep(0)  # until the runs that were claimed are in line
                # The runs whose end would wake this may have ended before their job was found full.
                full = [job for job in map(self._live.find, self._full) if job]
                if any(job.queue.room_for_caused >= REFILL for job in full):
                    self._woken.set()
            except STORE_REFUSED as error:
                tell_refusal("changes could not be handed out yet", error, again_in_s=PATIENCE)
                await self._clock.sleep(PATIENCE)
                self._woken.set()

    async def _hand_out_all(self) -> None:
        """Hand out the waiting changes, once through all jobs.  Later commits wake this again.

        A page that was read before a job was loaded is not handed out: the runs of earlier changes, which waited for
        that job, are queued in the next turn of the loop and come first.
        """
        self._full.clear()
        self._has_linked = False
        rooms: dict[JobId, int] = {}  # for all pages: runs of the one before may not be in line yet
        after: Position = BEFORE_ALL
        while not self._stopped:
            page = await self._events.wanted(PAGE, after=after)
            if self._has_linked or not page:
                return
            handout = Handout(rooms)
            for change in page:
                self._decide(change, handout)
            if handout.starts or handout.dropped:
                outcome = Change(dropped=handout.dropped, skipped=handout.skipped)
                await self._runner.start_all(handout.starts, outcome)
            for changes in handout.too_deep.values():
                await self._tell_of_chain(changes)
            if len(page) < PAGE:
                return
            last = page[-1]
            is_passed = last.job in handout.left or not self._live.is_mine(last.job)
            after = (last.job, BEHIND_ALL if is_passed else last.event)

    def _decide(self, change: WantedChange, handout: Handout) -> None:
        job = self._live.find(change.job)
        if not self._live.is_mine(change.job):
            return
        if job is None and self._may_be_back(change):
            handout.left.add(change.job)
            return
        matched = [on for on in job.spec.on if concerns(on, change)] if job and job.spec.enabled else []
        if job is None or not matched:
            handout.dropped.append(change)
        elif change.origin.depth >= MOST_DEPTH:
            handout.skip(change, Outcome.SKIPPED, f"the last of {MOST_DEPTH} changes that led to each other")
            handout.too_deep.setdefault(change.event, []).append(change)
        elif job.cursor.paused:
            handout.skip(change, Outcome.PAUSED, "a change while the job was paused")
        elif handout.take_room(job):
            handout.starts.append((job, RunRequest(trigger=trigger_of(change, matched))))
        else:
            handout.left.add(job.id)
            self._full.add(job.id)

    def _may_be_back(self, change: WantedChange) -> bool:
        """Return whether the file of an unknown job may be one that can't be loaded, or on its way to this node."""
        is_late = self._clock.now_ms() >= change.at_ms + ROLL_OUT_MS
        return bool(self._live.unloadable or (self._live.ownership.node and not is_late))

    async def _tell_of_chain(self, changes: Sequence[WantedChange]) -> None:
        event, names = changes[0], sorted(change.job for change in changes)
        run_id = event.origin.run
        while run_id is not None and len(names) < MOST_DEPTH + len(changes):
            found = await self._runs.list(limit=1, before=RunId(run_id + 1))
            if not found or found[0].id != run_id:
                break
            names.insert(0, found[0].job)
            trigger = found[0].trigger
            run_id = (trigger.cause or trigger).by or trigger.run_id
        scope, key, chain = scope_of(event.namespace), event.key.decode("utf-8", "backslashreplace"), " → ".join(names)
        log.error("jobs that start each other were stopped", depth=MOST_DEPTH, chain=chain, scope=scope, key=key)
