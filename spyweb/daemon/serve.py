"""Run a daemon from its start to its end: build, load, serve, stop."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from asyncio import Task, TaskGroup
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct

from spyweb import __version__, descriptors
from spyweb.clock import Clock, RealClock
from spyweb.cluster.node import ClusterNode
from spyweb.daemon.build import Daemon, build_daemon
from spyweb.daemon.chores import Chore, keep_backups, list_chores, repeat, status_line
from spyweb.daemon.runtime import owned_tasks
from spyweb.daemon.startup import catch_signals
from spyweb.daemon.systemd import from_environment
from spyweb.errors import Refused, StoreFenced, StoreUnreachable
from spyweb.logs.output import printable, set_up, tell_refusal
from spyweb.ownership import CHIEF, Slot
from spyweb.reload.swap import SettingsFile
from spyweb.reload.watch import Watcher
from spyweb.settings.load import load_settings
from spyweb.settings.sections import LogLevel, Settings
from spyweb.store.interchange.foreign import DATA_FILE, describe_data_file
from spyweb.store.lock import hold_lock
from spyweb.subjects.health.service import STOPPING, ReadinessService
from spyweb.subjects.jobs.service import JobService
from spyweb.subjects.status.service import StatusService
from spyweb.subjects.when.service import MaintenanceService
from spyweb.views.jobs import JobView
from spyweb.web.access.keys import AccessService
from spyweb.web.serve import PrivateSocket, serve_socket
from spyweb.web.tls import ServerCertificate
from spyweb.words import describe_moment

log = structlog.get_logger()

SHORT_KEY = 20  # characters of SPYWEB_API_KEY, which people choose; a token of `spyweb keys add` has more
LAST_SENDING_S = 2.0  # for messages that are being sent at a stop: one that is cut off is sent twice
SWITCH_S = 0.0005  # how long a thread waits for the interpreter's lock before it asks for it
UNREACHABLE_S = 2.0  # between two attempts to reach PostgreSQL
JOBS = "jobs"
NO_JOBS = "none yet: put a Lua file into jobs/, it starts as soon as it is saved"
ON_BEAT = ("events", "outbox", "locks", "incidents", "keys")  # what may be new; runs are taken up with a beat anyway
ON_GAIN = (*ON_BEAT, "channels")
HEAR_S = 0.1  # between two checks of what others have committed
GARBAGE = 20_000  # objects between two collections of cycles; a run leaves none


class Options(Struct, frozen=True, kw_only=True):
    """The options of `spyweb start`."""

    root: Path
    flags: Mapping[str, object] = {}  # settings given on the command line
    repair: bool = False  # move a damaged database aside
    verbose: bool = False  # show more of the start on a terminal
    joins_anew: bool = False  # the process was a node of a cluster before, which is over


async def serve(options: Options) -> None:
    """Run until the daemon is asked to stop.  Raises a SpywebError with one clear line when it can't start."""
    descriptors.raise_limit()
    file, clock = read_settings(options), RealClock()
    settings = file.current
    set_up(
        level=settings.daemon.log_level,
        form=settings.daemon.log_format,
        clock=clock,
        secrets=[settings.server.api_key or ""],
    )
    daemon: Daemon | None = None
    try:
        async with AsyncExitStack() as stack:
            lock = stack.enter_context(hold_lock(settings.daemon.data_dir, root=options.root, clock=clock))
            daemon = await build_when_reachable(stack, file, clock, options)
            catch_signals(daemon.stop.set, daemon.reloader.wake)
            private, certificate = await open_listeners(stack, daemon)
            background: list[Task[None]] = []
            if await unless_set(daemon.stop, load_jobs(daemon)):
                tune_interpreter()
                chores = list_chores(daemon, lock, private, certificate)
                background = start_background(daemon, await stack.enter_async_context(owned_tasks()), chores)
                if daemon.node:
                    await unless_set(daemon.stop, daemon.node.settled.wait())
                daemon.services[ReadinessService].stage = ""
                announce(daemon, verbose=options.verbose)
                await daemon.stop.wait()
            await wind_down(daemon)
            for task in background:
                task.cancel()
    except StoreFenced:
        if daemon is None or not daemon.stop.is_set():  # else it ends, and need not join anew
            raise


async def build_when_reachable(stack: AsyncExitStack, file: SettingsFile, clock: Clock, options: Options) -> Daemon:
    """Build the daemon; one that joins anew waits for the database, whose failure may be why it does."""
    notifier, shown = from_environment(os.environ), False
    while True:
        try:
            async with AsyncExitStack() as attempt:
                daemon = await build_daemon(attempt, file, clock, repair=options.repair)
                await stack.enter_async_context(attempt.pop_all())
                return daemon
        except StoreUnreachable as error:
            if not options.joins_anew:
                raise
            if not shown:
                log.error("waiting for the database", reason=str(error))
            shown = True
            notifier.status(f"waiting for the database: {error}")
            notifier.watchdog()
        await clock.sleep(UNREACHABLE_S)


