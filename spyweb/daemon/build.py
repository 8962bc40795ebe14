"""Build a daemon: the runtime of runs, their triggers, the reloader of files, the node, the services for clients."""

from __future__ import annotations

import asyncio
import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import Path

import structlog
from msgspec import Struct

from spyweb import __version__, descriptors
from spyweb.alerts.channel_check import ChannelChecker
from spyweb.alerts.channels import ChannelSecrets
from spyweb.alerts.measures import IncidentHooks, JobMeasures
from spyweb.alerts.signs import Conditions, SignWatch
from spyweb.alerts.watcher import AlertWatcher
from spyweb.clock import Clock
from spyweb.cluster.node import MOST_POOLS, ClusterNode
from spyweb.daemon.heartbeat import Heartbeat
from spyweb.daemon.runtime import JobRuntime, keep_history, note_line, open_runtime
from spyweb.daemon.services import answer_for_all, build_services
from spyweb.daemon.systemd import Notifier, from_environment
from spyweb.endpoints import Endpoints
from spyweb.errors import PoolError, Problem, ScriptError
from spyweb.incidents.truth import CHANNEL
from spyweb.logs.job import JobLogs
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Procedure, Request
from spyweb.model import Ending, JobId, JobSpec, Outcome, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.world import Call, World
from spyweb.reload.proof import Prover
from spyweb.reload.swap import Reloader, Renames, ServerReloader, SettingsFile
from spyweb.runs.pings import PingRuns
from spyweb.runs.triggers import Triggers
from spyweb.scheduler.scheduler import Scheduler
from spyweb.scheduler.slots import SlotWork
from spyweb.scheduler.timers import Timers
from spyweb.settings.sections import ServerSettings, Settings, StatusPageSettings
from spyweb.specs.parse import alerts_without_file
from spyweb.specs.server_file import FOLDER, SERVER, find_server
from spyweb.stalls import LoopWatch
from spyweb.store.model.entries import job_namespace
from spyweb.store.model.nodes import Node
from spyweb.subjects.health.views import ChoreHealth, Vitals, find_parts
from spyweb.subjects.nodes.service import NodesService
from spyweb.subjects.status.service import StatusService
from spyweb.subjects.when.service import MaintenanceService
from spyweb.views.jobs import join_problems
from spyweb.web.access.keys import AccessService
from spyweb.web.api.services import Services
from spyweb.web.app import Site
from spyweb.web.connections import ConnectionLimiter, tcp_limits
from spyweb.web.endpoints import FOLDER as UI_FOLDER
from spyweb.web.serve import TcpListeners, url_of

LOG, ERRORS = "server.log", "error.log"

BOOT = Path("/proc/sys/kernel/random/boot_id")  # unlike /etc/machine-id, no two machines have the same by an image
DIGEST_BYTES = 16
LIMIT_MS = 30_000  # a file of a monitor that takes longer to load would hold up every other change
_WHERE = re.compile(r"(?s)(?P<file>[^\n]*?):(?P<line>\d+): (?P<reason>.*)")

log = structlog.get_logger()


class Server(Struct, frozen=True, kw_only=True):
    """The endpoints of a daemon, and the reloader that keeps them up to date with the files."""

    endpoints: Endpoints
    reloader: ServerReloader
    prover: Prover  # the same for the jobs
    listeners: TcpListeners

    def site(self, settings: Settings, status: StatusService) -> Site:
        root = settings.root
        return Site(
            endpoints=self.endpoints,
            ui=root / UI_FOLDER,
            hosts=settings.server.hosts,
            has_content=lambda: has_content(root, status.settings()),
            answer_first=[status.answer_first],
        )


class Daemon(Struct, frozen=True, kw_only=True):
    """All parts of a daemon: the runtime that every run needs, and the parts that only a daemon has."""

    runtime: JobRuntime
    timers: Timers
    scheduler: Scheduler
    triggers: Triggers
    alerts: AlertWatcher
    channel_checker: ChannelChecker
    signs: SignWatch
    reloader: Reloader
    server: Server
    chores: dict[str, ChoreHealth] = {}  # by name, as of the last time
    heartbeat: Heartbeat
    pings: PingRuns
    node: ClusterNode | None  # None: it is alone on its database
    services: Services
    notifier: Notifier
    stop: asyncio.Event  # set when the daemon is to end


