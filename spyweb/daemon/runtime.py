"""Open the runtime of runs, for a daemon and for runs in the foreground: store, workers, outbox, logs."""

from __future__ import annotations

import os
import platform
import random
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from msgspec import Struct

from spyweb.alerts.channels import AttemptTallies, ChannelSecrets, OpenChannels
from spyweb.alerts.delivery import AckLinks, AlertDelivery, ChannelSender
from spyweb.alerts.sender.helper import AlertHelper
from spyweb.alerts.texts import AlertWriter
from spyweb.clock import Clock
from spyweb.daemon.world import engine_info, open_world
from spyweb.errors import StoreCorrupt, StoreFenced, StoreIncomplete
from spyweb.extraction.extractor import open_extractor
from spyweb.limits import LOG_COPY
from spyweb.logs.job import JobLogs
from spyweb.logs.output import shorten
from spyweb.logs.secrets import secrets_in
from spyweb.lua.pool import Pool, open_pool
from spyweb.model import JobId, JobSpec, Run, RunId
from spyweb.monitor.context import CycleServices
from spyweb.monitor.exchange import HostSlots
from spyweb.monitor.run import MonitorRunner
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.network.address_check import OwnSockets
from spyweb.ops.world import Call, World, untold
from spyweb.outbox.send import MessageTransport
from spyweb.outbox.sender import OutboxSender
from spyweb.ownership import Ownership
from spyweb.permissions.policy import policy_of
from spyweb.reload.swap import SettingsFile
from spyweb.runs.counters import MOST_JOBS, RunCounters
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.recordings import RunRecorder
from spyweb.runs.runner import HostFor, Observer, Runner
from spyweb.settings.alerts import AlertSettings
from spyweb.settings.sections import USER_DB, Settings
from spyweb.specs.watches import history_rules
from spyweb.store.marker import Marker
from spyweb.store.opening import key_of, open_any
from spyweb.store.sqlite.backup import settle_restore
from spyweb.store.sqlite.damage import copy_log_aside, move_aside, refuse_missing, size_of
from spyweb.store.sqlite.store import Store, refuse_unsound
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.user_db import UserDatabase
from spyweb.store.user_sql.views import Engine
from spyweb.web.serve import url_of

log = structlog.get_logger()


class AlertSending(Struct, frozen=True, kw_only=True):
    """The parts that send messages to notification channels."""

    delivery: AlertDelivery
    ack_links: AckLinks
    tallies: AttemptTallies
    helper: AlertHelper


class JobRuntime(Struct, frozen=True, kw_only=True):
    """All parts below the scheduler, open and connected."""

    settings: Settings
    clock: Clock
    store: Store
    world: World
    own_sockets: OwnSockets
    pool: Pool
    live: LiveJobs
    runner: Runner
    outbox_sender: OutboxSender
    sending: AlertSending
    job_logs: JobLogs
    tasks: TaskGroup


@asynccontextmanager
async def owned_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that raises a single error as it is, so that a failed start shows one clear line."""
    try:
        async with TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        over = [error for error in errors.exceptions if isinstance(error, StoreFenced)]  # whatever else fails by it
        if len(errors.exceptions) == 1 or over:
            raise (*over, *errors.exceptions)[0] from None
        raise


def hosts(world: World, live: LiveJobs, job_logs: JobLogs, *, echo: bool) -> HostFor:
    """Return the maker of a run's host, which answers its ops and takes its log lines; with `echo` the lines go to the
    daemon's own log too."""

    def host_for(job: LiveJob, run: Run, observer: Observer | None) -> OpDispatcher:
        def job_log(level: str, text: bytes) -> None:
            if echo:
                note_line(job.id, run.id, level, text)
            if level != "print":
                job_logs.write(job.spec.folder, level, text, run.id)
            if observer:
                observer.log(level, text)

        trace = None
        if world.tracer:
            attributes: dict[str, str | int] = {
                "spyweb.job": str(job.id),
                "spyweb.run": int(run.id),
                "spyweb.attempt": run.attempt,
                "spyweb.trigger": run.trigger.type,
            }
            trace = world.tracer.begin(f"run {job.id}", attributes, run.trigger.traceparent)
        call = Call(
            world=world,
            job=job.id,
            run=run.id,
            generation=run.generation or job.code.generation,
            folder=job.spec.folder,
            memory_limit=job.spec.memory_limit,
            cpu_limit_ms=job.spec.cpu_limit_ms,
            agent=job.spec.agent,
            depth=run.trigger.depth,
            on_store_error=job.spec.on_store_error,
            log=job_log,
            resumes=run.trigger.resumes is not None or run.trigger.retry_of is not None,
            code=job.digest,
            tell_task=partial(live.tell_task, job.id, run.id, observer.task if observer else untold),
            policy=job.spec.policy,
            node=job.spec.node,
            audit=observer.audit if observer else None,
            is_recorded=True,
            is_dry=run.trigger.dry_run,
            trace=trace,
        )
        return OpDispatcher(call)

    return host_for


