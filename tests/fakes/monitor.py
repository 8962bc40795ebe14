"""A monitor job without network, Lua or HTML: addresses, hooks and pages are what the test says.

Whatever happens is a line of one story.
"""

from __future__ import annotations

import inspect
from asyncio import Task, TaskGroup, wait
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import cast

from msgspec import convert, structs

from spyweb.extraction.extractor import Extractor, Page
from spyweb.lua import wire
from spyweb.lua.hooks import HOOK_NAMES, LOAD, UNLOADED
from spyweb.lua.session import Code, Host, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Field, JobId, Monitor, Outcome, Run, RunId, RunState, Trigger
from spyweb.monitor.context import CycleServices
from spyweb.monitor.exchange import HostSlots
from spyweb.monitor.run import MonitorRunner
from spyweb.ops.files.files import Files
from spyweb.ops.network.request import Response
from spyweb.runs.live import LiveJob
from spyweb.runs.records import ctx_of
from tests.fakes.clock import FakeClock
from tests.fakes.harness import SilentHost, make_job
from tests.fakes.memory_store import MemoryStore
from tests.fakes.ops import FakeChannels, FakeHttp
from tests.fakes.pool import FakePool

SHOP = JobId("shop")
URL = "http://shop.example/"
BEGINS = "jobs/shop/hooks.lua:7"  # each of a FakeVms' hooks
Hook = Callable[..., object]  # (argument, ctx); may be a coroutine function
Items = Sequence[Mapping[str, str]]


class HookError(Exception):
    """Raised by a hook of FakeVms, as Lua raises an error."""


def page(url: str = URL, *, status: int = 200, body: bytes = b"<p>", kind: bytes = b"text/html") -> Response:
    return Response(status=status, body=body, headers={b"content-type": kind}, url=url.encode(), time_ms=5)


@dataclass(slots=True)
class FakeExtractor(Extractor):
    story: list[str]
    items: dict[str, Items] = field(default_factory=dict)  # by address
    otherwise: Items = ({"title": "Lamp", "price": "5"}, {"title": "Desk", "price": "90"})
    error: Exception | None = None
    pages: list[Page] = field(default_factory=list)

    async def extract(self, page: Page) -> list[dict[str, str]]:
        self.story.append("extract")
        self.pages.append(page)
        if self.error:
            raise self.error
        return [dict(item) for item in self.items.get(page.url, self.otherwise)]

    async def find_selector_problem(self, selector: str, *, of_field: bool = False) -> str | None:
        return None


class FakeVms(FakePool):
    """Fakes a pool whose VMs speak the `cycle` procedure with hooks written in Python."""

    def __init__(self, story: list[str], tasks: TaskGroup) -> None:
        super().__init__()
        self.story = story
        self.hooks: dict[str, Hook] = {}
        self.files: Hook | None = None  # executed in each new VM
        self.is_loaded = False
        self.contexts: list[dict[str, object]] = []
        self.memory = 1000
        self.cpu_ms = 0  # that each VM's run takes
        self._tasks = tasks
        self._ids = count(1 << 53)
        self._cycles: dict[RunId, tuple[Task[Ending], list[Why]]] = {}

    def new_id(self) -> RunId:
        return RunId(next(self._ids))

    @contextmanager
    def holding(self, code: Code) -> Iterator[None]:
        yield

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        if request.procedure != "cycle":
            return await super().run(request, host)
        self.requests.append(request)
        cycle = self._tasks.create_task(self._cycle(request, host))
        whys: list[Why] = []
        self._cycles[request.run] = (cycle, whys)
        await wait([cycle])
        del self._cycles[request.run]
        if whys:
            failure = Failure.TIMEOUT if whys[0] is Why.TIMEOUT else Failure.CANCELLED
            return Ending(outcome=Outcome.FAILED, failure=failure, reason=f"killed: {whys[0].name}")
        return cycle.result()

    def cancel(self, run: RunId, why: Why) -> None:
        if run in self._cycles:
            cycle, whys = self._cycles[run]
            self.story.append(f"kill {why.name.lower()}")
            whys.append(why)
            cycle.cancel()
        else:
            super().cancel(run, why)

    async def _cycle(self, request: Request, host: Host) -> Ending:
        ctx: dict[str, object] = {**request.arguments[0], "shared": {}}  # type: ignore[dict-item]
        self.contexts.append(ctx)
        told: list[object] = [self._defined(), self.memory]
        while True:
            answer = await host.op("_hook", told)
            if not answer:
                return Ending(outcome=Outcome.SUCCESS, cpu_ms=self.cpu_ms)
            name, argument, later = [*answer, None, None][:3]
            for key, packed in cast("dict[str, bytes]", later or {}).items():
                ctx[key] = wire.unpack(packed)[0] if packed else _crossed(argument)
            self.story.append(str(name) if ctx.get("worker_id", 1) == 1 else f"{name} of {ctx['worker_id']}")
            self.memory += 10
            try:
                value = await self._value(str(name), argument, ctx)
                told = [self._defined(), self.memory, b"ok", value, None, BEGINS.encode()]
            except HookError as error:
                told = [self._defined(), self.memory, b"error", None, str(error).encode(), b"stack traceback:"]

    async def _value(self, name: str, argument: object, ctx: dict[str, object]) -> object:
        if name == LOAD:
            await _maybe(self.files(ctx) if self.files else None)
            self.is_loaded = True
            return None
        hook, given = self.hooks[name], _crossed(argument)
        if name == "filter_item":
            verdicts = [(item, await _maybe(hook(item, ctx))) for item in given]  # type: ignore[attr-defined]
            return [item if verdict is True else verdict or False for item, verdict in verdicts]
        return _crossed(await _maybe(hook(given, ctx)))

    def _defined(self) -> int:
        return sum(1 << i for i, name in enumerate(HOOK_NAMES) if name in self.hooks) if self.is_loaded else UNLOADED