async def build_daemon(stack: AsyncExitStack, file: SettingsFile, clock: Clock, *, repair: bool = False) -> Daemon:
    """Build every part after the parts that it needs; none runs yet.  The stack takes them down in reverse."""
    runtime = await open_runtime(stack, file.current, clock, file=file, repair=repair)
    runtime.world.stalls.install(asyncio.get_running_loop())
    stack.enter_context(LoopWatch(runtime.world.stalls, clock))
    await join_cluster(runtime)
    daemon = assemble(runtime, file, await open_server(stack, runtime))
    if daemon.node:
        beats = runtime.tasks.create_task(daemon.node.keep_beating(), name="beat")
        stack.callback(beats.cancel)
        await answer_for_all(stack, runtime, daemon.services, daemon.node)
    await daemon.services[AccessService].load()
    await daemon.services[MaintenanceService].load()
    await runtime.sending.ack_links.load(runtime.store.keys)
    return daemon


def assemble(runtime: JobRuntime, file: SettingsFile, server: Server) -> Daemon:
    store, live, runner, clock = runtime.store, runtime.live, runtime.runner, runtime.clock
    timers = Timers(clock)

    async def keeps_values(job: JobId) -> bool:
        namespace = job_namespace(job)
        return namespace in await store.values.namespaces(namespace)

    scheduler = Scheduler(timers=timers, live=live, runner=runner, runs=store.runs, clock=clock)
    reloader = Reloader(
        root=runtime.settings.root,
        settings_file=file,
        live=live,
        scheduler=scheduler,
        runner=runner,
        prover=server.prover,
        server=server.reloader,
        renames=Renames(keeps_values),
        clock=clock,
    )
    live.on_linked(lambda: keep_history(live, store, file.current))
    watcher = build_alerts(runtime, scheduler, reloader)
    checker = ChannelChecker(
        settings=lambda: file.current.alerts,
        secrets=ChannelSecrets(runtime.settings.root, os.environ),
        helper=runtime.sending.helper,
        clock=clock,
        find_missing_desktop=runtime.world.desktop.find_missing,
        tell=watcher.found_in_channel,
        is_mine=lambda channel: watcher.is_mine(f"{CHANNEL}{channel}"),
    )
    live.on_linked(checker.wake)
    started = clock.monotonic()

    def vitals() -> Vitals:
        return take_vitals(daemon, started)

    pings = PingRuns(runner=runner, live=live, write_line=runtime.job_logs.write, clock=clock)
    heartbeat = Heartbeat(
        settings=lambda: file.current.heartbeat,
        http=runtime.world.http,
        store=store,
        lag_ms=lambda: max(scheduler.lag_ms, scheduler.refused_ms),
        answering=lambda: runtime.pool.stats().answering,
        environ=os.environ,
        clock=clock,
    )
    daemon = Daemon(
        runtime=runtime,
        timers=timers,
        scheduler=scheduler,
        alerts=watcher,
        channel_checker=checker,
        signs=SignWatch(
            watcher=watcher,
            live=live,
            incidents=store.incidents,
            runs=store.runs,
            conditions=lambda: find_conditions(vitals(), reloader.broken),
            clock=clock,
        ),
        triggers=Triggers(store=store, live=live, runner=runner, clock=clock),
        reloader=reloader,
        server=server,
        heartbeat=heartbeat,
        pings=pings,
        node=build_node(runtime, scheduler, pings),
        services=build_services(runtime, scheduler, reloader, watcher, pings, vitals),
        notifier=from_environment(os.environ),
        stop=asyncio.Event(),
    )
    return daemon


def build_alerts(runtime: JobRuntime, scheduler: Scheduler, reloader: Reloader) -> AlertWatcher:
    """Build the parts that turn ends of runs into incidents; messages follow the current config.toml."""
    watcher = AlertWatcher(
        incidents=runtime.store.incidents,
        live=runtime.live,
        settings=lambda: reloader.settings.alerts,
        measures=JobMeasures(runtime.live, scheduler.pause_together, runtime.runner.start_by_hand, runtime.store.runs),
        clock=runtime.clock,
    )
    runtime.runner.judge = watcher.judge
    watcher.hooks = IncidentHooks(runtime.store.incidents, runtime.live, runtime.runner, runtime.clock)
    runtime.sending.delivery.attempted = watcher.attempted
    watcher.without_file = lambda job: alerts_without_file(job, reloader.settings)
    return watcher