def read_settings(options: Options) -> SettingsFile:
    """Read the settings, with a free port in place of port 0 as long as the daemon runs."""
    port = 0

    def read() -> Settings:
        nonlocal port
        settings = load_settings(options.root, environ=os.environ, flags=options.flags)
        server = settings.server
        if not server.enabled or server.port:
            return settings
        port = port or free_port(server.host)
        return replace(settings, server=replace(server, port=port))

    return SettingsFile(options.root, read, read())


def free_port(host: str) -> int:
    """Find a free port before the server listens on it: scripts get the URL when the workers start."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError as error:
            raise Refused(f"can't listen on {host}: {error.strerror}") from error
        return int(probe.getsockname()[1])


async def open_listeners(stack: AsyncExitStack, daemon: Daemon) -> tuple[PrivateSocket, ServerCertificate | None]:
    """Listen on the private socket, and over HTTP if the server is enabled."""
    settings, server = daemon.runtime.settings, daemon.server
    certificate: ServerCertificate | None = None
    private = await stack.enter_async_context(serve_socket(daemon.services, settings.daemon.data_dir))
    if settings.server.enabled:
        if settings.server.hosts and daemon.services[AccessService].is_open:
            hosts = settings.server.hosts
            log.warning("[server] hosts needs a key: without one, only this machine is served", hosts=hosts)
        if 0 < len(settings.server.api_key or "") < SHORT_KEY:
            log.warning(f"SPYWEB_API_KEY has fewer than {SHORT_KEY} characters, and can be guessed")
        if settings.server.tls_cert:
            root = settings.root
            certificate = ServerCertificate(root / settings.server.tls_cert, root / settings.server.tls_key)
        tls = certificate.context if certificate else None
        await stack.enter_async_context(
            server.listeners.opened(daemon.services, server.site(settings, daemon.services[StatusService]), tls)
        )
        daemon.reloader.looked = server.listeners.look
    return private, certificate


async def unless_set(event: asyncio.Event, coroutine: Coroutine[object, object, object]) -> bool:
    """Await the coroutine until the event is set, which cancels it; return whether it ran to its end."""
    async with owned_tasks() as tasks:
        work, stop = tasks.create_task(coroutine), tasks.create_task(event.wait())
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        is_done = work.done()
        work.cancel()
        stop.cancel()
    return is_done


async def load_jobs(daemon: Daemon) -> None:
    """Load the files as they are now, then continue the runs that an earlier daemon left open."""
    runs = daemon.runtime.store.runs
    left_open = await runs.open()
    await daemon.alerts.load()
    await daemon.signs.load()
    await daemon.reloader.load(await runs.cursors())
    if daemon.node is None:  # a node has no slots yet
        await daemon.pings.take_up(left_open)


def tune_interpreter() -> None:
    """Keep the garbage collector and the other threads from delaying the loop.

    Objects that are loaded now stay, and are frozen: searching many jobs for garbage takes as long as many runs.  The
    writer's thread takes the interpreter's lock for each statement of a batch: on a busy machine it would wait for the
    loop, up to the whole interval each time.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


def start_background(daemon: Daemon, tasks: TaskGroup, chores: Sequence[Chore]) -> list[Task[None]]:
    """Start the tasks that run as long as the daemon."""
    runtime, settings = daemon.runtime, daemon.runtime.settings
    watcher = Watcher(settings.root, [settings.daemon.data_dir], daemon.reloader.wake, runtime.clock)
    daemon.timers.start()
    of_node: list[Coroutine[object, object, None]] = []
    if node := daemon.node:
        node.work.prepare, node.work.busy = partial(prepare_for_slots, daemon), partial(busy_slots, daemon)
        of_node = [node.keep_balanced(), hear_others(daemon, node), node.nodes.bell.keep_listening()]
    return [
        *(tasks.create_task(each, name="take part in the cluster") for each in of_node),
        *(tasks.create_task(repeat(daemon, each), name=f"chore '{each.name}'") for each in chores),
        tasks.create_task(watcher.watch(), name="watch files"),
        tasks.create_task(daemon.reloader.keep_up(), name="reload"),
        tasks.create_task(daemon.scheduler.watch_the_clock(), name="watch the clock"),
        tasks.create_task(keep_backups(daemon), name="make backups"),
        tasks.create_task(daemon.triggers.deliver(), name="hand out changes"),
        tasks.create_task(daemon.alerts.keep_up(), name="plan notifications"),
        tasks.create_task(daemon.channel_checker.keep_up(), name="check notification channels"),
        tasks.create_task(daemon.signs.keep_up(), name="find signs of incidents"),
        tasks.create_task(runtime.outbox_sender.deliver(), name="deliver messages"),
    ]


