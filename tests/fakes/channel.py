"""A channel to a run without a worker: what is sent is kept, and ops are answered from a table."""

from __future__ import annotations

import asyncio
from asyncio import Future, TaskGroup
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from spyweb.histogram import Histogram
from spyweb.lua import wire
from spyweb.lua.channel import RunChannel
from spyweb.lua.connection import WorkerConnection
from spyweb.lua.session import Code, Lineage, PendingRun, Request
from spyweb.lua.wire import Message, OpCall, PackedOpCall, ResumeRun
from spyweb.model import JobId, RunId
from spyweb.ops import catalog  # noqa: F401 - it fills the catalogue
from tests.fakes.clock import FakeClock

Answer = Callable[[Sequence[object]], Awaitable[Sequence[object]]]


@dataclass
class Recorder(WorkerConnection):
    """A connection that keeps what is sent."""

    sent: list[Message] = field(default_factory=list)
    bulk: list[Message] = field(default_factory=list)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_bulk(self, message: Message) -> None:
        self.bulk.append(message)


@dataclass
class ScriptedHost:
    """Ops by name."""

    ops: dict[str, Answer]
    lineages: list[Lineage] = field(default_factory=list)  # who has asked for each op
    ended: list[Lineage] = field(default_factory=list)  # branches
    lines: list[tuple[str, bytes]] = field(default_factory=list)

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Sequence[object]]:
        self.lineages.append(lineage)
        return self.ops[name](arguments)

    def end_branch(self, lineage: Lineage) -> None:
        self.ended.append(lineage)

    def log(self, level: str, text: bytes) -> None:
        if level == "broken":
            raise RuntimeError("no disk")
        self.lines.append((level, text))


@dataclass
class ChannelHarness:
    clock: FakeClock
    connection: Recorder
    host: ScriptedHost
    channel: RunChannel
    overdue: list[RunChannel]
    asked: int = 0

    def ask(self, name: str, *values: wire.Scalar, number: int | None = None) -> None:
        self.asked += 1
        self.channel.own.ask(OpCall(1, number or self.asked, name, list(values)))

    def ask_packed(self, name: str, packed: bytes, elements: int) -> None:
        self.asked += 1
        self.channel.own.ask(PackedOpCall(1, self.asked, name, packed, elements))

    @property
    def answers(self) -> list[list[object]]:
        return [[sent.form, *sent.values] for sent in self.connection.sent if isinstance(sent, ResumeRun)]


def done(*results: object) -> Future[Sequence[object]]:
    future: Future[Sequence[object]] = asyncio.get_running_loop().create_future()
    future.set_result(results)
    return future


def pending() -> Future[Sequence[object]]:
    return asyncio.get_running_loop().create_future()


@asynccontextmanager
async def open_channel(times: Mapping[str, Histogram] | None = None) -> AsyncIterator[ChannelHarness]:
    clock, connection, host, overdue = FakeClock(), Recorder(), ScriptedHost({}), list[RunChannel]()
    code = Code(job=JobId("a"), generation=1, chunk="jobs/a.lua", source=b"")
    request = Request(run=RunId(1), code=code, timeout_ms=2000, cpu_limit_ms=500, arguments=({"job": "a"}, True))
    async with TaskGroup() as tasks:
        ending = asyncio.get_running_loop().create_future()
        pending = PendingRun(request=request, host=host, ending=ending, op_times=times or {})
        channel = RunChannel(pending, 9, connection=connection, clock=clock, tasks=tasks, overdue=overdue.append)
        yield ChannelHarness(clock, connection, host, channel, overdue)
        channel.close()
