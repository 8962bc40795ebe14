"""Know the runs and cursors of jobs that other nodes run, as on record, for who asks or has a page open."""

from __future__ import annotations

from asyncio import Lock, Task, TaskGroup
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices, within
from spyweb.errors import STORE_REFUSED
from spyweb.logs.output import tell_refusal
from spyweb.model import Cursor, JobId, Run, RunId, RunState
from spyweb.runs.live import JobChange, LiveJob, LiveJobs
from spyweb.store.sqlite.store import Store

log = structlog.get_logger()

LOOK_S = 2.0  # between two checks
AGAIN_S = 10.0  # after the store refused
PATIENCE_S = 1.0  # for the store; then what was known before is shown
MOST = 500  # runs recorded since the look before; of more, only the last of each job
MOST_LONG = 50  # long runs of which the end is read in one look


@dataclass(kw_only=True, eq=False)
class Elsewhere:
    """Reads the record again as soon as somebody asks, but not more often than each LOOK_S."""

    live: LiveJobs
    store: Store
    turn: Lock  # held while jobs come to this node: their cursors are not shown, but acted on
    tasks: TaskGroup
    clock: Clock
    _looked_at: float | None = None
    _look: Task[None] | None = None
    _newest: RunId | None = None  # at the last look
    _known: set[RunId] = field(default_factory=set)  # of the newest then, those that had ended
    _open: dict[RunId, Run] = field(default_factory=dict)  # foreign ones at the last look

    async def look(self) -> None:
        """Bring up to date what other nodes have changed; at once where that was done just now."""
        now = self.clock.monotonic()
        if self._look is None and (self._looked_at is None or now - self._looked_at >= LOOK_S):
            self._looked_at = now
            self._look = self.tasks.create_task(self._read(), name="look at other nodes")
        if self._look:
            await within(self.clock, PATIENCE_S, self._look)

    async def keep_up(self) -> None:
        """Look again and again while somebody follows events of jobs, or has a page open."""
        while True:
            await self.clock.sleep(LOOK_S)
            if self.live.listener:
                await self.look()

    async def _read(self) -> None:
        try:
            cursors, under_way = await self.store.runs.cursors(), await self.store.runs.open()
            ended = await self._ended(under_way)
            async with self.turn:
                await run_in_slices(self.clock, self._take(cursors, under_way, ended))
        except STORE_REFUSED as error:
            tell_refusal("what other nodes have changed could not be read", error, again_in_s=AGAIN_S)
            self._looked_at = self.clock.monotonic() + AGAIN_S - LOOK_S
            self._newest = None  # runs that have ended meanwhile may not have been taken
        except Exception:  # an internal error must not end the daemon
            log.exception("internal error while looking at other nodes")
        finally:
            self._look = None

    async def _ended(self, under_way: Sequence[Run]) -> list[Run]:
        """Return the runs that ended since the last look, oldest first; of very many, the last of each job."""
        newest = await self.store.runs.list(limit=MOST)
        since, self._newest = self._newest, newest[0].id if newest else RunId(0)
        ended = {run.id: run for run in newest if run.state is RunState.ENDED and run.last_due_ms is None}
        known, self._known = self._known, set(ended)
        if since is None or (len(newest) == MOST and newest[-1].id > since):
            latest = (await self.store.runs.latest()).values()
            return [run for run in latest if (job := self.live.find(run.job)) and job.last != run]
        still = {run.id for run in under_way}.union(ended)
        over = [each for each in self._open if each not in still][:MOST_LONG]
        long = [await self.store.past_runs.find(each) for each in over]
        return sorted(filter(None, [*long, *(ended[each] for each in ended.keys() - known)]), key=lambda run: run.id)

    def _take(self, cursors: dict[JobId, Cursor], under_way: Iterable[Run], ended: Iterable[Run]) -> Steps[None]:
        """Show it; runs of this node's own jobs are known better here."""
        foreign = {job.id: job for job in self.live if not job.mine}
        before, self._open = self._open, {}
        opened: dict[JobId, list[Run]] = {}
        for run in [run for run in under_way if run.job in foreign]:
            known = before.get(run.id)
            self._open[run.id] = now = known if known == run else run
            opened.setdefault(run.job, []).append(now)
            if known is not now:
                self._tell(foreign[run.job], run)
        for run in [run for run in ended if run.job in foreign]:
            job = foreign[run.job]
            if job.last is None or run.id > job.last.id:
                job.note_end(run)
            self._tell(job, run)
        for job in foreign.values():
            yield
            job.elsewhere = opened.get(job.id, ())
            found = cursors.get(job.id)
            if found and found != job.cursor:
                is_told, job.cursor = found.paused is not job.cursor.paused, found
                if self.live.listener and is_told:
                    self.live.listener.changed(job, JobChange.PAUSED if found.paused else JobChange.RESUMED)

    def _tell(self, job: LiveJob, run: Run) -> None:
        if self.live.ran_elsewhere:
            self.live.ran_elsewhere([job.id])
        if (listener := self.live.listener) and run.state is RunState.WAITING:
            listener.run_waits(run)
        elif listener:
            (listener.run_ended if run.state is RunState.ENDED else listener.run_began)(run, job.late_ms(run))
