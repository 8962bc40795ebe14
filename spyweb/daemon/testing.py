"""Run the project's tests for `spyweb test`, in this process's own workers, on data that leaves nothing behind.

This works beside a running daemon: nothing here takes the lock or opens the project's database.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock, RealClock
from spyweb.daemon.engine_info import engine_info
from spyweb.daemon.testing_world import WorldFactory, open_world_factory
from spyweb.errors import Refused
from spyweb.lua.pool import Pool, open_pool
from spyweb.lua.session import Host
from spyweb.model import RunId
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.world import Call, JobLog
from spyweb.settings import Settings, load_settings
from spyweb.specs.discover import scan
from spyweb.testing.clock import VirtualClock
from spyweb.testing.results import LOADING, CaseResult, Report
from spyweb.testing.run import Progress, SuiteEnvironment, SuiteRunner
from spyweb.testing.suites import Suite, find_suites


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
    return [suite if allow_exec else replace(suite, policy=suite.policy.without_exec()) for suite in suites]


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
        environments = Environments(pool=pool, worlds=worlds, clock=clock, virtual_time=selection.virtual_time)
        runner = SuiteRunner(pool=pool, clock=clock, open_environment=environments.open, progress=progress)
        return await runner.run(suites, selection.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """Opens the environments in which suites run."""

    pool: Pool
    worlds: WorldFactory
    clock: Clock
    virtual_time: bool

    @asynccontextmanager
    async def open(self, suite: Suite) -> AsyncIterator[SuiteEnvironment]:
        if not suite.server:
            yield JobEnvironment(self, suite)
            return
        from spyweb.daemon.testing_server import open_server_environment  # few projects have one, and it imports much

        clock = self.test_clock()
        opening = open_server_environment(suite, self.pool, self.worlds, clock, is_virtual=self.virtual_time)
        async with opening as environment:
            yield environment

    def test_clock(self) -> Clock:
        return VirtualClock(self.clock) if self.virtual_time else self.clock


class JobEnvironment:
    """Gives every test of a job a database of its own."""

    def __init__(self, environments: Environments, suite: Suite) -> None:
        self._environments = environments
        self._suite = suite

    @property
    def options(self) -> Mapping[str, object]:
        return {"virtual_time": self._environments.virtual_time}

    @asynccontextmanager
    async def host(self, run: RunId, log: JobLog) -> AsyncIterator[Host]:
        suite = self._suite
        async with self._environments.worlds.open(self._environments.test_clock()) as world:
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
