"""Runs suites side by side, the tests of each one after another, and every test in a VM of its own."""

from __future__ import annotations

from asyncio import Semaphore, TaskGroup
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Protocol, cast

from spyweb.clock import Clock
from spyweb.errors import PoolError, ScriptError, SpywebError
from spyweb.lua.procedures import Procedure
from spyweb.lua.session import Code, Host, Request
from spyweb.model import Ending, JobId, Outcome, RunId
from spyweb.ops.world import JobLog
from spyweb.specs.linting.luau import with_hint
from spyweb.testing.results import LOADING, CaseResult, OutputBuffer
from spyweb.testing.suites import Suite
from spyweb.views.jobs import log_line

AT_ONCE = 16  # suites under way
SPARES = 2  # VMs that are ready for a suite's next tests
TRIES = 3  # of a test whose worker died of another one


class Machine(Protocol):
    """What steps VMs (lua/pool.py)."""

    def new_id(self) -> RunId: ...

    async def check(self, code: Code) -> None: ...

    async def run_fresh(self, request: Request, host: Host) -> Ending: ...

    def keep_spares(self, code: Code, count: int) -> None: ...

    def retire(self, job: JobId, older_than: int) -> None: ...


class SuiteEnvironment(Protocol):
    """Where the tests of one suite run."""

    @property
    def options(self) -> Mapping[str, object]:
        """What a test's VM is told besides its `ctx` (lua/procedures.py)."""

    def host(self, run: RunId, log: JobLog) -> AbstractAsyncContextManager[Host]:
        """What answers the ops of one test, for as long as it takes."""


class Progress(Protocol):
    """Who is told as it goes."""

    def found(self, suite: str, tests: int) -> None: ...

    def ended(self, result: CaseResult) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What tests need."""

    machine: Machine
    clock: Clock
    open_environment: Callable[[Suite], AbstractAsyncContextManager[SuiteEnvironment]]
    progress: Progress


async def run_suites(around: Around, suites: Sequence[Suite], pattern: str) -> list[CaseResult]:
    """Those tests whose name holds the pattern, in the order of the suites."""
    free = Semaphore(AT_ONCE)

    async def in_turn(suite: Suite) -> list[CaseResult]:
        async with free:
            return await run_suite(around, suite, pattern.encode("utf-8", "surrogateescape"))

    async with TaskGroup() as tasks:
        running = [tasks.create_task(in_turn(suite), name=f"test {suite.title}") for suite in suites]
    return [result for task in running for result in task.result()]


async def run_suite(around: Around, suite: Suite, pattern: bytes) -> list[CaseResult]:
    try:
        async with around.open_environment(suite) as environment:
            return await _run_all(_Course(around, suite, environment), pattern)
    except SpywebError as error:
        failure = CaseResult(suite=suite.title, test=LOADING, passed=False, reason=str(error))
        around.progress.ended(failure)
        return [failure]


async def _run_all(course: _Course, pattern: bytes) -> list[CaseResult]:
    around, suite = course.around, course.suite
    found = await course.find()
    if isinstance(found, CaseResult):
        around.progress.ended(found)
        return [found]
    names = [name for name in found if pattern in name]
    around.progress.found(suite.title, len(names))
    if len(names) > 1:
        around.machine.keep_spares(suite.code, min(SPARES, len(names)))
    try:
        return [await course.run(name) for name in names]
    finally:
        around.machine.retire(suite.code.job, suite.code.generation + 1)


@dataclass(frozen=True, slots=True)
class _Course:
    """One suite under way."""

    around: Around
    suite: Suite
    environment: SuiteEnvironment

    async def find(self) -> list[bytes] | CaseResult:
        """The names of its tests, sorted; or why its files do not load."""
        ending, result = await self._perform(LOADING, self.suite.finding, Procedure.TESTS)
        if result.passed:
            return list(cast("Sequence[bytes]", ending.result or ()))
        return replace(result, reason=await self._explained(result.reason))

    async def run(self, name: bytes) -> CaseResult:
        shown = name.decode("utf-8", "backslashreplace")
        _, result = await self._perform(shown, self.suite.code, Procedure.TEST, name)
        self.around.progress.ended(result)
        return result

    async def _perform(
        self, test: str, code: Code, procedure: Procedure, *arguments: object
    ) -> tuple[Ending, CaseResult]:
        """Once more, and from the beginning, when another's test took the worker down."""
        for _ in range(TRIES):
            ending, result = await self._try(test, code, procedure, *arguments)
            if ending.outcome is not Outcome.LOST or ending.guilty:
                break
        return ending, result

    async def _try(self, test: str, code: Code, procedure: Procedure, *arguments: object) -> tuple[Ending, CaseResult]:
        machine, clock = self.around.machine, self.around.clock
        run, output = machine.new_id(), OutputBuffer()

        def note(level: str, text: bytes) -> None:
            output.add(log_line(level, text, clock.now_ms()))

        request = self._request(run, code, procedure, *arguments)
        async with self.environment.host(run, note) as host:
            began = clock.monotonic()
            try:
                ending = await machine.run_fresh(request, host)
            except PoolError as error:
                ending = Ending(outcome=Outcome.FAILED, reason=str(error))
            duration_ms = (clock.monotonic() - began) * 1000
        return ending, CaseResult(
            suite=self.suite.title,
            test=test,
            passed=ending.outcome is Outcome.SUCCESS,
            duration_ms=duration_ms,
            reason=ending.reason,
            traceback=ending.traceback,
            output=output.all(),
        )

    def _request(self, run: RunId, code: Code, procedure: Procedure, *arguments: object) -> Request:
        options = {**self.environment.options, "ctx": ctx_for(self.suite, run, self.around.clock.now_ms())}
        return Request(
            run=run,
            code=code,
            timeout_ms=self.suite.timeout_ms,
            cpu_limit_ms=self.suite.cpu_limit_ms,
            procedure=procedure,
            arguments=(*arguments, options),
        )

    async def _explained(self, reason: str) -> str:
        """Where it is the compiler that complains, with the construct that is meant."""
        code = self.suite.finding
        try:
            await self.around.machine.check(code)
        except ScriptError as error:
            return str(with_hint(error.problem, code.source_of(error.problem.file)))
        except PoolError:
            return reason
        return reason


def ctx_for(suite: Suite, run: RunId, now_ms: int) -> Mapping[str, object]:
    """As that of a run by hand; of a monitor, of its first worker."""
    now = now_ms / 1000
    about: dict[str, object] = {"job": str(suite.job), "run_id": int(run), "attempt": 1}
    about |= {"scheduled_at": now, "started_at": now, "trigger": {"type": "manual"}}
    if suite.is_monitor:
        about["worker_id"] = 1
    return {} if suite.server else about
