"""A running daemon as its clients see it: the HTTP server and, through it, the command line.

It answers from the live jobs, the runner, the scheduler and the store, and hands out views, never a part of the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from msgspec import structs

from spyweb.alerts.ack_links import AckLinks
from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_at_once, run_in_slices
from spyweb.errors import Problem, Refused
from spyweb.model import MIB, Ending, JobId, JobSpec, Run, RunId, TaskBegun, TaskRow
from spyweb.monitor.expectations import is_short
from spyweb.ops.network.address_check import OwnSockets
from spyweb.outbox.sender import OutboxSender
from spyweb.permissions.policy import Audit
from spyweb.reload.swap import Reloader
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import is_drifting
from spyweb.runs.runner import Claims, Runner, by_hand
from spyweb.scheduler.scheduler import Scheduler
from spyweb.schedules.due import earliest, upcoming
from spyweb.service.access import AccessService
from spyweb.service.audit import AuditService
from spyweb.service.calendar import CalendarService, MaySee, anything
from spyweb.service.changes import ChangeHub
from spyweb.service.channels import ChannelService
from spyweb.service.drift import DriftService
from spyweb.service.events import EventHub
from spyweb.service.hooks import HookService
from spyweb.service.incidents import IncidentService
from spyweb.service.job_detail import JobDetails
from spyweb.service.metrics import MetricsService
from spyweb.service.once import OnceService, StartedRun, request_key
from spyweb.service.overview import OverviewService
from spyweb.service.past_runs import PastRunsService
from spyweb.service.readiness import ReadinessService
from spyweb.service.record_search import RecordSearch
from spyweb.service.state import StateService
from spyweb.service.workflows import WorkflowService
from spyweb.settings import Settings
from spyweb.store.model.runs import RequestKey
from spyweb.store.sqlite.store import Store
from spyweb.views.health import Health, HealthProblem, Vitals, find_all_problems, find_warnings, view_health
from spyweb.views.jobs import (
    JobState,
    JobView,
    NextRun,
    broken_job,
    find_job,
    join_problems,
    log_file,
    next_run,
    no_such_job,
    state_of,
    to_json,
    view_job,
    zone_of,
)
from spyweb.views.outbox import MessageView, view_message
from spyweb.views.records import RecordView, view_record
from spyweb.views.runs import RunEnded, RunEvent, log_line, run_ended, view_task

MOST_LOG_BYTES = MIB  # of a watched run's lines that wait; who reads more slowly misses some, and is told how many
LINE_BYTES = 256  # that a line takes beside its text


@dataclass(slots=True)
class RunWatcher:
    """Queues what a run's observer sees for the client that watches."""

    clock: Clock
    audit: Audit | None = None
    is_watched: bool = True  # whoever watches may leave before the run ends
    _waiting: asyncio.Queue[tuple[RunEvent, int]] = field(default_factory=asyncio.Queue)
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
            self._waiting.put_nowait((view_task(event), 0))

    def ended(self, run: Run, ending: Ending) -> None:
        self._tell_of_dropped()
        self._waiting.put_nowait((run_ended(run, ending, self.clock.now_ms(), self.audit), 0))

    async def next(self) -> RunEvent:
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
        self._waiting.put_nowait((log_line(level, text, self.clock.now_ms()), size))


