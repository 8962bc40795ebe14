"""The parts of a daemon, each built when everything it needs exists.  An exit stack takes them down in reverse."""

from __future__ import annotations

import os
import platform
import random
from asyncio import TaskGroup
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from spyweb import __version__
from spyweb.clock import Clock
from spyweb.errors import StoreCorrupt
from spyweb.jobs.attempt import CountingHost, HostFor, Observer, Surroundings
from spyweb.jobs.cause import depth_of
from spyweb.jobs.live import LiveJob, LiveJobs
from spyweb.jobs.run import Runner
from spyweb.logs import JobLogs
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import InitFacts
from spyweb.model import Run
from spyweb.ops import catalog
from spyweb.ops.environment import visible_environment
from spyweb.ops.host import RunHost
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.client import open_client
from spyweb.ops.sources import Sources
from spyweb.ops.world import Call, World
from spyweb.settings import Settings
from spyweb.store.damage import move_aside
from spyweb.store.keys import find_key
from spyweb.store.opening import open_any
from spyweb.store.protocol import Durability, Store

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What runs need, whether a daemon starts them or a person in the foreground."""

    settings: Settings
    clock: Clock
    store: Store
    world: World
    pool: Pool
    live: LiveJobs
    runner: Runner
    job_logs: JobLogs
    tasks: TaskGroup


def init_facts(settings: Settings, server_url: str | None) -> InitFacts:
    """What every VM is told of the machine it runs on."""
    engine: dict[str, object] = {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "headless": not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")),
        "version": __version__,
        "lua_version": "lua54",
        "storage": "sqlite",
    }
    if server_url:
        engine["server_url"] = server_url
    return InitFacts(
        ops=catalog.names(),
        engine=engine,
        env=visible_environment(os.environ, settings.security.env_deny),
        timezone=settings.daemon.timezone,
    )


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


async def open_or_repair(settings: Settings, clock: Clock, *, repair: bool) -> Store:
    try:
        return await open_configured(settings, clock)
    except StoreCorrupt as error:
        if not repair:
            raise
        aside = move_aside(settings.store.path)
        log.error("the damaged database is moved aside, a new one begins", reason=str(error), now=str(aside))
    return await open_configured(settings, clock)


async def open_configured(settings: Settings, clock: Clock) -> Store:
    store = settings.store
    key = find_key(store.key_file, settings.root, os.environ) if store.key_file else None
    return await open_any(
        store.url, clock=clock, durability=Durability(store.durability), key=key, history=settings.state.history
    )


def hosts(world: World, job_logs: JobLogs, *, echo: bool) -> HostFor:
    """Who answers the ops of a run, and where its log lines go; with `echo` to the daemon's own log too."""

    def host_for(job: LiveJob, run: Run, observer: Observer | None) -> CountingHost:
        def job_log(level: str, text: bytes) -> None:
            if echo:
                note_line(job, run, level, text)
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
            agent=job.spec.agent,
            depth=depth_of(run.trigger),
            log=job_log,
        )
        return RunHost(call, job_log)

    return host_for


def note_line(job: LiveJob, run: Run, level: str, text: bytes) -> None:
    """A script's line in the daemon's own log."""
    structlog_level = {"print": "info", "warn": "warning"}.get(level, level)
    getattr(log, structlog_level)(text.decode("utf-8", "replace"), job=job.id, run=run.id)


async def open_world(stack: AsyncExitStack, settings: Settings, clock: Clock, store: Store) -> World:
    http = await stack.enter_async_context(open_client(settings.http, clock))
    locks = LockKeeper(store.locks, clock)
    stack.callback(locks.close)
    sources = Sources(settings.root)
    return World(store=store, clock=clock, http=http, sources=sources, locks=locks, state=settings.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What the parts are for."""

    workers: int
    server_url: str | None = None  # where scripts reach the daemon's own server
    repair: bool = False  # move a damaged database aside
    echo: bool = True  # a script's lines go to the daemon's log too


async def build(stack: AsyncExitStack, settings: Settings, clock: Clock, purpose: Purpose) -> Parts:
    """Everything below the scheduler."""
    store = await open_or_repair(settings, clock, repair=purpose.repair)
    stack.push_async_callback(store.close)
    world = await open_world(stack, settings, clock, store)
    job_logs = await stack.enter_async_context(JobLogs(settings.root, clock))
    init = init_facts(settings, purpose.server_url)
    pool = await stack.enter_async_context(open_pool(clock=clock, workers=purpose.workers, init=init))
    tasks = await stack.enter_async_context(owned_tasks())
    live = LiveJobs()
    around = Surroundings(
        machine=pool,
        runs=store.runs,
        events=store.events,
        live=live,
        clock=clock,
        run_ended=world.locks.run_ended,
        host_for=hosts(world, job_logs, echo=purpose.echo),
        random=random.random,
    )
    return Parts(
        settings=settings,
        clock=clock,
        store=store,
        world=world,
        pool=pool,
        live=live,
        runner=Runner(around, tasks),
        job_logs=job_logs,
        tasks=tasks,
    )
