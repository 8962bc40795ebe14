"""Open worlds that leave nothing behind: each has databases of its own, copies of one that is up to date."""

from __future__ import annotations

import asyncio
import shutil
from asyncio import Future, Lock, Task, TaskGroup
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from spyweb.alerts.open_channels import OpenChannels
from spyweb.clock import Clock
from spyweb.daemon.commands import open_commands
from spyweb.errors import OpError, SpywebError
from spyweb.extraction.extractor import Extractor, open_extractor
from spyweb.lua.session import Host, Lineage, Unstarted
from spyweb.model import Durability
from spyweb.ops.answer import Results
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.gate import NetGate
from spyweb.ops.network.request import Fetch, Http, Response
from spyweb.ops.sources import Sources
from spyweb.ops.world import JobLog, World
from spyweb.runs.live import LiveJobs
from spyweb.settings import HttpSettings, Settings
from spyweb.settings.sections import DATABASE, USER_DB
from spyweb.store.sqlite.store import open_store
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.spawner import SqlSpawner
from spyweb.store.user_sql.user_db import UserDatabase
from spyweb.store.user_sql.views import Engine

DURABILITY = Durability.NORMAL  # nothing of it is to outlive the test


@asynccontextmanager
async def open_world_factory(settings: Settings, clock: Clock) -> AsyncIterator[WorldFactory]:
    with TemporaryDirectory(prefix="spyweb-test-", ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            spawner = SqlSpawner()
            stack.callback(spawner.close)
            extractor = await stack.enter_async_context(open_extractor(clock))
            http = LazyHttp(settings.http, clock, stack)
            yield WorldFactory(settings, clock, Path(folder), http, spawner, extractor)


class LazyHttp:
    """Opens the HTTP client for the first test that uses it: most do not, and aiohttp takes long to import."""

    def __init__(self, settings: HttpSettings, clock: Clock, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._clock = clock
        self._stack = stack
        self._turn = Lock()
        self._client: Http | None = None

    @property
    def settings(self) -> HttpSettings:
        return self._settings

    async def fetch(self, fetch: Fetch) -> Response:
        return await (await self._opened()).fetch(fetch)

    async def certificate(self, host: str, port: int, gate: NetGate | None = None) -> bytes:
        return await (await self._opened()).certificate(host, port, gate)

    async def _opened(self) -> Http:
        from spyweb.ops.network.client import open_client  # see above

        async with self._turn:
            if self._client is None:
                self._client = await self._stack.enter_async_context(open_client(self._settings, self._clock))
            return self._client


class WorldFactory:
    """Makes worlds without a desktop, and with the network and the project's files as they are."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        folder: Path,
        http: Http,
        spawner: SqlSpawner,
        extractor: Extractor,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._folder = folder
        self._http = http
        self._spawner = spawner
        self._extractor = extractor
        self._sources = Sources(settings.root)
        self._files = Files(settings.root, clock)
        self._channels = OpenChannels(lambda: settings.alerts, settings.daemon.timezone, LiveJobs())
        self._turn = Lock()
        self._numbers = count(1)

    @asynccontextmanager
    async def open(self, clock: Clock) -> AsyncIterator[World]:
        """Open a world.  Raises StoreError, OSError."""
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
                http=self._http,
                sources=self._sources,
                files=self._files,
                locks=locks,
                sql=await stack.enter_async_context(UserDatabase(opening, clock, spawner=self._spawner)),
                commands=await stack.enter_async_context(open_commands(self.settings.exec, clock)),
                extractor=self._extractor,
                channels=self._channels,
                state=state,
                on_store_error=self.settings.store.on_error,
            )

    @asynccontextmanager
    async def _databases(self, clock: Clock) -> AsyncIterator[Path]:
        """Make a folder with a copy of the template, which is much quicker than a new database."""
        folder = self._folder / str(next(self._numbers))
        async with self._turn:
            template = await self._template(clock)
        await asyncio.to_thread(_copy, template, folder)
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _template(self, clock: Clock) -> Path:
        """Return a database that is up to date and empty."""
        path = self._folder / DATABASE
        if not path.exists():
            store = await open_store(path, clock=clock, durability=DURABILITY)
            await store.close()
        return path


def _copy(template: Path, folder: Path) -> None:
    folder.mkdir()
    shutil.copyfile(template, folder / DATABASE)


class LazyHost:
    """Answers the ops of one test, in a world that is opened for the first op.

    `opening` gives the world, `host_in` a Host in it.
    """

    def __init__(
        self,
        opening: AbstractAsyncContextManager[World],
        host_in: Callable[[World], Host],
        log: JobLog,
        tasks: TaskGroup,
    ) -> None:
        self._opening = opening
        self._host_in = host_in
        self._log = log
        self._tasks = tasks
        self._host: Host | None = None
        self._made: Future[Host] = asyncio.get_running_loop().create_future()
        self._is_over = asyncio.Event()
        self._keeper: Task[None] | None = None

    def log(self, level: str, text: bytes) -> None:
        if level not in ("task", "env"):  # nobody watches its tasks, or notes what it uses
            self._log(level, text)

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Results]:
        if self._host:
            return self._host.op(name, arguments, lineage)
        return Unstarted(partial(self._first, name, arguments, lineage))

    def end_branch(self, lineage: Lineage) -> None:
        if self._host:
            self._host.end_branch(lineage)

    async def close(self) -> None:
        """Close the world, if there is one: the test has ended."""
        self._is_over.set()
        if self._keeper:
            await self._keeper

    async def _first(self, name: str, arguments: Sequence[object], lineage: Lineage) -> Results:
        if self._keeper is None:
            self._keeper = self._tasks.create_task(self._keep(), name="the world of a test")
        try:
            host = await asyncio.shield(self._made)
        except (SpywebError, OSError) as error:
            raise OpError(f"{name}: there is no temporary database: {error}") from error
        return await host.op(name, arguments, lineage)

    async def _keep(self) -> None:
        """Open the world and close it, in a task of its own, since it must be left where it was entered."""
        try:
            async with self._opening as world:
                self._host = self._host_in(world)
                self._made.set_result(self._host)
                await self._is_over.wait()
        except (SpywebError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._made.done():
            self._log("error", f"the temporary database was not closed: {error}".encode("utf-8", "replace"))
            return
        self._made.set_exception(error)
        self._made.exception()  # seen, even where the test has ended meanwhile
