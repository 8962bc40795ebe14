"""Take up the work of the slots that a node of a cluster gains, and leave that of the slots that it gives.

A job lies in the slot that is on record in its cursor, whose owner alone runs it.  Where its settings ask for another
slot, that owner moves it there once nothing of it is under way; out of a slot that nobody owns, the owner of the other
takes it.  So files that differ from node to node for a while have no job run on two nodes.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from spyweb.errors import CursorMoved
from spyweb.model import Cursor, Ending, JobId, Run, RunState
from spyweb.ownership import EVERY_NODE, Slot, slot_at, slot_of
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.pings import PingRuns
from spyweb.runs.runner import LOST, Runner
from spyweb.scheduler.scheduler import Scheduler
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.runs import Runs

THOROUGH = 8  # calls of `look`, of which one reads the cursors of all jobs of other nodes


@dataclass(kw_only=True, eq=False)
class SlotWork:
    """The work of this node's slots.  `Ownership.owned` changes here only.

    At each beat, once the files were loaded: `distrust` where its answer is late; else `release` what is to be given,
    and without a wait before it ask the store's writer to give that; then `look`, with the slots that were taken, or
    are this node's on record and not owned yet.
    """

    live: LiveJobs
    scheduler: Scheduler
    runner: Runner
    pings: PingRuns
    runs: Runs
    prepare: Callable[[], Awaitable[None]] | None = None  # reads what other parts need to know of jobs that come
    busy: Callable[[], Iterable[Slot]] = tuple  # those in which other parts have something under way
    turn: Lock = field(init=False, default_factory=Lock)  # held while jobs come to this node, and leave it
    _looks: Iterator[int] = field(init=False, default_factory=count)

    def idle(self, slots: Iterable[Slot]) -> set[Slot]:
        """Return the slots of which nothing is under way: no run, no claim, no change of a cursor."""
        if self.scheduler.changes or self.turn.locked():
            return set()
        busy = self._busy()
        return set(slots) - {self.live.slot_of(job) for job in busy} - set(self.busy())

    def release(self, idle: Collection[Slot]) -> None:
        """Own these slots no more, which are to be given; their runs that wait stay on record, for the next owner."""
        if idle:
            self._leave([job for job in self.live if job.mine and job.slot in idle], idle)

    def lose(self) -> None:
        """Own nothing any more, and end the runs in flight: this node is dead to the others."""
        self.runner.stop_runs()
        self._leave(list(self.live), set(self.live.ownership.owned or ()))

    def distrust(self) -> None:
        """End the runs in flight if the trust has run out: other nodes may take them over."""
        if not self.live.ownership.is_trusted:
            self.runner.stop_runs()

    def strays(self) -> list[tuple[JobId, Slot, str]]:
        """Return the jobs of other nodes' slots that ask for those of this node."""
        astray = [job for job in self.live if job.is_astray and not job.mine]
        return [(job.id, job.slot, job.pool) for job in astray if self.live.ownership.has(slot_at(job.place, job.pool))]

    async def look(self, taken: Collection[Slot] = (), died: str = "") -> None:
        """Move out what asks for other slots, and take up what has come to this node's.  Raises StoreError.

        Jobs are new here or were moved here, other nodes have recorded runs, some waited until this node may act again.
        Slots that were taken, perhaps from nodes that died, are owned once their work is taken up.
        """
        async with self.turn:
            await self._move_out()
            is_thorough = bool(taken) or next(self._looks) % THOROUGH == 0
            foreign = [job for job in self.live if not job.mine and (is_thorough or self._may_be_here(job))]
            cursors, open_runs = on_record = await self._read(None if is_thorough else [job.id for job in foreign])
            await self._take_up_waiting(open_runs)
            for job in foreign:
                job.recorded = cursors.get(job.id)
            fileless = [job for job in cursors if self.live.find(job) is None and job not in self.live.unloadable]
            absent = [cursors[job] for job in fileless if slot_of(job, cursors[job].pool) in taken]
            await self.scheduler.note_absent(absent)
            gained = [job for job in foreign if job.slot in taken or self.live.ownership.has(job.slot)]
            lost = replace(LOST, reason=f"the node {died} died") if died else LOST
            await self._take_over(gained, absent, on_record, taken, lost)
        for job in self.live:
            if job.mine and job.queue.waiting:
                self.runner.start_next(job)

    async def hear(self) -> None:
        """Take up the runs that other nodes have recorded; while jobs come or leave, `look` does so later."""
        if not self.turn.locked():
            async with self.turn:
                await self._take_up_waiting((await self._read([]))[1])

    async def _take_up_waiting(self, open_runs: Sequence[Run]) -> None:
        waiting = [run for run in open_runs if run.state is RunState.WAITING]
        await self.runner.take_up([run for run in waiting if (job := self.live.find(run.job)) and job.mine])

    def _may_be_here(self, job: LiveJob) -> bool:
        """Return whether a job may lie in a slot of this node, by a record that may be old."""
        return job.recorded is None or job.is_astray or self.live.ownership.has(job.slot)

    async def _take_over(
        self,
        gained: Sequence[LiveJob],
        absent: Iterable[Cursor],
        on_record: tuple[Mapping[JobId, Cursor], Sequence[Run]],
        slots: Collection[Slot],
        lost: Ending,
    ) -> None:
        """Take up jobs as at a start of the daemon; due times come last, when their runs on record are in line."""
        if self.prepare and (gained or slots):
            await self.prepare()
        cursors, open_runs = on_record
        specs = {job.id: job.spec for job in gained}
        self._forget_waiting(gained)
        for job in gained:
            job.cursor, job.reached_ms = Cursor(job=job.id, due_ms=0, schedule=""), 0
        if gained:
            await self.scheduler.activate(gained, cursors)
            gained = [job for job in gained if job.slot in slots or self.live.ownership.has(job.slot)]
        ids = {*(job.id for job in gained), *(cursor.job for cursor in absent)}
        runs = [run for run in open_runs if run.job in ids]
        if self.live.ownership.owned is not None:
            self.live.ownership.owned.update(slots)
        for job in gained:
            job.mine = True
        await self.pings.take_up(runs, lost)
        gained = [job for job in gained if not job.gone]
        for job in gained:
            self.scheduler.watch(job)
        if edited := [job for job in gained if job.spec is not specs[job.id]]:
            await self.scheduler.activate(edited, {})

    async def _move_out(self) -> None:
        """Move idle jobs into the slots that they ask for; one that is this node's too takes them up at once."""
        busy = self._busy()
        moving = [job for job in self.live if job.mine and job.is_astray and job.id not in busy]
        if moving and not self.scheduler.changes:
            self._leave(moving, ())
            expects = {job.id: job.recorded for job in moving}
            moved = [replace(job.recorded, pool=job.pool) for job in moving if job.recorded]
            for job in moving:
                job.recorded = None  # it is read again
            with suppress(CursorMoved):
                await self.runs.record(Change(expects=expects, cursors=moved))

    def _leave(self, jobs: Sequence[LiveJob], slots: Iterable[Slot]) -> None:
        if self.live.ownership.owned is not None:
            self.live.ownership.owned.difference_update(slots)
        for job in jobs:
            job.mine = False
            self.scheduler.drop(job)
        self._forget_waiting(jobs)

    def _busy(self) -> set[JobId]:
        """Return the jobs with a run or a claim under way, or a run whose end is being recorded."""
        starting = {job.id for job in self.live.with_runs() if job.queue.claimed_to_start}
        return {*starting, *self.scheduler.claiming(), *(run.job for run in self.runner.under_way())}

    def _forget_waiting(self, jobs: Iterable[LiveJob]) -> None:
        under_way = {run.id for run in self.runner.under_way()}
        for job in jobs:
            job.queue.forget_all_but(under_way)

    async def _read(self, jobs: Sequence[JobId] | None = None) -> tuple[Mapping[JobId, Cursor], Sequence[Run]]:
        """Return what `Runs.in_line` does, without the runs that this daemon has: later they may have ended."""
        cursors, open_runs = await self.runs.in_line(jobs)
        if jobs is None:
            pools = {job: cursor.pool for job, cursor in cursors.items() if cursor.pool != EVERY_NODE}
            self.live.pools = {job: pool for job, pool in pools.items() if self.live.find(job) is None}
        here = (run for job in self.live.with_runs() if job.mine for run in job.queue.open_runs())
        known = {run.id for run in (*here, *self.runner.under_way())}
        return cursors, [run for run in open_runs if run.id not in known]
