"""A fake daemon service with three known jobs, for tests of the HTTP server and the command line.

`prices` runs every 30 s and succeeded last time; `backup` is a paused cron job that failed; `typo` does not load.
It keeps a story: what it was asked to do, as short strings.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from spyweb.alerts.channels import AttemptTallies
from spyweb.alerts.delivery import AckLinks, Attempt
from spyweb.clock import Clock
from spyweb.cooperative import run_at_once
from spyweb.daemon.subjects import ADDRESSES
from spyweb.errors import Absent, Problem, Refused, SpywebError
from spyweb.events.changes import ChangeHub
from spyweb.events.hub import EventHub
from spyweb.incidents.policy import Level
from spyweb.lua.recording import RecordedOp, RunRecord
from spyweb.lua.session import PoolStats, WorkerInfo
from spyweb.model import Cron, Cursor, Every, Failure, JobId, Outcome, Run, RunId, RunMark, RunState, Trigger
from spyweb.ops.network.address_check import OwnSockets
from spyweb.ops.world import Metrics
from spyweb.outbox.send import DeliveryFailure
from spyweb.outbox.sender import OutboxSender
from spyweb.reload.swap import Reloader
from spyweb.runs.counters import RunCounters
from spyweb.runs.live import LiveJobs
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.settings.load import load_settings
from spyweb.settings.sections import Settings, StateSettings
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.specs.maintenance import MaintenanceCalendar, MaintenanceRule, Once, Recurring
from spyweb.specs.origins import OriginKind, ResolvedSetting
from spyweb.store.model.access import NewAuditLine
from spyweb.store.model.entries import NO_HISTORY, HistoryRules, StoreStats
from spyweb.store.model.messages import Backlog, Channel, QueuedMessage, Target
from spyweb.store.model.runs import RunFilter, RunPage, RunPlan, RunPoint
from spyweb.store.sqlite.store import Store
from spyweb.subjects.health.service import HealthService, MetricsService, ReadinessService
from spyweb.subjects.health.views import Vitals
from spyweb.subjects.hooks.service import Delivery, HookService
from spyweb.subjects.incidents.service import ChannelService, IncidentService
from spyweb.subjects.jobs.overview import OverviewRow
from spyweb.subjects.jobs.pages import outlook_of
from spyweb.subjects.jobs.service import JobDetails, JobService, OverviewService
from spyweb.subjects.jobs.views import JobDetail, LastError, Tie
from spyweb.subjects.nodes.service import NodesService
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.records.views import RecordView
from spyweb.subjects.runs import views as run_views
from spyweb.subjects.runs.plans import PlanView, view_plan
from spyweb.subjects.runs.retries import Prospect, RetryService
from spyweb.subjects.runs.service import PastRunsService, RunService, StartedRun
from spyweb.subjects.state.service import StateService
from spyweb.subjects.status.service import StatusService
from spyweb.subjects.uptime.service import UptimeService
from spyweb.subjects.when import service as when
from spyweb.subjects.when.audit import RunAuditService
from spyweb.subjects.workflows.service import WorkflowService
from spyweb.views.jobs import JobPaused, JobState, JobView, MaySee, NextRun, anything, next_run
from spyweb.views.runs import LogLine, RunEnded, RunEvent, RunOps, RunRetried, TaskView, copied, lateness_of, view_ops
from spyweb.views.source import SourceView, TraceFrame
from spyweb.web.access.audit import AuditService
from spyweb.web.access.keys import AccessService
from spyweb.web.access.principal import Principal
from spyweb.web.api.services import STARTING, Outlook, Services
from tests.fakes.clock import FakeClock
from tests.fakes.drifting import make_drift
from tests.fakes.harness import make_job, make_planned
from tests.fakes.memory_store import MemoryStore

T = TypeVar("T")
MARKUP = '"><script>alert(1)</script>'
NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
PRICES, BACKUP, TYPO = JobId("prices"), JobId("backup"), JobId("typo")
NINTH = RunId(9)


def make_run(number: int = 1, **changes: object) -> Run:
    run = Run(
        id=RunId(number),
        job=PRICES,
        state=RunState.ENDED,
        trigger=Trigger(type="schedule"),
        due_ms=NOW_MS - 60_000,
        started_ms=NOW_MS - 60_000,
        ended_ms=NOW_MS - 58_766,
        outcome=Outcome.SUCCESS,
        generation=1,
    )
    return replace(run, **changes)


def make_stats(**changes: object) -> StoreStats:
    stats = StoreStats(
        path="data/spyweb.db",
        writes=10,
        batches=2,
        errors=0,
        size_bytes=4096,
        last_commit_ms=NOW_MS - 5,
        pending=0,
        oldest_pending_s=0.0,
    )
    return replace(stats, **changes)


def make_vitals(**changes: object) -> Vitals:
    worker = WorkerInfo(pid=11, job=None, vms=2, runs=1, used_bytes=70_000, retiring=False)
    vitals = Vitals(
        version="0.1.0",
        pid=10,
        uptime_s=12.5,
        scheduler_lag_ms=3,
        store=make_stats(),
        pool=PoolStats(
            rights=["no files", "no network"],
            workers=[worker],
            quarantined={BACKUP: "it crashed"},
            deaths=1,
            answering=1,
        ),
        storage_errors=0,
    )
    return replace(vitals, **changes)


def three_states() -> list[JobState]:
    return [job.state for job in three_jobs()]


def three_jobs() -> list[JobView]:
    return FakeDaemonService().jobs()


def two_live_jobs() -> LiveJobs:
    """Make the live ones of the three jobs."""
    live = LiveJobs()
    backup = make_job(BACKUP, schedule=Cron(expression="0 3 * * *", timezone="Europe/Berlin"))
    backup.spec = replace(backup.spec, name="Backup")
    backup.cursor = Cursor(job=BACKUP, due_ms=NOW_MS - 60_000, schedule="", paused=True)
    backup.code = replace(backup.code, generation=4)
    backup.last = three_runs()[1]
    prices = make_job(PRICES, schedule=Every(period_ms=30_000))
    prices.cursor, prices.last = replace(prices.cursor, due_ms=NOW_MS), make_run()
    for job in (backup, prices):
        live.add(job)
    return live


class FakeReloader(Reloader):
    """Says what is wrong with the project's files, and what its settings are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.broken = {TYPO: [Problem("jobs/typo.lua", 1, None, "unexpected symbol near 'x'")]}
        self.warnings = [Problem("jobs/prices.lua", 3, None, "undefined name htp_get", is_warning=True)]
        self.maintenance = MaintenanceCalendar()

    @property
    def settings(self) -> Settings:
        return load_settings(self.root, environ={}, flags={})


