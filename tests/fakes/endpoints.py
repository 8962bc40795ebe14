"""Serve endpoints whose handlers are Python functions: each carries out a request, given its Host."""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from spyweb.endpoints import Endpoints, ServerVersion
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Lineage, Request
from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Outcome, RunId
from spyweb.specs.server_file import code_of_server
from tests.fakes.clock import FakeClock

Handler = Callable[[Mapping[str, object], Host], Awaitable[Ending]]

KILLED = {
    Why.TIMEOUT: Ending(outcome=Outcome.FAILED, failure=Failure.TIMEOUT, reason="timed out"),
    Why.STOPPED: Ending(outcome=Outcome.STOPPED, reason="stopped"),
}


async def say_hello(_asked: Mapping[str, object], _host: Host) -> Ending:
    return Ending(outcome=Outcome.SUCCESS, result=[200, b"hello"])


async def hang(_asked: Mapping[str, object], _host: Host) -> Ending:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


class FakeHost:
    """Returns what it is given, and counts what it was asked."""

    def __init__(self, story: list[str]) -> None:
        self._story = story

    def end_branch(self, lineage: Lineage) -> None: ...

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Sequence[object]]:
        self._story.append(f"{name} {arguments[0]!r}")
        future: asyncio.Future[Sequence[object]] = asyncio.get_running_loop().create_future()
        future.set_result(arguments)
        return future

    def log(self, level: str, text: bytes) -> None:
        self._story.append(f"{level}: {text.decode()}")


class FakeEndpointPool(Pool):
    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[Request] = []
        self._numbers = count(1)
        self._running: dict[RunId, asyncio.Future[Ending]] = {}

    def new_id(self) -> RunId:
        return RunId(next(self._numbers))

    async def run(self, request: Request, host: Host, *, is_fresh: bool = False) -> Ending:
        self.requests.append(request)
        ending = self._running[request.run] = asyncio.get_running_loop().create_future()
        (asked,) = request.arguments
        async with TaskGroup() as tasks:
            work = tasks.create_task(_contained(self.handler(asked, host)))  # type: ignore[arg-type]
            await asyncio.wait(list[asyncio.Future[Any]]([work, ending]), return_when=asyncio.FIRST_COMPLETED)
            work.cancel()
        if ending.done():
            return cast(Ending, ending.result())
        result = work.result()
        return Ending(outcome=Outcome.LOST, reason=str(result)) if isinstance(result, Exception) else result

    def finish(self, run: RunId) -> None:
        self._running[run].set_result(Ending(outcome=Outcome.SUCCESS, result=[200, b""]))

    def cancel(self, run: RunId, why: Why) -> None:
        if not self._running[run].done():
            self._running[run].set_result(KILLED[why])


async def _contained(work: Awaitable[Ending]) -> Ending | Exception:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - a test's own
        return error


@dataclass
class Served:
    """The endpoints under test, with their fake pool and clock."""

    endpoints: Endpoints
    pool: FakeEndpointPool
    clock: FakeClock
    story: list[str] = field(default_factory=list)  # ops, log lines, ends of runs
    failures: list[str] = field(default_factory=list)


def version_of(source: bytes = b"", generation: int = 1) -> ServerVersion:
    return ServerVersion(codes=[code_of_server(source, generation)])


@asynccontextmanager
async def serve(handler: Handler = say_hello, clock: FakeClock | None = None) -> AsyncIterator[Served]:
    async with TaskGroup() as tasks:
        served = make_served(handler, tasks, clock or FakeClock())
        yield served
        await served.endpoints.close(0)


def make_served(handler: Handler, tasks: TaskGroup, clock: FakeClock) -> Served:
    pool, story, failures = FakeEndpointPool(handler), list[str](), list[str]()

    def host_for(_code: Code, _run: RunId) -> Host:
        return FakeHost(story)

    endpoints = Endpoints(
        pool=pool,
        clock=clock,
        tasks=tasks,
        host_for=host_for,
        run_ended=lambda run: story.append(f"ended {run}"),
        note_failure=lambda asked, reason: failures.append(f"{asked}: {reason}"),
    )
    endpoints.version = version_of()
    return Served(endpoints=endpoints, pool=pool, clock=clock, story=story, failures=failures)
