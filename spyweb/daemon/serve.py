"""The daemon's life: build, load, serve, stop."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from spyweb import __version__, logs, notify
from spyweb.clock import Clock, RealClock
from spyweb.daemon.build import Purpose, Runtime, build, keep_history, owned_tasks
from spyweb.daemon.loop_watch import watch_loop
from spyweb.daemon.report import report_start, show
from spyweb.daemon.retention import SteadyTime
from spyweb.daemon.server import Server, open_server
from spyweb.daemon.service import Office
from spyweb.daemon.signals import catch_signals
from spyweb.daemon.state_service import StateOffice
from spyweb.errors import STORE_REFUSED, LockHeld, NoAccess, Refused
from spyweb.logs.refusals import tell_refusal
from spyweb.model import JobId
from spyweb.reload.settings_file import SettingsFile
from spyweb.reload.swap import Reloader
from spyweb.reload.watch import Watcher
from spyweb.runs.triggers import Triggers
from spyweb.scheduler.scheduler import Scheduler
from spyweb.scheduler.timers import ApschedulerTimers
from spyweb.settings import LogLevel, Settings, load_settings
from spyweb.settings.units import DAY_MS
from spyweb.store.interchange.foreign_spyweb import DATA_FILE, describe_data_file
from spyweb.store.lock import Lock, hold_lock
from spyweb.views.health import SCARCE_DESCRIPTORS, Vitals, find_problems
from spyweb.web import descriptors
from spyweb.web.serve import PrivateSocket, serve_socket, serve_tcp, url_of

log = structlog.get_logger()

PRUNE_SECONDS = 600.0
LAST_SENDING_S = 2.0  # for messages that are just being sent at a stop: what is cut off is sent twice
DEAD_KEPT_MS = 7 * DAY_MS  # messages that were given up, for whoever looks for them
STATUS_SECONDS = 10.0
FILES_SECONDS = 10.0
SWITCH = 0.0005  # seconds that a thread waits for another to let go of the interpreter
GARBAGE = 20_000  # objects between two looks for cycles, of which a run leaves none


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the daemon is started with."""

    root: Path
    flags: Mapping[str, object] = field(default_factory=dict)  # settings given on the command line
    repair: bool = False  # move a damaged database aside


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The parts that only a daemon has, beside those that every run needs."""

    parts: Runtime
    scheduler: Scheduler
    triggers: Triggers
    reloader: Reloader
    server: Server
    office: Office
    notifier: notify.Notifier
    stop: asyncio.Event


async def serve(options: Options) -> None:
    """Run until told to stop.  Raises a SpywebError with one clear line when it can't start."""
    descriptors.raise_limit()
    settings = read_settings(options)
    clock = RealClock()
    logs.set_up(
        level=settings.daemon.log_level,
        form=settings.daemon.log_format,
        clock=clock,
        secrets=[settings.server.api_key or ""],
    )
    async with AsyncExitStack() as stack:
        lock = stack.enter_context(hold_lock(settings.daemon.data_dir, root=options.root, clock=clock))
        url = server_url(settings)
        purpose = Purpose(workers=settings.daemon.workers, server_url=url, repair=options.repair)
        parts = await build(stack, settings, clock, purpose)
        parts.world.stalls.install(asyncio.get_running_loop())
        stack.enter_context(watch_loop(parts.world.stalls, clock))
        daemon = assemble(parts, options, await open_server(stack, parts))
        private = await open_doors(stack, daemon)
        keep_going: list[asyncio.Task[None]] = []
        if await unless_set(daemon.stop, load_jobs(daemon)):
            tune_interpreter()
            background = await stack.enter_async_context(owned_tasks())
            keep_going = start_background(daemon, background)
            keeping = repeat(clock, FILES_SECONDS, partial(keep_files, lock, private))
            keep_going.append(background.create_task(keeping, name="keep the lock and the socket"))
            announce(daemon, url)
            await daemon.stop.wait()
        await wind_down(daemon)
        for task in keep_going:
            task.cancel()


async def unless_set(event: asyncio.Event, story: Coroutine[object, object, None]) -> bool:
    """Whether it came to its end; it is cancelled where the event is set before that."""
    async with owned_tasks() as tasks:
        work, asked = tasks.create_task(story), tasks.create_task(event.wait())
        await asyncio.wait([work, asked], return_when=asyncio.FIRST_COMPLETED)
        is_done = work.done()
        work.cancel()
        asked.cancel()
    return is_done


def read_settings(options: Options, first: Settings | None = None) -> Settings:
    """Port 0 becomes one that is free; read again while the daemon runs, the one that it has found at `first`."""
    settings = load_settings(options.root, environ=os.environ, flags=options.flags)
    server = settings.server
    if not server.enabled or server.port:
        return settings
    port = first.server.port if first else free_port(server.host)
    return replace(settings, server=replace(server, port=port))