def three_runs() -> list[Run]:
    missed = make_run(
        3, started_ms=None, outcome=Outcome.MISSED, reason="the daemon was down", count=7, last_due_ms=NOW_MS
    )
    failed = make_run(2, job=BACKUP, outcome=Outcome.FAILED, failure=Failure.ERROR, reason="jobs/backup.lua:3: disk")
    return [missed, failed, make_run(1)]


def a_watched_run() -> list[RunEvent]:
    return [
        LogLine(level="info", text="3 prices", at_ms=NOW_MS),
        LogLine(level="print", text="größer", at_ms=NOW_MS + 10),
        RunEnded(job=PRICES, run=RunId(9), outcome=Outcome.SUCCESS, duration_ms=12, cpu_ms=2, result=["a", 1]),
    ]


def make_state(clock: Clock | None = None, history: HistoryRules = NO_HISTORY) -> StateService:
    """Make a real state service, over a store in memory."""
    clock = clock or FakeClock()
    limits = StateSettings(max_value_bytes=1000, max_key_bytes=20)
    return StateService(store=MemoryStore(clock, history=history), clock=clock, limits=limits)


def make_metrics(live: LiveJobs | None = None, vitals: Vitals | None = None, **parts: object) -> MetricsService:
    clock = FakeClock()
    service = MetricsService(
        live=live or LiveJobs(),
        counters=RunCounters(),
        op_times={},
        op_counts=Metrics(),
        store=MemoryStore(clock),
        clock=clock,
        vitals=lambda: vitals or make_vitals(),
        tallies=dict,
    )
    for name, part in parts.items():
        setattr(service, name, part)
    return service


def make_readiness(
    store: Store | None = None, clock: FakeClock | None = None, vitals: Vitals | None = None
) -> ReadinessService:
    """Make that of a daemon that has begun."""
    clock = clock or FakeClock()
    service = ReadinessService(store=store or MemoryStore(clock), clock=clock, vitals=lambda: vitals or make_vitals())
    service.stage = ""
    return service