def find_conditions(vitals: Vitals, broken: Mapping[JobId, Sequence[Problem]]) -> Conditions:
    """Return the troubles that `jobs` and health show."""
    parts = find_parts(vitals)
    return Conditions(
        broken={job: join_problems(problems) for job, problems in broken.items()},
        quarantined=vitals.pool.quarantined,
        held_back={JobId(job): why for job, why in vitals.held_back.items()},
        pools=vitals.cluster.unserved if vitals.cluster else (),
        parts={part: trouble.timeless or trouble.text for part, trouble in parts.items()},
        lasting_ms={part: trouble.lasting_ms for part, trouble in parts.items()},
    )


def take_vitals(daemon: Daemon, started: float) -> Vitals:
    """Return the measurements that `spyweb health` shows."""
    runtime, scheduler, server = daemon.runtime, daemon.scheduler, daemon.server
    world, live, clock = runtime.world, runtime.live, runtime.clock
    return Vitals(
        version=__version__,
        pid=os.getpid(),
        uptime_s=clock.monotonic() - started,
        scheduler_lag_ms=scheduler.lag_ms,
        store=runtime.store.stats(),
        pool=runtime.pool.stats(),
        storage_errors=world.metrics.storage_errors.total(),
        storage_error_at_ms=world.metrics.storage_error_at_ms,
        refused_ms=scheduler.refused_ms,
        dead_messages=runtime.outbox_sender.dead,
        troubled_channels=daemon.alerts.health.troubled,
        server_is_broken=server.endpoints.problem is not None,
        refused_connections=server.listeners.connections.warning,
        descriptors_left=descriptors.left(),
        server_url=server.listeners.content.url if server.listeners.content else "",
        dashboard_url=server.listeners.dashboard.url if server.listeners.dashboard else "",
        loop=world.stalls.stats,
        held_back={job: why for job, why in world.stalls.refused().items() if live.find(JobId(job))},
        chores=list(daemon.chores.values()),
        heartbeat=daemon.heartbeat.health,
        cluster=daemon.services[NodesService].vitals(),
        now_ms=clock.now_ms(),
    )


async def join_cluster(runtime: JobRuntime) -> None:
    """Become a node that owns nothing yet, where the database is for several.  Raises Refused and StoreError."""
    own, settings, ownership = runtime.settings.cluster, runtime.settings, runtime.live.ownership
    if runtime.store.nodes is None:
        return
    node = Node(
        name=own.name,
        url=own.url or reachable_url(settings.server, has_content(settings.root, settings.status_page)),
        version=__version__,
        labels=own.labels,
        is_standby=own.standby,
        only_labels=own.only_labels,
        lease_ms=own.lease_ms,
    )
    ownership.owned, ownership.trusted_until = set(), 0
    await runtime.store.nodes.join(node, place_of(settings.daemon.data_dir))


def has_content(root: Path, page: StatusPageSettings | None = None) -> bool:
    return page is not None or (root / UI_FOLDER).is_dir() or find_server(root) is not None


def reachable_url(server: ServerSettings, is_beside: bool = False) -> str:
    """Return where other machines reach the dashboard of this one; empty where they do not.

    It is beside the project's content, if there is any, on the next port.
    """
    host, port = server.host, server.dashboard_port or server.port + is_beside
    with suppress(ValueError):
        address = ip_address(host)
        host = "" if address.is_loopback else platform.node() if address.is_unspecified else host
    is_reachable = server.enabled and host not in ("", "localhost")
    return url_of(host, port, is_tls=bool(server.tls_cert)) if is_reachable else ""


def place_of(data_dir: Path) -> bytes:
    """Return what tells this data directory from those of other nodes."""
    boot = BOOT.read_text() if BOOT.is_file() else ""
    place = f"{boot}\n{platform.node()}\n{data_dir.resolve()}"
    return blake2b(place.encode("utf-8", "surrogateescape"), digest_size=DIGEST_BYTES).digest()


