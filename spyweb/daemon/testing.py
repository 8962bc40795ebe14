"""Run the project's tests for `spyweb test`, in this process's own workers, on data that leaves nothing behind.

This works beside a running daemon: nothing here takes the lock or opens the project's database.  Each test has a world
of its own, with databases that are copies of an empty one that is up to date.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio import Lock, TaskGroup
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, structs

from spyweb.alerts.channels import OpenChannels
from spyweb.clock import Clock, Handle, RealClock
from spyweb.daemon.world import engine_info, open_commands
from spyweb.endpoints import Endpoints, ServerVersion
from spyweb.errors import Refused
from spyweb.extraction.extractor import Extractor, open_extractor
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import Code, Host
from spyweb.model import Durability, JobId, JobSpec, RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.client import open_client
from spyweb.ops.network.request import Http
from spyweb.ops.sources import Sources
from spyweb.ops.world import Call, JobLog, World, unheard
from spyweb.permissions.policy import Policy
from spyweb.runs.live import LiveJobs
from spyweb.settings import Settings, load_settings
from spyweb.settings.sections import DATABASE, USER_DB
from spyweb.specs.discover import scan
from spyweb.specs.server_file import FOLDER, SERVER, code_of_server
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.session import SqlSpawner
from spyweb.store.user_sql.user_db import UserDatabase
from spyweb.store.user_sql.views import Engine
from spyweb.testing.results import LOADING, CaseResult, Report
from spyweb.testing.run import Progress, Suite, SuiteEnvironment, SuiteRunner, find_suites
from spyweb.views.jobs import JobView, find_job, unknown_job, view_job


class VirtualTimer(Struct, eq=False):
    due: float  # monotonic seconds
    callback: Callable[[], object]
    handle: Handle | None = None
    is_over: bool = False

    def cancel(self) -> None:
        self.is_over = True
        if self.handle:
            self.handle.cancel()

    def fire(self) -> None:
        if not self.is_over:
            self.cancel()
            self.callback()


class VirtualClock:
    """Runs ahead of another clock by all that has been slept; timers that are passed on the way fire."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_s = 0.0
        self._timers: list[VirtualTimer] = []

    def now_ms(self) -> int:
        return self._clock.now_ms() + int(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return self._clock.monotonic() + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        self._ahead_s += max(0.0, seconds)
        for timer in self._passed():
            timer.fire()
        await self._clock.sleep(0)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        timer = VirtualTimer(self.monotonic() + seconds, callback)
        timer.handle = self._clock.call_later(seconds, timer.fire)
        self._timers = [each for each in self._timers if not each.is_over]
        self._timers.append(timer)
        return timer

    def _passed(self) -> list[VirtualTimer]:
        due = (timer for timer in self._timers if not timer.is_over and timer.due <= self.monotonic())
        return sorted(due, key=lambda timer: timer.due)


DURABILITY = Durability.NORMAL  # of databases that are not to outlive their test
LOOPBACK = "127.0.0.1"
SPARES = 2  # VMs of the project's server that are ready for the next requests


class Selection(Struct, frozen=True, kw_only=True):
    """Says which tests are to run, and how."""

    job: str | None = None  # name or id of one, or "server"; None: all
    pattern: str = ""  # a part of a test's name
    virtual_time: bool = False
    allow_exec: bool = False  # commands, where the job may run some


async def run_tests(root: Path, selection: Selection, progress: Progress) -> Report:
    """Run what is selected.  Raises Refused when there is nothing to run, ConfigError when the settings are wrong."""
    clock = RealClock()
    began = clock.monotonic()
    settings = load_settings(root, environ=os.environ, flags={})
    found = find_suites(root, scan(root, settings), selection.job, settings.server.permissions)
    found.suites = under_test(found.suites, allow_exec=selection.allow_exec)
    broken = [CaseResult(suite=title, test=LOADING, passed=False, reason=reason) for title, reason in found.broken]
    for result in broken:
        progress.ended(result)
    results = await _run(settings, clock, found.suites, selection, progress) if found.suites else []
    if not broken and not results:
        raise Refused(no_tests(selection))
    return Report(results=[*broken, *results], duration_ms=(clock.monotonic() - began) * 1000)


def under_test(suites: Sequence[Suite], *, allow_exec: bool) -> list[Suite]:
    """Return the suites with the policies of their jobs, under which tests run no command unless that is asked for."""
    return [suite if allow_exec else structs.replace(suite, policy=suite.policy.without_exec()) for suite in suites]


def no_tests(selection: Selection) -> str:
    of = f" of {selection.job}" if selection.job else ""
    if selection.pattern:
        return f"no test{of} has {selection.pattern!r} in its name"
    return f"there are no tests{of}: a test is a global function test_…, in a job's Lua files or its tests.lua"


async def _run(
    settings: Settings, clock: Clock, suites: Sequence[Suite], selection: Selection, progress: Progress
) -> list[CaseResult]:
    init = engine_info(settings, None)
    async with (
        open_pool(clock=clock, workers=settings.daemon.workers, init=init) as pool,
        open_world_factory(settings, clock) as worlds,
    ):

        @asynccontextmanager
        async def open_environment(suite: Suite) -> AsyncIterator[SuiteEnvironment]:
            environment = JobEnvironment(worlds=worlds, suite=suite, is_virtual=selection.virtual_time)
            if not suite.server:
                yield environment
                return
            async with open_server_environment(environment, pool) as of_server:
                yield of_server

        runner = SuiteRunner(pool=pool, clock=clock, open_environment=open_environment, progress=progress)
        return await runner.run(suites, selection.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """Gives every test of a job a database of its own."""

    worlds: WorldFactory
    suite: Suite
    is_virtual: bool  # sleeps end at once

    @property
    def options(self) -> Mapping[str, object]:
        return {"virtual_time": self.is_virtual}

    def test_clock(self) -> Clock:
        return VirtualClock(self.worlds.clock) if self.is_virtual else self.worlds.clock

    @asynccontextmanager
    async def host(self, run: RunId, log: JobLog) -> AsyncIterator[Host]:
        suite = self.suite
        async with self.worlds.open(self.test_clock()) as world:
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
async def open_world_factory(settings: Settings, clock: Clock) -> AsyncIterator[WorldFactory]:
    with TemporaryDirectory(prefix="spyweb-test-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            spawner = SqlSpawner()
            stack.callback(spawner.close)
            yield WorldFactory(
                settings=settings,
                clock=clock,
                folder=Path(folder),
                http=await stack.enter_async_context(open_client(settings.http, clock)),
                spawner=spawner,
                extractor=await stack.enter_async_context(open_extractor(clock)),
                sources=Sources(settings.root),
                files=Files(settings.root, clock),
                channels=OpenChannels(lambda: settings.alerts, settings.daemon.timezone, LiveJobs()),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldFactory:
    """Makes worlds without a desktop, and with the network and the project's files as they are."""

    settings: Settings
    clock: Clock
    folder: Path
    http: Http
    spawner: SqlSpawner
    extractor: Extractor
    sources: Sources
    files: Files
    channels: OpenChannels
    turn: Lock = field(default_factory=Lock)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @asynccontextmanager
    async def open(self, clock: Clock) -> AsyncIterator[World]:
        """Open a world.  Raises StoreError, Refused where there is no room for its databases."""
        async with self._databases(clock) as folder, AsyncExitStack() as stack:
            path, state = folder / DATABASE, self.settings.state
            store = await open_store(path, clock=clock, durability=DURABILITY, history=state.history)
            stack.push_async_callback(store.close)
            locks = LockKeeper(store.locks, clock)
            stack.callback(locks.close)
            engine = Engine(path=path, key=None)
            opening = Opening(path=folder / USER_DB, engine=engine, durability=DURABILITY)
            yield World(
                store=store,
                clock=clock,
                http=self.http,
                sources=self.sources,
                files=self.files,
                locks=locks,
                sql=await stack.enter_async_context(UserDatabase(opening, clock, spawner=self.spawner)),
                commands=await stack.enter_async_context(open_commands(self.settings.exec, clock)),
                extractor=self.extractor,
                channels=self.channels,
                state=state,
                on_store_error=self.settings.store.on_error,
            )

    @asynccontextmanager
    async def _databases(self, clock: Clock) -> AsyncIterator[Path]:
        """Make a folder with a copy of the template, which is much quicker than a new database."""
        folder = self.folder / str(next(self.numbers))
        try:
            async with self.turn:
                template = await self._template(clock)
            await asyncio.to_thread(_copy, template, folder)
        except OSError as error:
            raise Refused(f"there is no temporary database: {error}") from error
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _template(self, clock: Clock) -> Path:
        """Return a database that is up to date and empty."""
        path = self.folder / DATABASE
        if not path.exists():
            store = await open_store(path, clock=clock, durability=DURABILITY)
            await store.close()
        return path


def _copy(template: Path, folder: Path) -> None:
    folder.mkdir()
    shutil.copyfile(template, folder / DATABASE)


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
    """Gives all tests and handlers of the server one database, and what handlers log to the test that runs now."""

    world: World
    policy: Policy
    is_virtual: bool
    port: int = 0
    log: JobLog = unheard

    @property
    def options(self) -> Mapping[str, object]:
        return {"virtual_time": self.is_virtual, "routes": True, "globals": {"SERVER_PORT": self.port}}

    def note_line(self, level: str, text: bytes) -> None:
        self.log(level, text)

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
async def open_server_environment(of_jobs: JobEnvironment, pool: Pool) -> AsyncIterator[SuiteEnvironment]:
    """Serve the suite's server.  Raises ScriptError when its code does not compile, Refused when there is no port."""
    from spyweb.daemon.subjects import ADDRESSES
    from spyweb.runs.live import LiveJobs
    from spyweb.subjects.records.service import RecordSearch
    from spyweb.web.api.services import Services
    from spyweb.web.app import Site, project_app  # few projects have a server, and these import much
    from spyweb.web.serve import serve_app
    from spyweb.web.ui import FOLDER as UI

    suite, worlds = of_jobs.suite, of_jobs.worlds
    assert suite.server is not None
    code = code_of_server(suite.server, 1, policy=suite.policy)
    await pool.check(code)
    settings = replace(worlds.settings.http, deny_private=False)  # the server under test is on this machine
    async with worlds.open(of_jobs.test_clock()) as world, open_client(settings, worlds.clock) as http:
        own = structs.replace(world, http=http)
        environment = ServerEnvironment(world=own, policy=suite.policy, is_virtual=of_jobs.is_virtual)
        scanned = await asyncio.to_thread(scan, worlds.settings.root, worlds.settings)
        records = RecordSearch(records=own.store.records, live=LiveJobs(), clock=worlds.clock)
        jobs = ProjectJobs(specs={job: file.spec for job, file in scanned.jobs.items()})
        async with open_endpoints(pool, environment, code, worlds.clock) as endpoints:
            app = project_app(
                Services(records, addresses=ADDRESSES, catalogue=jobs, clock=worlds.clock),
                Site(endpoints=endpoints, ui=worlds.settings.root / UI),
            )
            async with serve_app(app, host=LOOPBACK, port=0) as listening:
                environment.port = listening.port
                yield environment


@asynccontextmanager
async def open_endpoints(
    pool: Pool, environment: ServerEnvironment, code: Code, clock: Clock
) -> AsyncIterator[Endpoints]:
    async with TaskGroup() as tasks:
        endpoints = Endpoints(
            pool=pool,
            clock=clock,
            tasks=tasks,
            host_for=lambda _, run: environment.host_of(run, environment.note_line),
            run_ended=environment.world.call_ended,
            note_failure=environment.note_failure,
        )
        endpoints.version = ServerVersion(codes=[code])
        pool.keep_spares(code, SPARES)
        try:
            yield endpoints
        finally:
            await endpoints.close(0)
            pool.retire(SERVER, code.generation + 1)
