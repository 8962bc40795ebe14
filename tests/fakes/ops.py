"""Make worlds for ops: a memory store, a clock that stands still, an Http that answers from a table."""

from __future__ import annotations

import atexit
from asyncio import Future, TaskGroup
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import FetchError
from spyweb.extraction.extractor import Extractor
from spyweb.model import Durability, JobId, RunId
from spyweb.ops import catalog
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.files.files import Files
from spyweb.ops.locks import LockKeeper
from spyweb.ops.network.address_check import NetGate
from spyweb.ops.network.request import Fetch, Http, Probe, Response
from spyweb.ops.sources import Sources
from spyweb.ops.world import Call, World
from spyweb.programs.runner import CommandRunner
from spyweb.settings.sections import HttpSettings, StateSettings
from spyweb.store.model.incidents import AlertChannelNow
from spyweb.store.sqlite.store import Store
from spyweb.store.user_sql.connection import Opening
from spyweb.store.user_sql.user_db import SqlSpawner, UserDatabase
from spyweb.store.user_sql.views import Engine
from tests.fakes.clock import FakeClock
from tests.fakes.commands import FakeCommands
from tests.fakes.memory_store import MemoryStore

assert catalog.CATALOGUE  # all ops are there

PRICES = JobId("prices")
BACKUP = JobId("backup")
NOWHERE = Path("/nonexistent")
SPAWNER = SqlSpawner()  # one for all tests: it ends with this process
atexit.register(SPAWNER.close)


@dataclass(slots=True)
class FakeHttp:
    """Keeps what it was asked; answers 200 unless told otherwise by URL."""

    settings: HttpSettings = field(default_factory=HttpSettings)
    answers: dict[str, Response | FetchError] = field(default_factory=dict)
    asked: list[Fetch] = field(default_factory=list)
    probed: list[Probe] = field(default_factory=list)
    found: dict[str, object] | None = None  # what every probe finds; None: it fails
    story: list[str] = field(default_factory=list)
    held: dict[str, Future[None]] = field(default_factory=dict)  # addresses whose answer waits
    usual: Callable[[str], Response] = lambda url: make_response(url=url)

    async def fetch(self, fetch: Fetch) -> Response:
        url = str(fetch.url)
        self.asked.append(fetch)
        self.story.append(f"fetch {url}")
        if url in self.held:
            await self.held[url]
        answer = self.answers.get(url) or self.usual(url)
        if isinstance(answer, FetchError):
            raise answer
        return answer

    async def probe(self, probe: Probe, gate: NetGate | None = None) -> dict[str, object]:
        self.probed.append(probe)
        if self.found is None:
            raise FetchError("connect", f"could not connect to {probe.host}:{probe.port}: Connection refused")
        return self.found


@dataclass(slots=True)
class FakeChannels:
    """The notification channels of no settings."""

    channels: dict[str, AlertChannelNow] = field(default_factory=lambda: {"phone": AlertChannelNow(name="phone")})
    today: str = "2026-11-23"

    def names(self) -> Collection[str]:
        return self.channels

    def find(self, name: str, _job: JobId, _now_ms: int) -> AlertChannelNow | None:
        return self.channels.get(name)

    def day(self, _now_ms: int) -> str:
        return self.today


def make_response(**changes: object) -> Response:
    response = Response(status=200, body=b"hello", headers={b"x-a": b"1"}, url=b"http://example.com/", time_ms=12)
    return replace(response, **changes)


def make_world(
    *,
    store: Store | None = None,
    clock: Clock | None = None,
    http: Http | None = None,
    root: Path = NOWHERE,
    state: StateSettings | None = None,
    commands: CommandRunner | None = None,
    extractor: Extractor | None = None,
) -> World:
    clock = clock or FakeClock()
    store = store or MemoryStore(clock)
    return World(
        store=store,
        clock=clock,
        http=http or FakeHttp(),
        sources=Sources(root),
        files=Files(root, clock),
        locks=LockKeeper(store.locks, clock),
        sql=make_sql(root, clock),
        commands=commands or FakeCommands(),
        extractor=extractor or Extractor(clock, TaskGroup(), 10.0),  # of no use until it is opened
        channels=FakeChannels(),
        state=state or StateSettings(),
    )


def make_sql(root: Path, clock: Clock, engine: Engine | None = None, *, patience_s: float = 5.0) -> UserDatabase:
    """Make the scripts' database, which has to be entered before it is asked."""
    opening = Opening(path=root / "data/user.db", engine=engine, durability=Durability.NORMAL)
    return UserDatabase(opening, clock, spawner=SPAWNER, patience_s=patience_s)


def make_call(world: World | None = None, job: JobId = PRICES, **changes: object) -> Call:
    call = Call(world=world or make_world(), job=job, run=RunId(1), generation=1, folder=f"jobs/{job}")
    return structs.replace(call, **changes)


async def ask(call: Call, name: str, *arguments: object) -> Sequence[object]:
    """Return what the script gets of an op."""
    return list(await OpDispatcher(call).op(name, arguments))


def table(**fields: object) -> dict[object, object]:
    """Make a table as Lua sends it."""
    return {name.encode(): value for name, value in fields.items()}