@dataclass(slots=True, kw_only=True)
class DaemonService:
    root: Path
    timezone: str
    live: LiveJobs
    runner: Runner
    scheduler: Scheduler
    reloader: Reloader
    store: Store
    outbox: OutboxSender
    state: StateService
    own_sockets: OwnSockets
    access: AccessService
    trail: AuditService
    metrics: MetricsService
    readiness: ReadinessService
    drift: DriftService
    workflows: WorkflowService
    hooks: HookService
    once: OnceService
    incidents: IncidentService
    channels: ChannelService
    ack_links: AckLinks
    clock: Clock
    events: EventHub
    changes: ChangeHub
    vitals: Callable[[], Vitals]
    vms_of: Callable[[JobId], int]
    is_traced: bool = False  # runs join the traces of the requests that start them
    overview: OverviewService = field(init=False)
    details: JobDetails = field(init=False)
    past: PastRunsService = field(init=False)
    found: RecordSearch = field(init=False)
    calendar: CalendarService = field(init=False)

    def __post_init__(self) -> None:
        self.overview = OverviewService(
            live=self.live,
            store=self.store,
            clock=self.clock,
            view=self._view,
            broken=self._broken_views,
            health=self.health,
        )
        self.details = JobDetails(
            root=self.root,
            timezone=self.timezone,
            live=self.live,
            past_runs=self.store.past_runs,
            overview=self.overview,
            reloader=self.reloader,
            next_runs=self.next_runs,
        )
        self.past = PastRunsService(root=self.root, live=self.live, store=self.store, clock=self.clock)
        self.found = RecordSearch(records=self.store.records, live=self.live, clock=self.clock)
        self.calendar = CalendarService(
            live=self.live, past=self.past, windows=lambda: self.reloader.maintenance, clock=self.clock
        )

    def find(self, name_or_id: str) -> JobId | None:
        return find_job((job.spec for job in self.live), name_or_id)

    @property
    def settings(self) -> Settings:
        return self.reloader.settings

    def spec(self, job: str | None) -> JobSpec | None:
        """Return the settings of a job that is loaded."""
        found = self.live.find(JobId(job)) if job else None
        return found.spec if found else None

    def no_such_job(self, name_or_id: str) -> str:
        """Say that there is no such job, and which one may be meant."""
        return no_such_job(self._broken_views(), name_or_id, [job.id for job in self.live])

    def find_any(self, name_or_id: str) -> JobId | None:
        """Return the job of this name or id, also one that does not load."""
        return self.find(name_or_id) or next((job for job, _ in self._broken() if job == name_or_id), None)

    def names(self) -> dict[JobId, str]:
        """Return the name of each job, also of those that don't load."""
        return {**{job: job for job, _ in self._broken()}, **{job.id: job.spec.name for job in self.live}}

    def troubles(self) -> tuple[Sequence[HealthProblem], Sequence[HealthProblem]]:
        """Return the problems and the warnings of the daemon now."""
        return find_troubles(self.vitals, self.live)

    def jobs(self) -> list[JobView]:
        return run_at_once(self._all_views())

    async def all_jobs(self) -> list[JobView]:
        """Return all jobs, by id, without holding up anything else."""
        return await run_in_slices(self.clock, self._all_views())

    def _all_views(self) -> Steps[list[JobView]]:
        views = []
        for job in self.live:
            views.append(self._view(job))
            yield
        return sorted([*views, *self._broken_views()], key=lambda view: view.id)

    def warnings(self) -> list[Problem]:
        """Return what is doubtful in the project's files, and about live jobs."""
        of_jobs = (warning for job in self.live for warning in job.warnings)
        return sorted({*self.reloader.warnings, *of_jobs}, key=Problem.place)

    def _broken(self) -> Iterator[tuple[JobId, Sequence[Problem]]]:
        """Yield the jobs whose file does not load, and for which no earlier version runs, each with what is wrong."""
        return (found for found in self.reloader.broken.items() if self.live.find(found[0]) is None)

    def _broken_views(self) -> list[JobView]:
        return [broken_job(job, problems) for job, problems in self._broken()]

    def _view(self, job: LiveJob) -> JobView:
        queue = job.queue
        view = view_job(job.spec, job.cursor, job.last, in_flight=len(queue.in_flight), waiting=queue.waiting_count)
        return structs.replace(
            view,
            next_due_ms=next(self._upcoming(job), None),
            generation=job.code.generation,
            vms=self.vms_of(job.id),
            error=join_problems(job.problems),
            warnings=tuple(map(str, job.warnings)),
        )

    def _upcoming(self, job: LiveJob) -> Iterator[int]:
        if job.expected_ms is not None:
            return iter([job.expected_ms])
        return upcoming(job.spec, job.cursor.due_ms) if job.scheduled else iter(())

    async def next_runs(
        self, job: JobId | None, count: int, *, until_ms: int | None = None, may_see: MaySee = anything
    ) -> list[NextRun]:
        """Return the next due times before a moment, of one job or of all that somebody may see, earliest first."""
        jobs = [each for each in self.live if may_see(each.id)] if job is None else [self._live(job)]
        return await run_in_slices(self.clock, self._next_runs(jobs, count, until_ms))

    def _next_runs(self, jobs: Sequence[LiveJob], count: int, until_ms: int | None) -> Steps[list[NextRun]]:
        zones = {job.id: zone_of(job.spec.schedule, self.timezone) for job in jobs}
        found = yield from earliest(((job.id, self._until(job, until_ms)) for job in jobs), count)
        shown = []
        for due_ms, job in found:
            yield
            shown.append(next_run(job, due_ms, zones[job]))
        return shown

    def _until(self, job: LiveJob, until_ms: int | None) -> Iterator[int]:
        due = self._upcoming(job)
        return due if until_ms is None else takewhile(lambda due_ms: due_ms < until_ms, due)

    def log_file(self, job: JobId) -> Path:
        """Return where the job's script logs; the file need not exist."""
        return log_file(self.root, self._live(job).spec.folder)

    def health(self) -> Health:
        return view_health(self.vitals(), self._states(), *_count_short_and_drifting(self.live))

    def _states(self) -> Iterator[JobState]:
        """Yield the state of each job alone: building their whole views would hold up the loop."""
        for job in self.live:
            running, waiting = bool(job.queue.in_flight), bool(job.queue.waiting_count)
            yield state_of(job.spec, job.cursor, running=running, waiting=waiting)
        for _ in self._broken():
            yield JobState.BROKEN

    async def runs(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        """Return runs, newest first."""
        return await self.store.runs.list(job, limit=limit, before=before)

    async def records(self, job: JobId | None, *, limit: int, before_ns: int | None) -> list[RecordView]:
        """Return records, newest first, of one job or of all together."""
        found = await self.store.records.list(job, limit=limit, before_ns=before_ns)
        return [view_record(record) for record in found]

    async def messages(self, job: JobId | None, *, limit: int, before: int | None = None) -> list[MessageView]:
        """Return the messages that wait and those that were given up, newest first; of ids below `before`."""
        return [view_message(message) for message in await self.outbox.unsent(job, limit, before=before)]

    async def start(self, job: JobId, payload: object = None, key: str | None = None, parent: str = "") -> StartedRun:
        """Start a run, or queue it.  Raises Refused where a due time would be skipped, and at a stop.

        Its script finds the payload, any JSON, in its trigger; with a key, a request that is repeated starts no
        second run.
        """
        live, request, known = self._live(job), by_hand(payload=payload, parent=parent), None
        if key is not None:
            known = request_key(f"trigger {job}", key, to_json(payload), self.clock.now_ms())

        def begin(key: RequestKey | None) -> Claims:
            return self.runner.start_by_hand(live, structs.replace(request, key=key))

        return await self.once.start(known, begin)

    async def cancel(self, run: RunId) -> Run | None:
        """Have a run end that is under way, or give up one that waits; return it as it was, or None if there is none.

        Raises Refused where it has ended.
        """
        found = await self.past.find(run)
        if found is not None and not self.runner.cancel(run):
            raise Refused(f"run {run} of {found.job} is not under way: `spyweb runs {found.job}` shows how it ended")
        return found

    async def pause(self, job: JobId) -> None:
        await self.scheduler.pause(self._live(job))

    async def resume(self, job: JobId) -> None:
        await self.scheduler.resume(self._live(job))

    async def run_once(
        self,
        job: JobId,
        *,
        debug: bool = False,
        audit: bool = False,
        dry_run: bool = False,
        values: Mapping[str, object] | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Run a job by hand: yield its log lines as they come, then its end.  With `debug` a monitor job keeps nothing.

        With `audit` the end says which permissions it has used.  With `dry_run` it changes nothing.

        Raises Refused, before the first event, when it can't start.  Whoever stops watching closes the generator; the
        run itself goes on.
        """
        watcher = RunWatcher(self.clock, Audit() if audit else None)
        await self.runner.start_by_hand(self._live(job), by_hand(watcher, debug=debug, dry_run=dry_run, values=values))
        try:
            while True:
                event = await watcher.next()
                yield event
                if isinstance(event, RunEnded):
                    return
        finally:
            watcher.is_watched = False

    def _live(self, job: JobId) -> LiveJob:
        found = self.live.find(job)
        if found is None:
            raise Refused(f"{job} is gone")
        return found


def find_troubles(
    vitals: Callable[[], Vitals], live: LiveJobs
) -> tuple[Sequence[HealthProblem], Sequence[HealthProblem]]:
    """Return the problems and the warnings of the daemon now."""
    measured = vitals()
    return find_all_problems(measured), find_warnings(measured, *_count_short_and_drifting(live))


def _count_short_and_drifting(live: LiveJobs) -> tuple[int, int]:
    """Count the monitors that don't find what is expected, and the jobs whose files are not as they left them."""
    drifting = sum(job.spec.enabled and is_drifting(job.last) for job in live)
    return sum(map(_is_short, live)), drifting


def _is_short(job: LiveJob) -> bool:
    """Tell whether this is a monitor at work that does not find what is expected."""
    return is_short(job.last) and job.spec.monitor is not None and job.spec.enabled and not job.cursor.paused