async def hear_others(daemon: Daemon, node: ClusterNode) -> None:
    """Have parts look at what other nodes have committed, until cancelled: by the bell, with each beat, for slots.

    What a busy node commits makes the others check at most ten times a second.
    """
    runtime, alerts, services = daemon.runtime, daemon.alerts, daemon.services
    concerned: dict[str, Sequence[Callable[[], Awaitable[None] | None]]] = {
        "channels": [daemon.channel_checker.wake],
        "events": [daemon.triggers.wake],
        "incidents": [alerts.wake, services[MaintenanceService].load],
        "keys": [services[AccessService].load],
        "locks": [runtime.world.locks.look],
        "outbox": [runtime.outbox_sender.look],
        "runs": [node.work.hear],
    }
    heard, woken = set[str](), asyncio.Event()

    def hear(parts: Collection[str]) -> None:
        heard.update(parts)
        woken.set()

    node.beaten, node.gained, node.nodes.bell.hear = partial(hear, ON_BEAT), partial(hear, ON_GAIN), hear
    while True:
        await woken.wait()
        woken.clear()
        now = [look for part, those in concerned.items() if part in heard for look in those]
        heard.clear()
        for look in now:
            try:
                await (look() or runtime.clock.sleep(0))
            except Exception as error:  # noqa: BLE001 - a later version may have written what this one can't read
                tell_refusal("what other nodes have changed could not be read yet", error)
        await runtime.clock.sleep(HEAR_S)


async def prepare_for_slots(daemon: Daemon) -> None:
    """Learn, before slots are owned, what is on record of their jobs and channels."""
    await daemon.alerts.load()
    await daemon.signs.load()


def busy_slots(daemon: Daemon) -> set[Slot]:
    """Return the slots in which this node sends or plans something: they are not given now."""
    return daemon.runtime.outbox_sender.busy_slots() | ({CHIEF} if daemon.alerts.planning.locked() else set())


def announce(daemon: Daemon, *, verbose: bool) -> None:
    """Report the start: to systemd, to the log, and on a terminal to the person there."""
    settings, live, rights = daemon.runtime.settings, daemon.runtime.live, daemon.runtime.pool.stats().rights
    if what := describe_data_file(settings.root / DATA_FILE):
        log.warning(f"{DATA_FILE}: {what}")
    daemon.notifier.ready(status_line(daemon))
    listeners = daemon.server.listeners
    url, dashboard = (each.url if each else None for each in (listeners.content, listeners.dashboard))
    if not sys.stdout.isatty():
        log.info("started", version=__version__, jobs=len(live), url=url, dashboard=dashboard, rights=list(rights))
    elif settings.daemon.log_level in (LogLevel.DEBUG, LogLevel.INFO):
        views = daemon.services[JobService].jobs()
        facts = first_screen(settings, views, dashboard or url)
        if verbose or not rights:
            facts["sandbox"] = "; ".join(rights) or "none: scripts run with this user's rights"
        if verbose:
            facts |= more_facts(settings, views, url)
        lines = [f"spyweb {__version__}", *(f"  {name:<10} {text}" for name, text in facts.items())]
        sys.stdout.write("\n".join(map(printable, lines)) + "\n\n")
        sys.stdout.flush()


def first_screen(settings: Settings, jobs: Sequence[JobView], address: str | None) -> dict[str, str]:
    """Return what a person needs after a start: the address, the jobs, the data, and how to stop."""
    broken = sum(bool(job.error) for job in jobs)
    found = f"{len(jobs):,} in {settings.root / JOBS}"
    return {
        "dashboard": address or "off",
        "jobs": f"{found}, {broken} broken: `spyweb check` says why" if broken else found if jobs else NO_JOBS,
        "data": str(settings.daemon.data_dir),
        "stop": "Ctrl-C, or `spyweb stop`",
    }


def more_facts(settings: Settings, jobs: Sequence[JobView], url: str | None) -> dict[str, str]:
    """Return the facts that `start -v` adds."""
    due = min(((job.next_due_ms, job.id) for job in jobs if job.next_due_ms is not None), default=None)
    next_due = f"{due[1]}, {describe_moment(due[0] // 1000 * 1000, settings.daemon.timezone)}" if due else "none"
    return {
        "server": url or "off",
        "durability": settings.store.durability.value,
        "workers": str(settings.daemon.workers),
        "next run": next_due,
    }


async def wind_down(daemon: Daemon) -> None:
    """Start no more runs, let running ones end within the grace period, record the rest as stopped."""
    runtime = daemon.runtime
    daemon.services[ReadinessService].stage = STOPPING
    daemon.notifier.stopping()
    log.info("stopping", running=len(runtime.live.running()))
    daemon.signs.stop()
    daemon.scheduler.stop()
    daemon.triggers.stop()
    grace_s = runtime.settings.daemon.shutdown_grace_ms / 1000
    leaving = [daemon.node.leave()] if daemon.node else []
    await asyncio.gather(runtime.runner.drain(grace_s), daemon.server.endpoints.close(grace_s), *leaving)
    await runtime.outbox_sender.wind_down(LAST_SENDING_S)
    log.info("stopped")