def note_line(job: JobId, run: RunId, level: str, text: bytes) -> None:
    """Copy a line of a script into the daemon's own log; only its beginning if hooks.log has all of it."""
    line = text.decode("utf-8", "replace")
    structlog_level = {"print": "info", "warn": "warning"}.get(level, level)
    getattr(log, structlog_level)(line if level == "print" else shorten(line, LOG_COPY), job=job, run=run)


def open_sending(
    stack: AsyncExitStack, settings: Settings, alerts: Callable[[], AlertSettings], world: World, live: LiveJobs
) -> AlertSending:
    clock = world.clock
    helper = AlertHelper(clock, os.environ)
    stack.push_async_callback(helper.close)
    channel_secrets = ChannelSecrets(settings.root, os.environ)
    writer = AlertWriter(
        timezone=settings.daemon.timezone,
        pages=settings.server.public_url and f"{settings.server.public_url}/",
        root=settings.root,
        live=live,
        past_runs=world.store.past_runs,
        secrets=secrets_in(os.environ),
    )
    sender = ChannelSender(
        http=world.http, helper=helper, desktop=world.desktop, writer=writer, secrets=channel_secrets, clock=clock
    )

    def name_of(subject: str) -> str:
        job = live.of_subject(subject)
        return job.spec.name if job else ""

    links, tallies = AckLinks(settings.server.public_url, alerts), AttemptTallies(clock)
    delivery = AlertDelivery(sender, alerts, links, secrets_in(os.environ), tallies, platform.node(), name_of)
    return AlertSending(delivery=delivery, ack_links=links, tallies=tallies, helper=helper)


async def open_or_repair(settings: Settings, clock: Clock, marker: Marker, *, repair: bool) -> Store:
    """Open the store.  Raises StoreCorrupt or StoreIncomplete when it can't be used and `repair` is not set."""
    opened = marker.found.open if marker.found else None
    if opened:
        why = "the machine was started anew" if marker.was_machine_down else "it was killed, or it crashed"
        log.warning("the last spyweb ended without closing the database", pid=opened.pid, since=opened.since, why=why)
    before = ""
    while True:
        try:
            return await open_configured(settings, clock, marker)
        except (StoreCorrupt, StoreIncomplete) as error:
            if not repair:
                raise
            if str(error) == before:  # twice: no passing error of the disk
                put_aside(error, marker)
            before = str(error)


def put_aside(error: StoreCorrupt | StoreIncomplete, marker: Marker) -> None:
    """Move a damaged database aside, and forget its marker, so that the next start does not refuse again.

    A database that only lacks its last commits stays in use; SQLite drops the unreadable part of its log, so the log is
    copied before.
    """
    if isinstance(error, StoreIncomplete) and not error.is_gone:
        copy = copy_log_aside(error.path)
        log.error("the database goes on without what is missing", reason=str(error), log=str(copy) if copy else None)
    else:
        aside = move_aside(error.path)
        log.error("the damaged database is moved aside, a new one begins", reason=str(error), now=str(aside))
    marker.forget()


async def open_configured(settings: Settings, clock: Clock, marker: Marker) -> Store:
    store = settings.store
    is_new = store.is_file and not size_of(store.path)
    if store.is_file:
        refuse_missing(store.path, marker.folder if marker.found else None)
    if not store.is_memory:
        refuse_unsound(settings.daemon.data_dir / USER_DB, marker.folder if marker.has_user_db else None)
    opened = await open_any(settings, clock=clock, marker=marker)
    if store.is_postgres:
        marker.note_opened(None)
    if is_new:
        log.info("a new database begins", path=str(store.path))
    return opened


def note_user_db(settings: Settings, marker: Marker) -> None:
    """Note in the marker that scripts have their own tables, if they have."""
    if not settings.store.is_memory and size_of(settings.daemon.data_dir / USER_DB):
        marker.note_user_db()