async def no_lines(_job: JobId, _count: int, _note_place: Callable[[], None]) -> list[str]:
    return []


class FakeHooks(HookService):
    """Hooks without secrets: who has a key may start a job by them."""

    def __init__(self, service: FakeDaemonService) -> None:
        self.live, self.clock, self._nobodys, self.start = service.live, service.clock, b"nobody's", service.start

    async def receive(self, job: JobId, delivery: Delivery) -> StartedRun:
        return await self.start(job)


def make_detail(row: OverviewRow) -> JobDetail:
    """Make the details of a job in which each text holds markup."""
    job = row.job.id
    source = SourceView(file=f"jobs/{job}.lua", first=2, lines=[MARKUP, "local a = 1", "-- <b>"], line=3, total=4)
    problem = Problem(MARKUP, 3, MARKUP, MARKUP)
    error = LastError(
        run=RunId(43), at_ms=NOW_MS, reason=MARKUP, failure="error", frames=(), source=source, is_same=True
    )
    return JobDetail(
        row=row,
        schedule=f"every 30 seconds {MARKUP}",
        next_due=[next_run(job, NOW_MS + 30_000 * n, "Europe/Berlin") for n in (1, 2)],
        problems=[problem],
        source=source,
        error=error if row.failing else None,
        follows=[
            Tie(job=JobId(MARKUP), name=MARKUP, outcomes=[Outcome.SUCCESS], is_there=False),
            Tie(job=PRICES, name=PRICES, outcomes=[Outcome.SUCCESS]),
        ],
        followed_by=[Tie(job=JobId("report"), name=MARKUP, outcomes=[Outcome.FAILED, Outcome.LOST])],
        listens=[MARKUP],
        settings=[
            ResolvedSetting(key="every", value=MARKUP, origin=OriginKind.FILE, file=MARKUP, line=1, words=MARKUP),
            ResolvedSetting(key="timeout", value="5m", origin=OriginKind.BUILT_IN, words="built in"),
        ],
        files=[f"jobs/{job}.lua", MARKUP],
        pages=[MARKUP],
        generation=3,
        namespace=f"job:{job}",
    )


class FakeDetails(JobDetails):
    __setattr__ = object.__setattr__

    def __init__(self, service: FakeDaemonService) -> None:
        self.service, self.is_elsewhere = service, False

    async def detail(self, job: JobId) -> JobDetail:
        row = await self.service.overview.row(job)
        assert row is not None
        return replace(make_detail(row), is_elsewhere=self.is_elsewhere)

    async def source(self, job: JobId, file: str | None = None) -> SourceView:
        if file not in (None, f"jobs/{job}.lua"):
            raise Absent(f"{job} has no Lua file {file!r}")
        return SourceView(file=f"jobs/{job}.lua", first=1, lines=["local a = 1", MARKUP], line=None, total=2)


def make_run_detail(run: Run, **changes: object) -> run_views.RunDetail:
    """Make the details of a run in which each text holds markup."""
    job = run.job
    source = SourceView(file=f"jobs/{job}.lua", first=1, lines=["local a = 1", MARKUP], line=2, total=2)
    began = (run.started_ms or NOW_MS) / 1000
    detail = copied(
        run_views.RunDetail,
        run_views.brief(run),
        run=run,
        name=MARKUP,
        late_ms=lateness_of(run),
        causes=[
            run_views.CauseStep(kind="after", words=MARKUP, at_ms=NOW_MS, run=run_views.brief(each))
            for each in three_runs()
        ],
        attempts=[run_views.brief(run), run_views.brief(make_run(int(run.id) + 1, job=job, attempt=2))],
        followers=[run_views.brief(make_run(99, job=JobId(MARKUP), reason=MARKUP)), run_views.brief(make_run(98))],
        tasks=[
            TaskView(task=MARKUP, workflow="", status="success", started_at=began, took_ms=600),
            TaskView(task="push", workflow="", status="failed", started_at=began + 0.6, took_ms=100, message=MARKUP),
            TaskView(task="restart", workflow="", status="skipped"),
        ],
        frames=[TraceFrame(text=MARKUP, file=f"jobs/{job}.lua", line=2), TraceFrame(text="[C]: in error")],
        source=source,
        log=run_views.RunLog(lines=[f"2026-01-01T00:00:00.012Z WARN {MARKUP}"], is_cut=True, is_shared=True),
        limits=[
            run_views.LimitView(name="time", used=20_400, limit=60_000, unit="ms", words="", is_over=True),
            run_views.LimitView(name="memory", used=None, limit=64 << 20, unit="bytes", words=""),
        ],
        before=RunId(2),
        plan=make_plan(run),
    )
    return replace(detail, **changes)


