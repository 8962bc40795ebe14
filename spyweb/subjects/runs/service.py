"""Past runs, the statistics of a job, and manual runs, which are started, watched and cancelled."""

from __future__ import annotations

import asyncio
import hashlib
from asyncio import shield
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct, structs

from spyweb.clock import Clock
from spyweb.errors import Absent, KeyReused, Refused
from spyweb.logs.reading import lines_between
from spyweb.model import MIB, Ending, JobId, Run, RunId, TaskBegun, TaskRow
from spyweb.permissions.policy import Audit
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.runner import Claims, Runner, RunRequest, by_hand
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import KnownRequest, RequestKey, RunFilter, RunPage, RunPoint
from spyweb.store.sqlite.runs import Runs
from spyweb.store.sqlite.store import Store
from spyweb.subjects.records.views import RecordView, view_record
from spyweb.subjects.runs import views
from spyweb.subjects.runs.plans import PlanView, view_plan
from spyweb.views import runs as run_views
from spyweb.views.jobs import log_file, to_json
from spyweb.views.source import SourceView, TraceFrame, error_place, excerpt, frames_of

MOST_CAUSES = 16  # steps back from a run
MOST_FOLLOWERS = 50
MOST_RECORDS = 50
SEARCH_S = 0.2  # after which a search returns the runs found so far, and where to continue
NS_IN_MS = 1_000_000
POINTS_PAGE = 5_000  # runs that statistics read in one query
MOST_RUNS = 100_000  # that statistics count


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRunsService:
    root: Path
    live: LiveJobs
    store: Store
    clock: Clock

    async def newest(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        """Return runs, newest first."""
        return await self.store.runs.list(job, limit=limit, before=before)

    async def search(self, wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        """Return matching runs, newest first; where that takes long, those found so far, and where to continue."""
        began, found = self.clock.monotonic(), list[Run]()
        while True:
            page = await self.store.past_runs.search(wanted, limit=limit - len(found), before=before)
            found += page.runs
            before = page.before
            if before is None or len(found) >= limit or self.clock.monotonic() - began > SEARCH_S:
                return RunPage(runs=found, before=before)

    async def detail(self, run_id: RunId) -> views.RunDetail:
        """Return everything about a run.  Raises Absent where there is none."""
        run = await self.find(run_id)
        if run is None:
            raise Absent(f"there is no run {run_id}: it may have been pruned")
        job = self.live.find(run.job)
        frames, source = located(job, run) if job else (frames_of(run.traceback), None)
        followed = await self.store.past_runs.followers(run.id, limit=MOST_FOLLOWERS)
        before, after = await self.store.past_runs.neighbours(run.job, run.id)
        tasks = await self.tasks(run.id)
        return run_views.copied(
            views.RunDetail,
            views.brief(run),
            run=run,
            name=job.spec.name if job else run.job,
            late_ms=run_views.lateness_of(run),
            causes=await self._causes(run),
            attempts=await self._attempts(run),
            followers=[views.brief(each) for each in followed if not each.trigger.of or each.job != run.job],
            tasks=tasks,
            frames=frames,
            source=source,
            log=await self._log(run, job),
            limits=views.view_limits(run, job.spec) if job else (),
            records=await self._records(run),
            before=before,
            after=after,
            is_there=job is not None,
            plan=view_plan(run, await self.store.tasks.plan(run.id), tasks),
        )

    async def statistics(self, job: JobId, span: views.TimeSpan, *, of_latency: bool = False) -> views.JobStatistics:
        """Return the statistics of a job, also of one that was removed; with the latencies that a check has measured
        in place of durations."""
        now_ms = self.clock.now_ms()
        points: list[RunPoint] = []
        page, before = [], None
        while len(points) < MOST_RUNS:
            page = await self.store.past_runs.points(
                job, since_ms=now_ms - span.ms, limit=POINTS_PAGE, before=before, of_latency=of_latency
            )
            points += page
            if len(page) < POINTS_PAGE:
                break
            before = RunId(page[-1].run)
        points.reverse()  # oldest first
        is_partial = len(page) == POINTS_PAGE
        found = await asyncio.to_thread(views.make_statistics, job, span, points, now_ms, is_partial=is_partial)
        uptime = (await self.store.uptime.read([job], now_ms, [span.value]))[job]
        return structs.replace(found, uptime=uptime.spans[span.value].uptime)

    async def tasks(self, run: RunId) -> list[run_views.TaskView]:
        """Return the ended tasks of a run, in the order of their definition."""
        found = await self.store.tasks.of_runs([run])
        return [run_views.view_task(row) for row in found.get(run, ())]

    async def ops(self, run: RunId) -> run_views.RunOps:
        """Return the recorded ops of a run.  Raises Absent where there are none."""
        return await recorded_ops(self.store, run)

    async def newest_plan(self, job: JobId) -> PlanView | None:
        """Return the plan of the newest run of a job with tasks, with the states of that run."""
        number = await self.store.tasks.newest_of(job)
        run = None if number is None else await self.find(number)
        plan = await self.store.tasks.plan(run.id) if run else None
        return view_plan(run, plan, await self.tasks(run.id)) if run and plan and plan.tasks else None

    async def find(self, run: RunId) -> Run | None:
        return await self.store.past_runs.find(run)

    async def _log(self, run: Run, job: LiveJob | None) -> views.RunLog:
        """Return the lines of the job's log between the start and the end of a run."""
        if run.started_ms is None or job is None:
            return views.RunLog()
        ended_ms = self.clock.now_ms() if run.ended_ms is None else run.ended_ms
        path = log_file(self.root, job.spec.folder)
        found = await asyncio.to_thread(lines_between, path, run.started_ms, ended_ms)
        is_shared = bool(found.lines) and await self._has_company(job, run, run.started_ms, ended_ms)
        return views.RunLog(lines=found.lines, is_cut=found.is_cut, is_shared=is_shared)

    async def _has_company(self, job: LiveJob, run: Run, started_ms: int, ended_ms: int) -> bool:
        """Return whether another run of the job was under way at the same time."""
        for other in job.queue.in_flight.values():
            if other.id != run.id and other.started_ms is not None and other.started_ms < ended_ms:
                return True
        earlier = await self.store.past_runs.points(run.job, since_ms=0, limit=1, before=run.id)
        if any(point.at_ms + point.took_ms > started_ms for point in earlier):
            return True
        wanted = RunFilter(job=run.job, since_ms=started_ms, until_ms=ended_ms)
        during = await self.store.past_runs.search(wanted, limit=2)
        return any(other.id != run.id and other.started_ms is not None for other in during.runs)

    async def _causes(self, run: Run) -> list[views.CauseStep]:
        """Return the history of a run, the first cause first."""
        steps: list[views.CauseStep] = []
        at: Run | None = run
        while at is not None and len(steps) < MOST_CAUSES:
            cause = views.cause_run(at)
            before = await self.store.past_runs.find(cause) if cause is not None else None
            job = self.live.find(before.job) if before else None
            steps.append(views.view_cause(at, before, job.spec.name if job else None))
            at = before
        return steps[::-1]

    async def _attempts(self, run: Run) -> Sequence[views.RunBrief]:
        """Return all attempts of a run that was retried."""
        first = views.cause_run(run) if run.trigger.of else run.id
        if first is None:
            return ()
        begun = run if first == run.id else await self.store.past_runs.find(first)
        retries = [
            each
            for each in await self.store.past_runs.followers(first, limit=MOST_FOLLOWERS)
            if each.trigger.of == first and each.job == run.job
        ]
        return [views.brief(each) for each in (*([begun] if begun else []), *retries)] if retries else ()

    async def _records(self, run: Run) -> list[RecordView]:
        """Return the records of a monitor's run that are still stored."""
        if not run.items_new or run.started_ms is None or run.ended_ms is None:
            return []
        before_ns = (run.ended_ms + 1) * NS_IN_MS
        found = await self.store.records.list(run.job, limit=min(run.items_new, MOST_RECORDS), before_ns=before_ns)
        return [view_record(record) for record in found if record.created_ms >= run.started_ms]


def located(job: LiveJob, run: Run) -> tuple[list[TraceFrame], SourceView | None]:
    """Return the frames of a run's traceback, and the source around the line that its error names."""
    file_of = job.code.chunk_shown_as
    place = error_place(run.reason, run.traceback, file_of)
    source = dict(job.code.files).get(place[0]) if place and run.generation in (0, job.code.generation) else None
    return frames_of(run.traceback, file_of), excerpt(place[0], source, place[1]) if place and source else None


KEPT_MS = DAY_MS


class StartedRun(Struct, frozen=True, kw_only=True):
    """The run that a request has started, now or when it was first sent."""

    run: RunId | None
    is_repeated: bool = False


def request_key(scope: str, key: str, asked: bytes, now_ms: int) -> RequestKey:
    """Make the key of a request: two requests with the same `asked` are the same."""
    hashed = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
    return RequestKey(scope=scope, key=hashed, fingerprint=hashlib.sha256(asked).digest(), at_ms=now_ms)


@dataclass(slots=True)
class OnceService:
    """Starts one run for a request, however often it is sent: clients repeat a request whose answer they did not get.

    The key of a request is recorded in the commit of its run.  So either both are stored or neither is: after a crash a
    repetition finds the run, or starts it.
    """

    runs: Runs
    clock: Clock
    _under_way: dict[tuple[str, bytes], bytes] = field(default_factory=dict)  # fingerprints, till the store answers

    async def known(self, key: RequestKey) -> KnownRequest | None:
        """Return the request that has used this key within a day."""
        found = await self.runs.find_request(key.scope, key.key)
        return found if found is not None and self.clock.now_ms() - found.at_ms < KEPT_MS else None

    async def start(self, key: RequestKey | None, start: Callable[[RequestKey | None], Claims]) -> StartedRun:
        """Start a run, unless a request with this key has started one within a day: then that is the answer.

        Raises KeyReused where that was another request, and Refused while it is under way.
        """
        if key is None:
            return StartedRun(run=next(iter(await start(None)), None))
        place = (key.scope, key.key)
        if place in self._under_way:
            _expect_same(self._under_way[place], key)
            raise Refused("the same request is under way: its answer is not known yet")
        self._under_way[place] = key.fingerprint
        try:
            known = await self.known(key)
            if known is not None:
                _expect_same(known.fingerprint, key)
                del self._under_way[place]
                return StartedRun(run=known.run, is_repeated=True)
            claims = start(key)
        except BaseException:
            del self._under_way[place]
            raise
        # Until the commit, also where the client has left.
        claims.add_done_callback(lambda _: self._under_way.pop(place, None))
        run = next(iter(await shield(claims)), None)
        self._under_way.pop(place, None)  # the callback may not have run yet
        return StartedRun(run=run)


def _expect_same(fingerprint: bytes, key: RequestKey) -> None:
    if fingerprint != key.fingerprint:
        raise KeyReused("this Idempotency-Key was used for another request")


MOST_LOG_BYTES = MIB  # of waiting lines of a watched run; a slower client misses lines, and gets their number
LINE_BYTES = 256  # overhead of a line


@dataclass(slots=True)
class RunWatcher:
    """Queues the events of a run for the client that watches it."""

    clock: Clock
    audit: Audit | None = None
    is_watched: bool = True  # the client may leave before the run ends
    _waiting: asyncio.Queue[tuple[run_views.RunEvent, int]] = field(default_factory=asyncio.Queue)
    _size: int = 0
    _dropped: int = 0

    def log(self, level: str, text: bytes) -> None:
        if not self.is_watched:
            return
        if self._size + len(text) + LINE_BYTES > MOST_LOG_BYTES:
            self._dropped += 1
            return
        self._tell_of_dropped()
        self._put(level, text)

    def task(self, event: TaskBegun | TaskRow) -> None:
        if self.is_watched:
            self._tell_of_dropped()
            self._waiting.put_nowait((run_views.view_task(event), 0))

    def ended(self, run: Run, ending: Ending) -> None:
        self._tell_of_dropped()
        self._waiting.put_nowait((run_views.run_ended(run, ending, self.clock.now_ms(), self.audit), 0))

    async def next(self) -> run_views.RunEvent:
        event, size = await self._waiting.get()
        self._size -= size
        return event

    def _tell_of_dropped(self) -> None:
        if self._dropped:
            self._put("warn", b"%d lines came faster than they were read and are not shown" % self._dropped)
            self._dropped = 0

    def _put(self, level: str, text: bytes) -> None:
        size = len(text) + LINE_BYTES
        self._size += size
        self._waiting.put_nowait((run_views.log_line(level, text, self.clock.now_ms()), size))


@dataclass(slots=True, kw_only=True)
class RunService:
    runner: Runner
    past: PastRunsService
    once: OnceService
    is_traced: bool = False  # runs join the traces of the requests that start them

    async def start(
        self,
        job: JobId,
        payload: object = None,
        key: str | None = None,
        parent: str = "",
        values: Mapping[str, object] | None = None,
    ) -> StartedRun:
        """Start a run, or queue it.  Raises as OnceService, and Refused where a due time would be skipped."""
        request = by_hand(payload=payload, parent=parent, values=values)
        return await self.start_as(job, request, self.key_of(f"trigger {job}", key, to_json(payload)))

    def key_of(self, scope: str, key: str | None, asked: bytes) -> RequestKey | None:
        return None if key is None else request_key(scope, key, asked, self.past.clock.now_ms())

    async def start_as(self, job: JobId, request: RunRequest, key: RequestKey | None) -> StartedRun:
        """Start a run by this request.  Raises as `start`."""
        live = self.past.live.get(job)

        def begin(key: RequestKey | None) -> Claims:
            return self.runner.start_by_hand(live, structs.replace(request, key=key))

        return await self.once.start(key, begin)

    async def cancel(self, run: RunId) -> Run:
        """Cancel a run that is under way or waits; return it as it was.

        Raises Absent where there is none, Refused where it has ended.
        """
        found = await self.past.find(run)
        if found is None:
            raise Absent(f"there is no run {run}: `spyweb runs` lists the runs")
        if not self.runner.cancel(run):
            raise Refused(f"run {run} of {found.job} is not under way: `spyweb runs {found.job}` shows how it ended")
        return found

    async def run_once(
        self,
        job: JobId,
        *,
        debug: bool = False,
        audit: bool = False,
        dry_run: bool = False,
        values: Mapping[str, object] | None = None,
    ) -> AsyncGenerator[run_views.RunEvent, None]:
        """Run a job manually: yield its log lines as they come, then its end.

        Raises Refused, before the first event, when it can't start.  A caller that stops watching closes the generator;
        the run continues.
        """
        watcher = RunWatcher(self.past.clock, Audit() if audit else None)
        await self.runner.start_by_hand(
            self.past.live.get(job), by_hand(watcher, debug=debug, dry_run=dry_run, values=values)
        )
        try:
            while True:
                event = await watcher.next()
                yield event
                if isinstance(event, run_views.RunEnded):
                    return
        finally:
            watcher.is_watched = False


async def recorded_ops(store: Store, number: RunId) -> run_views.RunOps:
    """Return the recorded ops of a run, with its record.  Raises Absent where there are none."""
    run, data = await store.past_runs.find(number), await store.past_runs.find_record(number)
    if run is None:
        raise Absent(f"there is no run {number}: it may have been pruned")
    if data is None:
        which = "the last 5 failed runs of a script job have one, unless its `record` says otherwise"
        raise Absent(f"run {number} of {run.job} has no record: {which}")
    return await asyncio.to_thread(run_views.view_ops, run, data)