def free_port(host: str) -> int:
    """For port 0: scripts are told the URL before the server listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise Refused(f"can't listen on {host}: {error.strerror}") from error
        return int(probe.getsockname()[1])


def assemble(parts: Runtime, options: Options, server: Server) -> Daemon:
    clock, live, runs = parts.clock, parts.live, parts.store.runs
    scheduler = Scheduler(timers=ApschedulerTimers(clock), live=live, runner=parts.runner, runs=runs, clock=clock)
    reloader = open_reloader(parts, options, scheduler, server)
    live.on_linked(lambda: keep_history(parts, reloader.settings))
    stop = asyncio.Event()
    catch_signals(stop.set, reloader.wake)
    return Daemon(
        parts=parts,
        scheduler=scheduler,
        triggers=Triggers(store=parts.store, live=live, runner=parts.runner, clock=clock),
        reloader=reloader,
        server=server,
        office=open_office(parts, options, scheduler, reloader, server),
        notifier=notify.from_environment(os.environ),
        stop=stop,
    )


def open_reloader(parts: Runtime, options: Options, scheduler: Scheduler, server: Server) -> Reloader:
    """Build what keeps the jobs and the server what the files say."""
    read = partial(read_settings, options, parts.settings)
    return Reloader(
        root=options.root,
        settings_file=SettingsFile(options.root, read, parts.settings),
        live=parts.live,
        scheduler=scheduler,
        runner=parts.runner,
        prover=server.prover,
        server=server.reloader,
        clock=parts.clock,
    )


def open_office(parts: Runtime, options: Options, scheduler: Scheduler, reloader: Reloader, server: Server) -> Office:
    """What answers the command line and the HTTP door."""
    return Office(
        root=options.root,
        timezone=parts.settings.daemon.timezone,
        live=parts.live,
        runner=parts.runner,
        scheduler=scheduler,
        reloader=reloader,
        runs_record=parts.store.runs,
        found=parts.store.records,
        courier=parts.courier,
        state=StateOffice(store=parts.store, clock=parts.clock, limits=parts.settings.state),
        clock=parts.clock,
        vitals=partial(vitals, parts, scheduler, server, parts.clock.monotonic()),
        vms_of=parts.pool.loads_of,
    )


def server_url(settings: Settings) -> str | None:
    """Where the server will listen; scripts are told before it does."""
    return url_of(settings.server.host, settings.server.port) if settings.server.enabled else None


async def open_doors(stack: AsyncExitStack, daemon: Daemon) -> PrivateSocket:
    server = daemon.parts.settings.server
    private = await stack.enter_async_context(serve_socket(daemon.office, daemon.parts.settings.daemon.data_dir))
    if server.enabled:
        site = daemon.server.site(daemon.parts.settings.root)
        door = serve_tcp(
            daemon.office,
            host=server.host,
            port=server.port,
            api_key=server.api_key,
            site=site,
            connections=daemon.server.connections,
        )
        await stack.enter_async_context(door)
    return private


async def keep_files(lock: Lock, private: PrivateSocket) -> None:
    """Make the lock file and the socket again where somebody has removed them."""
    try:
        if lock.restore():
            log.warning("the lock file was removed, and is made again")
        if await private.restore():
            log.warning("the socket was removed, and is made again", path=str(private.path))
    except (LockHeld, NoAccess, OSError) as error:
        log.error("the lock file or the socket was removed, and can't be made again", reason=str(error))


async def load_jobs(daemon: Daemon) -> None:
    """The files as they are now, then what an earlier daemon left open."""
    runs = daemon.parts.store.runs
    left_open = await runs.open()
    await daemon.reloader.load(await runs.cursors())
    latest = await runs.latest()
    for job in daemon.parts.live:
        job.last = latest.get(job.id)
    await daemon.parts.runner.take_up(left_open)


def tune_interpreter() -> None:
    """What is loaded now stays: looking through ten thousand jobs for garbage would hold the loop up for 100 ms.

    And the writer's thread takes the interpreter back for each statement of a batch.  On busy processors it waited for
    the loop up to the whole interval each time: at the usual 5 ms the p99 of lateness was twice as long.
    """
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def start_background(daemon: Daemon, tasks: TaskGroup) -> list[asyncio.Task[None]]:
    settings, clock, store = daemon.parts.settings, daemon.parts.clock, daemon.parts.store
    sweep_s = settings.state.sweep_interval_ms / 1000
    watcher = Watcher(settings.root, [settings.daemon.data_dir], daemon.reloader.wake, clock)
    daemon.scheduler.start()
    ended_ms = [job.last.ended_ms for job in daemon.parts.live if job.last and job.last.ended_ms]
    steady = SteadyTime(clock, max(ended_ms, default=None))
    return [
        tasks.create_task(watcher.watch(), name="watch files"),
        tasks.create_task(daemon.reloader.keep_up(), name="reload"),
        tasks.create_task(daemon.scheduler.watch_the_clock(), name="watch the clock"),
        tasks.create_task(daemon.triggers.deliver(), name="hand out changes"),
        tasks.create_task(daemon.parts.courier.deliver(), name="deliver messages"),
        tasks.create_task(repeat(clock, PRUNE_SECONDS, partial(prune, daemon, steady)), name="prune"),
        # Expired entries are absent already: this gives their room back, and tells whoever asked for `expired`.
        tasks.create_task(repeat(clock, sweep_s, store.values.sweep), name="sweep expired state"),
        tasks.create_task(feed_watchdog(daemon), name="watchdog"),
    ]


def announce(daemon: Daemon, url: str | None) -> None:
    """Say what was found: to systemd, to the log, and on a terminal to whoever sits there."""
    if what := describe_data_file(daemon.parts.settings.root / DATA_FILE):
        log.warning(f"{DATA_FILE}: {what}")
    daemon.notifier.ready(status_line(daemon))
    settings, rights = daemon.parts.settings, daemon.parts.pool.stats().rights
    if not sys.stdout.isatty():
        log.info("started", version=__version__, jobs=len(daemon.parts.live), url=url, rights=list(rights))
    elif settings.daemon.log_level in (LogLevel.DEBUG, LogLevel.INFO):
        show(report_start(daemon.office, settings, url, rights))


async def wind_down(daemon: Daemon) -> None:
    """Start nothing more, let runs end within the grace, record the rest as stopped."""
    daemon.notifier.stopping()
    running = len(daemon.parts.live.running())
    log.info("stopping", running=running)
    daemon.scheduler.stop()
    daemon.triggers.stop()
    grace = daemon.parts.settings.daemon.shutdown_grace_ms / 1000
    await asyncio.gather(daemon.parts.runner.drain(grace), daemon.server.endpoints.close(grace))
    await daemon.parts.courier.wind_down(LAST_SENDING_S)
    log.info("stopped")


def vitals(parts: Runtime, scheduler: Scheduler, server: Server, started: float) -> Vitals:
    return Vitals(
        version=__version__,
        pid=os.getpid(),
        uptime_s=parts.clock.monotonic() - started,
        scheduler_lag_ms=scheduler.lag_ms,
        store=parts.store.stats(),
        pool=parts.pool.stats(),
        storage_errors=parts.world.metrics.storage_errors.total(),
        storage_error_at_ms=parts.world.metrics.last_storage_error.at_ms,
        refused_ms=scheduler.refused_ms,
        dead_messages=parts.courier.dead,
        server_is_broken=server.problem is not None,
        refused_connections=server.connections.warning,
        descriptors_left=descriptors.left(),
        loop=parts.world.stalls.stats,
        held_back={job: why for job, why in parts.world.stalls.refused().items() if parts.live.find(JobId(job))},
        now_ms=parts.clock.now_ms(),
    )


def status_line(daemon: Daemon) -> str:
    live = daemon.parts.live
    return f"{len(live)} jobs, {len(live.running())} running"


async def feed_watchdog(daemon: Daemon) -> None:
    """Only while the scheduler and the writer make progress; the loop does, or this would not run."""
    interval = min(daemon.notifier.watchdog_interval_s or STATUS_SECONDS, STATUS_SECONDS)
    told: list[str] = []
    was_scarce = False
    while True:
        await daemon.parts.clock.sleep(interval)
        was_scarce = warn_of_descriptors(was_scarce)
        problems = find_problems(daemon.scheduler.lag_ms, daemon.parts.store.stats())
        if problems != told:
            told = problems
            if problems:
                log.error("no progress", problems=problems)
        if problems:
            daemon.notifier.status("; ".join(problems))
            continue
        daemon.notifier.watchdog()
        daemon.notifier.status(status_line(daemon))


def warn_of_descriptors(was_scarce: bool) -> bool:
    """Log it, once, when hardly any are left; tell whether that is so."""
    left = descriptors.left()
    if left < SCARCE_DESCRIPTORS and not was_scarce:
        log.warning("hardly any file descriptors are left", left=left, allowed=descriptors.allowed())
    return left < SCARCE_DESCRIPTORS


async def repeat(clock: Clock, seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """What a full or locked disk keeps from being done now is done the next time."""
    while True:
        await clock.sleep(seconds)
        try:
            await work()
        except STORE_REFUSED as error:
            tell_refusal("put off", error, by_s=seconds)


async def prune(daemon: Daemon, steady: SteadyTime) -> None:
    """Keep the history, the records and the dead messages within their bounds."""
    now_ms, settings, store = steady.now_ms(), daemon.reloader.settings, daemon.parts.store
    await store.runs.prune(keep=settings.runs.keep, older_than_ms=now_ms - settings.runs.keep_for_ms)
    kept_for_ms = settings.records.keep_for_ms
    await store.records.prune(
        keep=settings.records.keep,
        older_than_ms=None if kept_for_ms is None else now_ms - kept_for_ms,
        unseen_since_ms=now_ms - settings.records.seen_for_ms,
    )
    await daemon.parts.courier.prune(now_ms - DEAD_KEPT_MS)