def recorded(number: int, name: str, given: list[object], **changes: object) -> RecordedOp:
    op = RecordedOp(number, name, (), 0.1 * number, 0.05, given, [None], "ok")
    return replace(op, **changes)


FAILED_RECORD = RunRecord(
    procedure="run",
    arguments=[{}, False],
    variables={},
    engine={},
    reads={},
    ops=[
        recorded(2, "store_get", ["seen"]),
        recorded(1, "http_get", [MARKUP], answer=[f"no route to {MARKUP}"], status="error"),
        recorded(3, "sleep", [1000], answer=None, status="unanswered"),
    ],
    left_out=7,
)


class FakePast(PastRunsService):
    """The runs that the service knows, and 60 in the last hour, each a second longer than the one before."""

    __setattr__ = object.__setattr__

    def __init__(self, service: FakeDaemonService) -> None:
        self.service = service
        self.searched = list[RunFilter]()

    async def newest(self, job: JobId | None, *, limit: int, before: RunId | None) -> list[Run]:
        known = self.service.known_runs
        return [run for run in known if job in (None, run.job) and (before is None or run.id < before)][:limit]

    async def ops(self, run: RunId) -> RunOps:
        found = await self.find(run)
        if found is None or found.outcome is not Outcome.FAILED:
            raise Absent(f"run {run} has no record")
        return view_ops(found, msgspec.msgpack.encode(FAILED_RECORD))

    async def tasks(self, run: RunId) -> list[TaskView]:
        return self.service.tasks_of.get(run, [])

    async def statistics(
        self, job: JobId, span: run_views.TimeSpan, *, of_latency: bool = False
    ) -> run_views.JobStatistics:
        points = [
            RunPoint(run=n, at_ms=NOW_MS - 60_000 * n, took_ms=1_000 * (n + 1), late_ms=n, mark=RunMark.SUCCESS)
            for n in range(59, -1, -1)
        ]
        return run_views.make_statistics(job, span, points, NOW_MS)

    async def search(self, wanted: RunFilter, *, limit: int, before: RunId | None = None) -> RunPage:
        self.searched.append(wanted)
        known = [run for run in self.service.known_runs if not wanted.outcomes or run.outcome in wanted.outcomes]
        return RunPage(runs=known[:limit], before=RunId(1))

    async def detail(self, run_id: RunId) -> run_views.RunDetail:
        run = await self.find(run_id)
        if run is None:
            raise Absent(f"there is no run {run_id}: it may have been pruned")
        return make_run_detail(run)

    async def find(self, run: RunId) -> Run | None:
        return next((each for each in self.service.known_runs if each.id == run), None)

    async def newest_plan(self, job: JobId) -> PlanView | None:
        return next((make_plan(run) for run in self.service.known_runs if run.job == job), None)


def make_plan(run: Run) -> PlanView | None:
    """Make a plan of three tasks one after another, of which the first has failed, and one beside them."""
    tasks = [("site", MARKUP), ("site", "upload"), ("site", "announce"), ("site", "x" * 200)]
    plan = RunPlan(code={}, tasks=tasks, needs=[[], [0], [1], [0]])
    return view_plan(run, plan, [TaskView(task=MARKUP, workflow="site", status="failed", message=MARKUP)])


class FakeRetries(RetryService):
    """Retries the failed runs that the fake daemon knows."""

    __setattr__ = object.__setattr__

    def __init__(self, service: FakeDaemonService) -> None:
        self.service = service
        self.changed = ""

    async def prospect(self, run: Run, *, is_repeated: bool = False) -> Prospect:
        if run.outcome is not Outcome.FAILED:
            raise Refused(f"run {run.id} can't be retried: it succeeded")
        return Prospect(first="upload", taken_over=1, changed=self.changed)

    async def retry(self, run_id: RunId, *, anyway: bool = False, key: str | None = None) -> tuple[RunRetried, bool]:
        self.service.note(f"retry run {run_id}{' anyway' if anyway else ''}")
        return RunRetried(
            run=self.service.next_id, job=PRICES, retry_of=run_id, taken_over=1, first_task="upload"
        ), False