async def _maybe(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


def _crossed(value: object) -> object:
    """Return a value as it is on the other side: texts are bytes."""
    match value:
        case str():
            return value.encode()
        case Mapping():
            return {_crossed(key): _crossed(each) for key, each in value.items()}
        case list() | tuple():
            return [_crossed(each) for each in value]
        case _:
            return value


@dataclass(slots=True, kw_only=True)
class Shop:
    """Holds a monitor job and all that it needs."""

    clock: FakeClock
    store: MemoryStore
    http: FakeHttp
    extractor: FakeExtractor
    vms: FakeVms
    monitors: MonitorRunner
    tasks: TaskGroup
    story: list[str]
    host: SilentHost = field(default_factory=SilentHost)
    runs: count[int] = field(default_factory=lambda: count(1))

    async def run(self, job: LiveJob | None = None, **trigger: object) -> Ending:
        task = self.start(job, **trigger)
        await self.clock.turn()
        return await task

    def start(self, job: LiveJob | None = None, **trigger: object) -> Task[Ending]:
        job = job or make_monitor()
        told = convert({"type": "manual", **trigger}, Trigger)
        run = Run(id=RunId(next(self.runs)), job=job.id, state=RunState.RUNNING, trigger=told)
        return self.tasks.create_task(self.monitors.run(job, run, self.host, ctx_of(run)))

    async def records(self) -> list[dict[str, str]]:
        """List the fields of all records, oldest first."""
        return [dict(record.fields) for record in reversed(await self.store.records.list(limit=1000))]


@asynccontextmanager
async def shop(root: Path = Path("/nonexistent"), *, per_host: int = 100) -> AsyncIterator[Shop]:
    story: list[str] = []
    clock = FakeClock()
    store, http, extractor = MemoryStore(clock), FakeHttp(story=story, usual=page), FakeExtractor(story)
    services = CycleServices(
        http=http,
        slots=HostSlots(per_host),
        extractor=extractor,
        runs=store.runs,
        records=store.records,
        outbox=store.outbox,
        clock=clock,
        files=Files(root, clock),
        channels=FakeChannels(),
        timezone="UTC",
        random=lambda: 0.5,
    )
    async with TaskGroup() as tasks:
        vms = FakeVms(story, tasks)
        yield Shop(
            clock=clock,
            store=store,
            http=http,
            extractor=extractor,
            vms=vms,
            monitors=MonitorRunner(services, vms),
            tasks=tasks,
            story=story,
        )


def make_monitor(lua: bool = False, *, spec: Mapping[str, object] | None = None, **changes: object) -> LiveJob:
    monitor = Monitor(
        urls=(URL,),
        selector=".item",
        fields=(Field(name="title", selector="h2"), Field(name="price", selector=".price")),
    )
    job = make_job("shop")
    job.spec = structs.replace(job.spec, name="Shop", monitor=replace(monitor, **changes), **(spec or {}))  # type: ignore[arg-type]
    source = b"-- hooks" if lua else b""
    job.code = Code(job=job.id, generation=1, chunk="jobs/shop/hooks.lua", source=source)
    return job
