"""The parts of a daemon, each built when everything it needs exists.  An exit stack takes them down in reverse."""

from __future__ import annotations

import os
import random
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from spyweb.clock import Clock
from spyweb.daemon.engine_info import engine_info
from spyweb.errors import StoreCorrupt, StoreIncomplete
from spyweb.extraction.page import Extractor
from spyweb.extraction.pool import Pool as Extraction
from spyweb.extraction.pool import open_extractor
from spyweb.limits import LOG_COPY
from spyweb.logs import JobLogs
from spyweb.logs.render import shorten
from spyweb.lua.pool import Pool, open_pool
from spyweb.model import JobId, Run, RunId
from spyweb.monitor.course import Means
from spyweb.monitor.monitors import Monitors
from spyweb.ops.disk import Files
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.client import open_client
from spyweb.ops.notify_desktop import Desktop
from spyweb.ops.sources import Sources
from spyweb.ops.world import Call, World
from spyweb.outbox.courier import Courier
from spyweb.outbox.send import Channels
from spyweb.runs.attempt import CountingHost, HostFor, Observer, Surroundings
from spyweb.runs.cause import depth_of
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.run import Runner
from spyweb.settings import Settings
from spyweb.settings.sections import USER_DB
from spyweb.specs.history import history_rules
from spyweb.store.crypto.keys import find_key
from spyweb.store.marker import Marker
from spyweb.store.opening import open_any
from spyweb.store.protocol import Durability, Store
from spyweb.store.sqlite.damage import files_of, move_aside, size_of, wal_of
from spyweb.store.sqlite.integrity import refuse_incomplete
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.user_db import UserDatabase
from spyweb.store.user_sql.views import Engine

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What runs need, whether a daemon starts them or a person in the foreground."""

    settings: Settings
    clock: Clock
    store: Store
    world: World
    pool: Pool
    live: LiveJobs
    runner: Runner
    courier: Courier
    extractor: Extraction
    job_logs: JobLogs
    tasks: TaskGroup


@asynccontextmanager
async def owned_tasks() -> AsyncIterator[TaskGroup]:
    """A task group that lets a lone error rise as it is: what ends a start is one clear line."""
    try:
        async with TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        if len(errors.exceptions) == 1:
            raise errors.exceptions[0] from None
        raise


async def open_or_repair(settings: Settings, clock: Clock, marker: Marker, *, repair: bool) -> Store:
    tell_how_it_ended(marker)
    while True:
        try:
            return await open_configured(settings, clock, marker)
        except (StoreCorrupt, StoreIncomplete) as error:
            if not repair:
                raise
            put_aside(error, marker)


def put_aside(error: StoreCorrupt | StoreIncomplete, marker: Marker) -> None:
    """What can't be used; and nobody is asked again about what is known of it."""
    rest = error.rest if isinstance(error, StoreIncomplete) else files_of(error.path)
    aside = move_aside(error.path, rest)
    marker.forget()
    if error.path in rest:
        log.error("the damaged database is moved aside, a new one begins", reason=str(error), now=str(aside))
    else:
        log.error("the database goes on without its log", reason=str(error), log=str(wal_of(aside)))


def tell_how_it_ended(marker: Marker) -> None:
    known = marker.known()
    if known and known.open:
        why = "the machine was started anew" if known.was_machine_down else "it was killed, or it crashed"
        log.warning(
            "the last spyweb ended without closing the database", pid=known.open.pid, since=known.open.since, why=why
        )


def note_user_db(settings: Settings, marker: Marker) -> None:
    """Remember that scripts have tables of their own, if they have."""
    if not settings.store.is_memory and size_of(settings.daemon.data_dir / USER_DB):
        marker.note_user_db()


async def open_configured(settings: Settings, clock: Clock, marker: Marker) -> Store:
    store, durability = settings.store, Durability(settings.store.durability)
    is_new = not store.is_memory and not size_of(store.path)
    if not store.is_memory:
        refuse_incomplete(store.path, durability, marker.known())
        refuse_incomplete(settings.daemon.data_dir / USER_DB, durability, marker.known_user_db())
    opened = await open_any(
        store.url,
        clock=clock,
        durability=durability,
        key=store_key(settings),
        history=settings.state.history,
        marker=marker,
    )
    if is_new:
        log.info("a new database begins", path=str(store.path))
    return opened


def store_key(settings: Settings) -> bytes | None:
    """What values are encrypted with."""
    key_file = settings.store.key_file
    return find_key(key_file, settings.root, os.environ) if key_file else None


def hosts(world: World, job_logs: JobLogs, *, echo: bool) -> HostFor:
    """Who answers the ops of a run, and where its log lines go; with `echo` to the daemon's own log too."""

    def host_for(job: LiveJob, run: Run, observer: Observer | None) -> CountingHost:
        def job_log(level: str, text: bytes) -> None:
            if echo:
                note_line(job.id, run.id, level, text)
            if level != "print":
                job_logs.write(job.spec.folder, level, text)
            if observer:
                observer.log(level, text)

        call = Call(
            world=world,
            job=job.id,
            run=run.id,
            generation=run.generation or job.code.generation,
            folder=job.spec.folder,
            memory_limit=job.spec.memory_limit,
            cpu_limit_ms=job.spec.cpu_limit_ms,
            agent=job.spec.agent,
            depth=depth_of(run.trigger),
            on_store_error=job.spec.on_store_error,
            log=job_log,
        )
        return OpDispatcher(call, job_log)

    return host_for