def unsent_message(number: int, job: JobId = PRICES) -> QueuedMessage:
    return QueuedMessage(
        id=number,
        job=job,
        target=Target(Channel.WEBHOOK, "https://hooks.example/in"),
        payload=b"{}",
        delivery="x",
        created_ms=NOW_MS,
        next_ms=NOW_MS,
        attempts=3,
        error="answered 500",
        dead_ms=NOW_MS,
    )


class FakeMaintenance(when.MaintenanceService):
    """Two rules: all is in it now, prices is each night."""

    __setattr__ = object.__setattr__
    rules: Sequence[MaintenanceRule] = (
        MaintenanceRule(Once(NOW_MS - 60_000, NOW_MS + 60_000), text="reboot"),
        MaintenanceRule(Recurring("0 3 * * *", "UTC", 7_200_000), ("prices",)),
    )

    def __init__(self, story: list[str]) -> None:
        self.story = story

    def until(self, job: JobId) -> int | None:
        return NOW_MS + 60_000

    async def begin(self, for_ms: int, by: str, *, jobs: Sequence[str], tags: Sequence[str], text: str) -> int:
        self.story.append(f"maintenance begin {for_ms} {' '.join((*jobs, *tags))} {text} by {by}")
        return 1

    async def end(self, window: int) -> None:
        self.story.append(f"maintenance end {window}")

    async def view(self, days: int = when.USUAL_DAYS, may_see: MaySee = anything) -> when.MaintenanceView:
        jobs = [job.id for job in three_jobs()]
        return run_at_once(when.view_maintenance(self.rules, jobs, NOW_MS, NOW_MS + days * DAY_MS, may_see))


