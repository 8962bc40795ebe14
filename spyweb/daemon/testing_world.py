"""Open worlds that leave nothing behind: each has databases of its own, copies of one that is up to date."""

from __future__ import annotations

import asyncio
import shutil
from asyncio import Lock
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from spyweb.alerts.channels import OpenChannels
from spyweb.clock import Clock
from spyweb.daemon.commands import open_commands
from spyweb.errors import Refused
from spyweb.extraction.extractor import Extractor, open_extractor
from spyweb.model import Durability
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.gate import NetGate
from spyweb.ops.network.request import Fetch, Http, Response
from spyweb.ops.sources import Sources
from spyweb.ops.world import World
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
        try:
            async with self._turn:
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
        path = self._folder / DATABASE
        if not path.exists():
            store = await open_store(path, clock=clock, durability=DURABILITY)
            await store.close()
        return path


def _copy(template: Path, folder: Path) -> None:
    folder.mkdir()
    shutil.copyfile(template, folder / DATABASE)