def user_db_opening(stack: AsyncExitStack, settings: Settings) -> Opening:
    """Return how scripts' own tables are opened: beside the store, or for one in memory in a temporary folder."""
    store, durability = settings.store, settings.store.durability
    if store.is_memory:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="spyweb-")))
        return Opening(path=folder / USER_DB, engine=None, durability=durability)
    engine = Engine(path=store.path, key=key_of(settings)) if store.is_file else None
    path = settings.daemon.data_dir / USER_DB
    return Opening(path=path, engine=engine, durability=durability, has_views=store.is_file)


async def open_runtime(
    stack: AsyncExitStack, settings: Settings, clock: Clock, *, file: SettingsFile | None = None, repair: bool = False
) -> JobRuntime:
    """Open everything below the scheduler; the stack closes it again in reverse.

    `file` is given by a daemon, and has its settings, which are read again when the file changes: scripts then see the
    URL of the server, and their lines go to the daemon's log too.  With `repair` a damaged database is moved aside.
    """

    def alerts() -> AlertSettings:
        return file.current.alerts if file else settings.alerts

    def spec_of(job: JobId) -> JobSpec | None:
        found = live.find(job)
        return found.spec if found else None

    settle_restore(settings)
    marker = Marker(settings.daemon.data_dir, settings.database, clock)
    store = await open_or_repair(settings, clock, marker, repair=repair)
    stack.push_async_callback(store.close)
    if settings.store.is_postgres:
        stack.callback(marker.note_closed)
    note_sql = partial(note_user_db, settings, marker)
    note_sql()
    stack.callback(note_sql)
    extractor = await stack.enter_async_context(open_extractor(clock))
    ownership = Ownership(clock, node=settings.cluster.name if settings.store.is_postgres else "")
    live = LiveJobs(ownership)
    channels = OpenChannels(alerts, settings.daemon.timezone, live)
    own_sockets = OwnSockets()
    sql = await stack.enter_async_context(UserDatabase(user_db_opening(stack, settings), clock, note_begun=note_sql))
    world = await open_world(stack, settings, store, extractor, sql, channels, own_sockets, clock, ownership)
    job_logs = await stack.enter_async_context(JobLogs(settings.root, clock))
    server = settings.server
    is_served = server.enabled and file is not None
    url = url_of(server.host, server.port, is_tls=bool(server.tls_cert)) if is_served else None
    init = engine_info(settings, url)
    pool = await stack.enter_async_context(open_pool(clock=clock, workers=settings.daemon.workers, init=init))
    tasks = await stack.enter_async_context(owned_tasks())
    of_cycles = CycleServices(
        http=world.http,
        slots=HostSlots(settings.http.per_host),
        extractor=extractor,
        runs=store.runs,
        records=store.records,
        outbox=store.outbox,
        clock=clock,
        files=world.files,
        channels=channels,
        timezone=settings.daemon.timezone,
        random=random.random,
        node=ownership.node,
    )
    runner = Runner(
        store=store,
        live=live,
        pool=pool,
        monitors=MonitorRunner(of_cycles, pool),
        clock=clock,
        host_for=hosts(world, live, job_logs, echo=file is not None),
        run_ended=world.run_ended,
        random=random.random,
        stalls=world.stalls,
        tasks=tasks,
        counters=RunCounters(MOST_JOBS if settings.metrics.per_job else 0),
        recorder=RunRecorder(secrets=secrets_in(os.environ), engine=init, seal=store.past_runs.seal),
    )
    sending = open_sending(stack, settings, alerts, world, live)
    transport = MessageTransport(
        http=world.http,
        desktop=world.desktop,
        clock=clock,
        spec_of=spec_of,
        usual=policy_of(settings.permissions),
        environ=os.environ,
        secrets=secrets_in(os.environ),
        root=settings.root,
        flush_logs=job_logs.flush,
        alert=sending.delivery.send,
    )
    return JobRuntime(
        settings=settings,
        clock=clock,
        store=store,
        world=world,
        own_sockets=own_sockets,
        pool=pool,
        live=live,
        runner=runner,
        outbox_sender=OutboxSender(
            outbox=store.outbox, send=transport.send, clock=clock, random=random.random, live=live
        ),
        sending=sending,
        job_logs=job_logs,
        tasks=tasks,
    )


def keep_history(live: LiveJobs, store: Store, settings: Settings) -> None:
    """Tell the store which values' past versions to keep, by the current settings and jobs."""
    store.values.keep_history(history_rules(settings.state.history, (job.spec for job in live)))
