"""Run the project's tests for `spyweb test`, in this process's own workers, on temporary data.

A running daemon is not disturbed: the tests neither take the lock nor open the project's database.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, structs

from spyweb.alerts.channels import OpenChannels
from spyweb.clock import Clock, Handle, RealClock
from spyweb.daemon.world import engine_info, open_commands
from spyweb.endpoints import Endpoints, ServerVersion
from spyweb.errors import Refused
from spyweb.extraction.extractor import open_extractor
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import Host
from spyweb.model import Durability, JobId, JobSpec, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.client import open_client
from spyweb.ops.sources import Sources
from spyweb.ops.world import Call, JobLog, World, unheard
from spyweb.permissions.policy import Policy
from spyweb.runs.live import LiveJobs
from spyweb.settings.load import load_settings
from spyweb.settings.sections import DATABASE, USER_DB, Settings
from spyweb.specs.discover import scan
from spyweb.specs.server_file import FOLDER, SERVER, code_of_server
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.user_db import SqlSpawner, UserDatabase
from spyweb.store.user_sql.views import Engine
from spyweb.testing.results import LOADING, CaseResult, Report
from spyweb.testing.run import Progress, Suite, SuiteEnvironment, SuiteRunner, find_suites
from spyweb.views.jobs import JobView, find_job, unknown_job, view_job


class VirtualTimer(Struct, eq=False):
    due: float  # monotonic seconds
    callback: Callable[[], object]
    handle: Handle | None = None  # of the other clock; None once it is over

    def cancel(self) -> None:
        if self.handle:
            self.handle.cancel()
            self.handle = None

    def fire(self) -> None:
        if self.handle:
            self.cancel()
            self.callback()


class VirtualClock:
    """Is ahead of another clock by the total time slept; timers that are passed meanwhile fire."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = 0.0
        self._timers: list[VirtualTimer] = []

    def now_ms(self) -> int:
        return self._clock.now_ms() + int(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._ahead_s

    def boottime(self) -> float:
        return self._clock.boottime() + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        self._ahead_s += max(0.0, seconds)
        passed = [timer for timer in self._timers if timer.due <= self.monotonic()]
        for timer in sorted(passed, key=lambda timer: timer.due):
            timer.fire()
        await self._clock.sleep(0)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        timer = VirtualTimer(self.monotonic() + seconds, callback)
        timer.handle = self._clock.call_later(seconds, timer.fire)
        self._timers = [*(each for each in self._timers if each.handle), timer]
        return timer


DURABILITY = Durability.NORMAL  # of databases that are not to outlive their test
LOOPBACK = "127.0.0.1"
OpenWorld = Callable[[], AbstractAsyncContextManager[World]]
SPARES = 2  # VMs of the project's server that are ready for the next requests


class Selection(Struct, frozen=True, kw_only=True):
    """The tests to run, and their options."""

    job: str | None = None  # name or id of one, or "server"; None: all
    pattern: str = ""  # a part of a test's name
    virtual_time: bool = False
    allow_exec: bool = False  # commands that the job is permitted


async def run_tests(root: Path, selection: Selection, progress: Progress) -> Report:
    """Run the selected tests.  Raises Refused when there is nothing to run, ConfigError when the settings are wrong."""
    clock = RealClock()
    began = clock.monotonic()
    settings = load_settings(root, environ=os.environ, flags={})
    found = find_suites(root, scan(root, settings), selection.job, settings.server.permissions)
    if not selection.allow_exec:
        found.suites = [structs.replace(suite, policy=suite.policy.without_exec()) for suite in found.suites]
    broken = [CaseResult(suite=title, test=LOADING, passed=False, reason=reason) for title, reason in found.broken]
    for result in broken:
        progress.ended(result)
    results = await _run(settings, clock, found.suites, selection, progress) if found.suites else []
    if not broken and not results:
        raise Refused(no_tests(selection))
    return Report(results=[*broken, *results], duration_ms=(clock.monotonic() - began) * 1000)


def no_tests(selection: Selection) -> str:
    of = f" of {selection.job}" if selection.job else ""
    if selection.pattern:
        return f"no test{of} has {selection.pattern!r} in its name"
    return f"there are no tests{of}: a test is a global function test_…, in a job's Lua files or its tests.lua"


async def _run(
    settings: Settings, clock: Clock, suites: Sequence[Suite], selection: Selection, progress: Progress
) -> list[CaseResult]:
    is_virtual = selection.virtual_time
    async with (
        open_pool(clock=clock, workers=settings.daemon.workers, init=engine_info(settings, None)) as pool,
        share_worlds(settings, clock) as open_world,
    ):

        def open_test_world() -> AbstractAsyncContextManager[World]:
            return open_world(VirtualClock(clock) if is_virtual else clock)

        def open_environment(suite: Suite) -> AbstractAsyncContextManager[SuiteEnvironment]:
            if suite.server is None:
                return nullcontext(JobEnvironment(open_world=open_test_world, suite=suite, is_virtual=is_virtual))
            return serve_suite(suite, suite.server, open_test_world, pool, settings, is_virtual=is_virtual)

        runner = SuiteRunner(pool=pool, clock=clock, open_environment=open_environment, progress=progress)
        return await runner.run(suites, selection.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """Gives every test of a job its own database."""

    open_world: OpenWorld
    suite: Suite
    is_virtual: bool  # sleeps end at once

    @property
    def options(self) -> Mapping[str, object]:
        return {"virtual_time": self.is_virtual}

    @asynccontextmanager
    async def host(self, run: RunId, log: JobLog) -> AsyncIterator[Host]:
        suite = self.suite
        async with self.open_world() as world:
            call = Call(
                world=world,
                job=suite.job,
                run=run,
                generation=suite.code.generation,
                folder=suite.folder,
                memory_limit=suite.code.memory_limit,
                agent=suite.agent,
                log=log,
                policy=suite.policy,
            )
            yield OpDispatcher(call)


@asynccontextmanager
async def share_worlds(
    settings: Settings, clock: Clock
) -> AsyncIterator[Callable[[Clock], AbstractAsyncContextManager[World]]]:
    """Yield the opener of worlds, which have no desktop, but the real network and the project's files.

    Each world copies one empty database, which is much faster than creating one.
    """
    async with AsyncExitStack() as shared:
        temporary = TemporaryDirectory(prefix="spyweb-test-", ignore_cleanup_errors=True)
        top, numbers = Path(shared.enter_context(temporary)), count(1)
        spawner = SqlSpawner()
        shared.callback(spawner.close)
        http = await shared.enter_async_context(open_client(settings.http, clock))
        extractor = await shared.enter_async_context(open_extractor(clock))
        sources, files = Sources(settings.root), Files(settings.root, clock)
        channels = OpenChannels(lambda: settings.alerts, settings.daemon.timezone, LiveJobs())
        template = top / DATABASE
        await (await open_store(template, clock=clock, durability=DURABILITY)).close()

        @asynccontextmanager
        async def open_world(clock: Clock) -> AsyncIterator[World]:
            """Open a world.  Raises StoreError, and Refused when there is no room for its databases."""
            folder = top / str(next(numbers))
            path = folder / DATABASE
            async with AsyncExitStack() as stack:
                stack.push_async_callback(asyncio.to_thread, shutil.rmtree, folder, ignore_errors=True)
                try:
                    folder.mkdir()
                    await asyncio.to_thread(shutil.copyfile, template, path)
                except OSError as error:
                    raise Refused(f"there is no temporary database: {error}") from error
                store = await open_store(path, clock=clock, durability=DURABILITY, history=settings.state.history)
                stack.push_async_callback(store.close)
                locks = LockKeeper(store.locks, clock)
                stack.callback(locks.close)
                opening = Opening(path=folder / USER_DB, engine=Engine(path=path, key=None), durability=DURABILITY)
                yield World(
                    store=store,
                    clock=clock,
                    http=http,
                    sources=sources,
                    files=files,
                    locks=locks,
                    sql=await stack.enter_async_context(UserDatabase(opening, clock, spawner=spawner)),
                    commands=await stack.enter_async_context(open_commands(settings.exec, clock)),
                    extractor=extractor,
                    channels=channels,
                    state=settings.state,
                    on_store_error=settings.store.on_error,
                )

        yield open_world


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectJobs:
    """The jobs of a project under test, none of which runs."""

    specs: Mapping[JobId, JobSpec]

    def find(self, name_or_id: str) -> JobId | None:
        return find_job(self.specs.values(), name_or_id)

    find_any = find

    def spec(self, job: str | None) -> JobSpec | None:
        return self.specs.get(JobId(job or ""))

    def names(self) -> dict[JobId, str]:
        return {job: spec.name for job, spec in self.specs.items()}

    def paused_for(self, _job: JobId | None) -> str:
        return ""

    def no_such_job(self, name_or_id: str) -> str:
        return unknown_job(list(self.specs), name_or_id)

    async def all_jobs(self) -> list[JobView]:
        return sorted(map(view_job, self.specs.values()), key=lambda view: view.id)


class ServerEnvironment(Struct, kw_only=True):
    """Gives all tests and handlers of the server one database; the running test gets the handlers' log lines."""

    world: World
    policy: Policy
    is_virtual: bool
    port: int = 0
    log: JobLog = unheard

    @property
    def options(self) -> Mapping[str, object]:
        return {"virtual_time": self.is_virtual, "routes": True, "globals": {"SERVER_PORT": self.port}}

    def note_failure(self, asked: str, reason: str) -> None:
        self.log("error", f"{asked}: {reason}".encode())

    @asynccontextmanager
    async def host(self, run: RunId, log: JobLog) -> AsyncIterator[Host]:
        self.log = log
        try:
            yield self.host_of(run, log)
        finally:
            self.world.call_ended(run)

    def host_of(self, run: RunId, log: JobLog) -> Host:
        world, policy = self.world, self.policy
        return OpDispatcher(Call(world=world, job=SERVER, run=run, generation=1, folder=FOLDER, log=log, policy=policy))


@asynccontextmanager
async def serve_suite(
    suite: Suite, source: bytes, open_world: OpenWorld, pool: Pool, settings: Settings, *, is_virtual: bool
) -> AsyncIterator[SuiteEnvironment]:
    """Serve the suite's server.  Raises ScriptError when its code does not compile, Refused when there is no port."""
    from spyweb.daemon.subjects import ADDRESSES
    from spyweb.subjects.records.service import RecordSearch
    from spyweb.web.api.services import Services
    from spyweb.web.app import Site, project_app  # few projects have a server, and these modules import much
    from spyweb.web.endpoints import FOLDER as UI
    from spyweb.web.serve import serve_app

    clock = RealClock()
    code = code_of_server(source, 1, policy=suite.policy)
    await pool.check(code)
    to_itself = replace(settings.http, deny_private=False)  # the server under test is on this machine
    async with open_world() as world, open_client(to_itself, clock) as http, TaskGroup() as tasks:
        own = structs.replace(world, http=http)
        environment = ServerEnvironment(world=own, policy=suite.policy, is_virtual=is_virtual)
        scanned = await asyncio.to_thread(scan, settings.root, settings)
        records = RecordSearch(records=own.store.records, live=LiveJobs(), clock=clock)
        jobs = ProjectJobs(specs={job: file.spec for job, file in scanned.jobs.items()})
        endpoints = Endpoints(
            pool=pool,
            clock=clock,
            tasks=tasks,
            host_for=lambda _, run: environment.host_of(run, lambda level, text: environment.log(level, text)),
            run_ended=own.call_ended,
            note_failure=environment.note_failure,
        )
        endpoints.version = ServerVersion(codes=[code])
        pool.keep_spares(code, SPARES)
        try:
            app = project_app(
                Services(records, addresses=ADDRESSES, catalogue=jobs, clock=clock),
                Site(endpoints=endpoints, ui=settings.root / UI),
            )
            async with serve_app(app, host=LOOPBACK, port=0) as listening:
                environment.port = listening.port
                yield environment
        finally:
            await endpoints.close(0)
            pool.retire(SERVER, code.generation + 1)