def note_line(job: JobId, run: RunId, level: str, text: bytes) -> None:
    """Log a script's line in the daemon's own log: the beginning of it where hooks.log has the whole."""
    line = text.decode("utf-8", "replace")
    structlog_level = {"print": "info", "warn": "warning"}.get(level, level)
    getattr(log, structlog_level)(line if level == "print" else shorten(line, LOG_COPY), job=job, run=run)


async def open_world(
    stack: AsyncExitStack, settings: Settings, clock: Clock, store: Store, note_sql: Callable[[], None]
) -> World:
    http = await stack.enter_async_context(open_client(settings.http, clock))
    locks = LockKeeper(store.locks, clock)
    stack.callback(locks.close)
    sources = Sources(settings.root)
    files = Files(settings.root, clock)
    return World(
        store=store,
        clock=clock,
        http=http,
        sources=sources,
        files=files,
        locks=locks,
        sql=await stack.enter_async_context(UserDatabase(sql_opening(stack, settings), clock, note_begun=note_sql)),
        desktop=Desktop(os.environ),
        state=settings.state,
        on_store_error=settings.store.on_error,
    )


def means_of(world: World, extractor: Extractor, settings: Settings) -> Means:
    """What the cycles of monitor jobs lean on."""
    return Means(
        http=world.http,
        extractor=extractor,
        runs=world.store.runs,
        records=world.store.records,
        outbox=world.store.outbox,
        clock=world.clock,
        files=world.files,
        timezone=settings.daemon.timezone,
        random=random.random,
    )


def sql_opening(stack: AsyncExitStack, settings: Settings) -> Opening:
    """Where scripts' own tables are: beside the engine's, or for a store in memory in a folder that goes with it."""
    store, durability = settings.store, Durability(settings.store.durability)
    if store.is_memory:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="spyweb-")))
        return Opening(path=folder / USER_DB, engine=None, durability=durability)
    engine = Engine(path=store.path, key=store_key(settings))
    return Opening(path=settings.daemon.data_dir / USER_DB, engine=engine, durability=durability)


def open_courier(world: World) -> Courier:
    """Who sends the messages of the outbox."""
    channels = Channels(http=world.http, desktop=world.desktop, clock=world.clock)
    return Courier(outbox=world.store.outbox, send=channels.send, clock=world.clock, random=random.random)


def surround(world: World, pool: Pool, monitors: Monitors, live: LiveJobs, host_for: HostFor) -> Surroundings:
    """What runs lean on."""
    return Surroundings(
        machine=pool,
        monitors=monitors,
        runs=world.store.runs,
        events=world.store.events,
        live=live,
        clock=world.clock,
        run_ended=world.run_ended,
        host_for=host_for,
        random=random.random,
        stalls=world.stalls,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What the parts are for."""

    workers: int
    server_url: str | None = None  # where scripts reach the daemon's own server
    repair: bool = False  # move a damaged database aside
    echo: bool = True  # a script's lines go to the daemon's log too


async def build(stack: AsyncExitStack, settings: Settings, clock: Clock, purpose: Purpose) -> Runtime:
    """Everything below the scheduler."""
    marker = Marker(settings.daemon.data_dir, settings.store.path, clock)
    store = await open_or_repair(settings, clock, marker, repair=purpose.repair)
    stack.push_async_callback(store.close)
    note_user_db(settings, marker)
    stack.callback(note_user_db, settings, marker)
    world = await open_world(stack, settings, clock, store, partial(note_user_db, settings, marker))
    job_logs = await stack.enter_async_context(JobLogs(settings.root, clock))
    init = engine_info(settings, purpose.server_url)
    pool = await stack.enter_async_context(open_pool(clock=clock, workers=purpose.workers, init=init))
    tasks = await stack.enter_async_context(owned_tasks())
    live = LiveJobs()
    extractor = await stack.enter_async_context(open_extractor(clock))
    monitors = Monitors(means_of(world, extractor, settings), pool)
    around = surround(world, pool, monitors, live, hosts(world, job_logs, echo=purpose.echo))
    return Runtime(
        settings=settings,
        clock=clock,
        store=store,
        world=world,
        pool=pool,
        live=live,
        runner=Runner(around, tasks),
        courier=open_courier(world),
        extractor=extractor,
        job_logs=job_logs,
        tasks=tasks,
    )


def keep_history(parts: Runtime, settings: Settings) -> None:
    """Of which values past versions are kept, as the settings and the jobs now have it."""
    rules = history_rules(settings.state.history, (job.spec for job in parts.live))
    parts.store.values.keep_history(rules)