def build_node(runtime: JobRuntime, scheduler: Scheduler, pings: PingRuns) -> ClusterNode | None:
    """Build the node that has joined; None for a daemon that is alone on its database."""
    store, live, own = runtime.store, runtime.live, runtime.settings.cluster
    if store.nodes is None:
        return None
    work = SlotWork(live=live, scheduler=scheduler, runner=runtime.runner, pings=pings, runs=store.runs)
    node = ClusterNode(nodes=store.nodes, ownership=live.ownership, work=work, clock=runtime.clock, settings=own)

    def look_at_files() -> None:
        files = "\n".join(f"{job.id} {job.digest}" for job in sorted(live, key=lambda job: job.id))
        node.folder = blake2b(files.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        node.pools = frozenset(job.pool for job in live)
        node.wanted = frozenset(job.pool for job in live if job.spec.enabled)
        if len(node.pools) > MOST_POOLS:
            log.error("jobs ask for too many different labels and nodes: some do not run", most=MOST_POOLS)

    live.on_linked(look_at_files)
    store.on_fenced(node.be_over)
    return node


async def open_server(stack: AsyncExitStack, runtime: JobRuntime) -> Server:
    """Build the endpoints and their reloader; nothing is answered before the reloader has read the files."""
    root, clock = runtime.settings.root, runtime.clock
    lines = await stack.enter_async_context(JobLogs(root, clock, LOG))
    failures = await stack.enter_async_context(JobLogs(root, clock, ERRORS))

    def host_for(code: Code, run: RunId) -> Host:
        def write_line(level: str, text: bytes) -> None:
            if level != "print":
                lines.write(FOLDER, level, text)
            note_line(SERVER, run, level, text)

        call = Call(
            world=runtime.world,
            job=SERVER,
            run=run,
            generation=code.generation,
            folder=FOLDER,
            memory_limit=code.memory_limit,
            log=write_line,
            policy=runtime.settings.server.permissions,
            node=runtime.settings.cluster.name,
        )
        return OpDispatcher(call)

    def note_failure(asked: str, reason: str) -> None:
        failures.write(FOLDER, "error", f"{asked}: {reason}")
        log.error("an endpoint failed", asked=asked, reason=reason)

    endpoints = Endpoints(
        pool=runtime.pool,
        clock=clock,
        tasks=runtime.tasks,
        host_for=host_for,
        run_ended=runtime.world.call_ended,
        note_failure=note_failure,
        is_trusted=lambda: runtime.live.ownership.is_trusted,
    )
    stack.push_async_callback(endpoints.close, 0)
    prover = Prover(
        pool=runtime.pool,
        sources=runtime.world.sources,
        load=partial(execute, runtime.pool, runtime.world, runtime.job_logs),
        find_selector_problem=runtime.world.extractor.find_selector_problem,
        clock=clock,
    )
    reloader = ServerReloader(
        root=root,
        endpoints=endpoints,
        prover=prover,
        workers=runtime.settings.daemon.workers,
        policy=runtime.settings.server.permissions,
    )
    listeners = TcpListeners(runtime.settings.server, ConnectionLimiter(tcp_limits(), clock))
    return Server(endpoints=endpoints, reloader=reloader, prover=prover, listeners=listeners)


async def execute(pool: Pool, world: World, job_logs: JobLogs, spec: JobSpec, code: Code) -> None:
    """Execute the files.  Raises ScriptError when one fails, PoolError when the execution was cut short."""

    def job_log(level: str, text: bytes) -> None:
        if level != "print":
            job_logs.write(spec.folder, level, text, run)

    run = pool.new_id()
    call = Call(
        world=world,
        job=spec.id,
        run=run,
        generation=code.generation,
        folder=spec.folder,
        memory_limit=spec.memory_limit,
        agent=spec.agent,
        on_store_error=spec.on_store_error,
        log=job_log,
        policy=spec.policy,
        node=spec.node,
    )
    request = Request(
        run=run,
        code=code,
        timeout_ms=min(spec.timeout_ms, LIMIT_MS),
        cpu_limit_ms=spec.cpu_limit_ms,
        procedure=Procedure.LOAD,
    )
    try:
        ending = await pool.run(request, OpDispatcher(call))
    finally:
        world.call_ended(run)
    refuse_failure(code, ending)


def refuse_failure(code: Code, ending: Ending) -> None:
    """Raise the error of an execution that failed, with the file and line it names."""
    if ending.outcome is Outcome.SUCCESS:
        return
    if ending.outcome is not Outcome.FAILED:
        raise PoolError(f"{code.chunk} was not executed to its end: {ending.reason}")
    where = _WHERE.fullmatch(ending.reason)
    if where is None:
        raise ScriptError(code.chunk, None, f"failed while it was loaded: {ending.reason}")
    file, line = code.chunk_shown_as(where["file"]), int(where["line"])
    raise ScriptError(file, line, f"failed while it was loaded: {where['reason']}")