class CrowdedCalendar(when.CalendarService):
    """A day in which many jobs start at three o'clock, and gaps whose texts hold markup."""

    __setattr__ = object.__setattr__

    def __init__(self, jobs: int = 3, gaps_known: int = 3) -> None:
        self.jobs, self.gaps_known = jobs, gaps_known

    async def day_ahead(self, may_see: MaySee = anything) -> when.DayAhead:
        three = next(hour for hour in range(24) if (NOW_MS // HOUR_MS + hour) % 24 == 2)  # in Berlin
        names = [PRICES, BACKUP, *(JobId(f"job-{n:03}") for n in range(2, self.jobs))][: self.jobs]
        planned = [
            make_planned(name, Every(period_ms=86_400_000), NOW_MS + three * HOUR_MS - 86_400_000 + n)
            for n, name in enumerate(names)
            if may_see(name)
        ]
        for job in planned:
            job.spec = replace(job.spec, name=f"{job.id} {MARKUP}")
        return run_at_once(when.day_ahead(planned, NOW_MS))

    async def gaps(
        self,
        job: JobId | None = None,
        *,
        since_ms: int | None = None,
        limit: int = 50,
        before: RunId | None = None,
        may_see: MaySee = anything,
    ) -> when.GapPage:
        outcomes = (Outcome.MISSED, Outcome.SKIPPED, Outcome.PAUSED, Outcome.LOST)
        gaps = [
            when.view_gap(
                make_run(n, outcome=outcomes[n % 4], reason=MARKUP, count=n, last_due_ms=NOW_MS),
                MARKUP,
                run_views.brief(make_run(n + 1)) if n % 2 else None,
            )
            for n in range(self.gaps_known, 0, -1)
            if (before is None or n < before) and job in (None, PRICES) and may_see(PRICES)
        ]
        more = gaps[limit - 1].run if len(gaps) > limit else None
        return when.GapPage(gaps=gaps[:limit], count=sum(gap.count for gap in gaps), before=more)


def two_channels() -> AlertSettings:
    """Their addresses hold secrets."""
    return AlertSettings(
        channels={
            "ops": AlertChannelSettings(name="ops", webhook="https://me:s3cret@example.org:8443/hook/T0KEN?k=1"),
            "phone": AlertChannelSettings(name="phone", url="ntfy://my-s3cret-topic", level=Level.CRITICAL),
        }
    )


async def try_out(channel: str, _now_ms: int) -> Attempt:
    """One channel takes messages, one refuses them, one has a template that fails, and there is no other."""
    attempts = {
        "ops": Attempt(),
        "phone": Attempt(DeliveryFailure(reason="answered 401")),
        "mail": Attempt(template_problem="title: no"),
    }
    if channel not in attempts:
        raise Absent(f"there is no channel {channel}")
    return attempts[channel]


class FakeOutbox(OutboxSender):
    def __init__(self, service: FakeDaemonService) -> None:
        self.service = service

    async def counts(self) -> Backlog:
        dead = sum(message.dead_ms is not None for message in self.service.unsent)
        return Backlog(len(self.service.unsent) - dead, None, dead)

    async def retry(self, message: int | None) -> list[int]:
        self.service.note(f"retry {message}")
        return [each.id for each in self.service.unsent if message in (None, each.id)]

    async def unsent(self, job: JobId | None, limit: int, *, before: int | None = None) -> list[QueuedMessage]:
        wanted = (each for each in self.service.unsent if job in (None, each.job))
        return [each for each in wanted if before is None or each.id < before][:limit]


class AllServices(JobService, Services):
    """The jobs of a daemon, and each other service as an attribute; found by its class as well."""

    def __getitem__(self, kind: type[T]) -> T:
        parts = (self, *vars(self).values())
        return next(part for part in parts if isinstance(part, kind))

    addresses = ADDRESSES

    @property
    def catalogue(self) -> JobService:  # type: ignore[override]
        return self

    async def outlook(self, principal: Principal) -> Outlook:
        return await outlook_of(self[OverviewService], self[HealthService], self[IncidentService])(principal)

    def is_starting(self) -> bool:
        return self[ReadinessService].stage == STARTING


class FakeRuns(RunService):
    """Does what the fake daemon says."""

    def __init__(self, service: FakeDaemonService) -> None:
        self.is_traced = False
        self.start, self.cancel, self.run_once = service.start, service.cancel, service.run_once  # type: ignore[method-assign]


class FakeRecords(RecordSearch):
    """Lists what the fake daemon has kept."""

    __setattr__ = object.__setattr__

    def __init__(self, service: FakeDaemonService) -> None:
        self.service = service

    async def newest(self, job: JobId | None, *, limit: int, before_ns: int | None) -> list[RecordView]:
        wanted = (view for view in self.service.kept if job in (None, view.job_id))
        return [view for view in wanted if before_ns is None or view.timestamp < before_ns][:limit]


class FakeDaemonService(AllServices):
    def __init__(
        self,
        *,
        root: Path | None = None,
        vitals: Vitals | None = None,
        events: Sequence[RunEvent] = (),
        known_runs: Sequence[Run] = (),
        found: Sequence[RecordView] = (),
        unsent: Sequence[QueuedMessage] = (),
        refusal: SpywebError | None = None,
        late_refusal: SpywebError | None = None,
        trouble: Exception | None = None,
        next_id: RunId | None = NINTH,
        tasks: Mapping[RunId, list[TaskView]] | None = None,
        state: StateService | None = None,
        api_key: str | None = None,
        clock: Clock | None = None,
        hub: EventHub | None = None,
    ) -> None:
        self.root = root or Path()
        self.clock = clock = clock or FakeClock()
        store = MemoryStore(clock)
        self.access = AccessService(store.keys, clock, api_key)
        self.live, self.reloader, self.timezone = two_live_jobs(), FakeReloader(self.root), "Europe/Berlin"
        self.vms_of = lambda _job: 0
        self.health_service = HealthService(
            live=self.live, states=self.states, vitals=lambda: self.measured, settings=lambda: self.settings
        )
        self.nodes = NodesService(live=self.live)
        self.node_of = self.nodes.node_of
        self.own_sockets = OwnSockets()
        self.trail = AuditService(store.audit, clock)
        self.store = store
        self.stored_incidents = store.incidents
        self.incidents = IncidentService(store.incidents, clock)
        self.alert_settings = two_channels()
        self.tallies = AttemptTallies(clock)
        self.ack_links = AckLinks("https://spyweb.example.org", lambda: self.alert_settings)
        self.channels = ChannelService(
            send_test=try_out, store=store, settings=lambda: self.alert_settings, tallies=self.tallies.of, clock=clock
        )
        self.events = hub or EventHub(clock, "b00t", lambda _hub, _topic: lambda: None)
        self.changes = ChangeHub(events=self.events, clock=clock, last_lines=no_lines)
        self.hooks: HookService = FakeHooks(self)
        self.state = state or make_state()
        self.measured = vitals or make_vitals()
        self.metrics, self.readiness = make_metrics(vitals=self.measured), make_readiness(vitals=self.measured)
        self.watched = list(events) or a_watched_run()
        self.known_runs = list(known_runs) or three_runs()
        self.kept = found  # newest first
        self.unsent = unsent  # newest first
        self.refusal = refusal  # of everything that changes something
        self.late_refusal = late_refusal  # of a watched run, after its events
        self.trouble = trouble  # of every question
        self.next_id = next_id
        self.tasks_of = tasks or {}
        self.outbox, self.workflows = FakeOutbox(self), WorkflowService(store)
        self.drift = make_drift(store, clock, {})
        self.overview = OverviewService(jobs=self, health=self.health_service, store=store)
        self.details = FakeDetails(self)
        self.running = FakeRuns(self)
        self.retries = FakeRetries(self)
        self.found: RecordSearch = FakeRecords(self)
        self.story: list[str] = []
        self.past = FakePast(self)
        self.calendar: when.CalendarService = CrowdedCalendar()
        self.maintenance = FakeMaintenance(self.story)
        self.status = StatusService(
            lambda: self.settings.status_page, self.live, store, MaintenanceCalendar, clock, self.root, "UTC"
        )
        self.uptime = UptimeService(store=store.uptime, clock=clock)
        self.run_audit = RunAuditService(store=store, clock=clock, live=self.live)
        self.closed = asyncio.Event()  # nobody watches the run any more

    async def all_jobs(self) -> list[JobView]:
        if self.trouble:
            raise self.trouble
        return self.jobs()

    async def next_runs(
        self, job: JobId | None, count: int, *, until_ms: int | None = None, may_see: MaySee = anything
    ) -> list[NextRun]:
        due = (NOW_MS + 30_000 * n for n in range(1, count + 1))
        shown = job or PRICES
        until_ms = NOW_MS * 2 if until_ms is None else until_ms
        return [next_run(shown, each, "Europe/Berlin") for each in due if each < until_ms and may_see(shown)]

    async def cancel(self, run: RunId) -> Run:
        self.note(f"cancel {run}")
        found = await self.past.find(run)
        if found is None:
            raise Absent(f"there is no run {run}")
        return found

    async def start(
        self,
        job: JobId,
        payload: object = None,
        key: str | None = None,
        parent: str = "",
        values: Mapping[str, object] | None = None,
    ) -> StartedRun:
        given = f" with {payload}" if payload is not None else ""
        self.note(f"trigger {job}{given}" + (f" and {dict(values)}" if values else ""))
        return StartedRun(run=self.next_id)

    async def pause(self, job: JobId) -> JobPaused:
        self.note(f"pause {job}")
        return JobPaused(job=job, paused=True, was_paused=self.story[-2:-1] == [f"pause {job}"])

    async def resume(self, job: JobId) -> JobPaused:
        self.note(f"resume {job}")
        was_paused = self.story[-2:-1] == [f"pause {job}"]
        return JobPaused(job=job, paused=False, was_paused=was_paused, next_due_ms=NOW_MS + 30_000)

    async def run_once(
        self,
        job: JobId,
        *,
        debug: bool = False,
        audit: bool = False,
        dry_run: bool = False,
        values: Mapping[str, object] | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        kind = "debug" if debug else "audit" if audit else "dry run" if dry_run else "run"
        self.note(f"{kind} {job}{f' with {values}' if values else ''}")
        try:
            for event in self.watched:
                yield event
            if self.late_refusal:
                raise self.late_refusal
        finally:
            self.story.append("closed")
            self.closed.set()

    def note(self, what: str) -> None:
        self.story.append(what)
        if self.refusal:
            raise self.refusal


class QuietAudit(AuditService):
    """Logs nothing: beside a command, which is run in the same process, that would be part of its answer."""

    def tell(self, line: NewAuditLine) -> None: ...


def quiet_audit() -> AuditService:
    clock = FakeClock()
    return QuietAudit(MemoryStore(clock).audit, clock)


def with_key(service: FakeDaemonService, key: str | None) -> FakeDaemonService:
    """Give a service a key that permits all; none: it has no key at all."""
    clock = FakeClock()
    service.access = AccessService(MemoryStore(clock).keys, clock, key)
    return service


def refused(text: str = "prices is running") -> Refused:
    return Refused(text)
