"""Run suites side by side, the tests of each one after another, and every test in a VM of its own."""

from __future__ import annotations

from asyncio import Semaphore, TaskGroup
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import PoolError, ScriptError, SpywebError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Procedure, Request
from spyweb.model import Ending, Outcome, RunId
from spyweb.ops.world import JobLog
from spyweb.specs.linting.luau import with_hint
from spyweb.testing.results import LOADING, CaseResult, OutputBuffer
from spyweb.testing.suites import Suite
from spyweb.views.runs import log_line

AT_ONCE = 16  # suites under way
SPARES = 2  # VMs that are ready for a suite's next tests
TRIES = 3  # of a test whose worker died of another one


class SuiteEnvironment(Protocol):
    """Answers the ops of the tests of one suite."""

    @property
    def options(self) -> Mapping[str, object]:
        """Return what a test's VM is told besides its `ctx` (lua/session.py: Procedure)."""

    def host(self, run: RunId, log: JobLog) -> AbstractAsyncContextManager[Host]:
        """Open what answers the ops of one test, for as long as it takes."""


class Progress(Protocol):
    """Shows the tests as they go."""

    def found(self, suite: str, tests: int) -> None: ...

    def ended(self, result: CaseResult) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRunner:
    """Runs suites in the workers of a pool; each suite gets its environment from `open_environment`."""

    pool: Pool
    clock: Clock
    open_environment: Callable[[Suite], AbstractAsyncContextManager[SuiteEnvironment]]
    progress: Progress

    async def run(self, suites: Sequence[Suite], pattern: str) -> list[CaseResult]:
        """Run those tests whose name holds the pattern.  Gives their results in the order of the suites."""
        free, wanted = Semaphore(AT_ONCE), pattern.encode("utf-8", "surrogateescape")

        async def in_turn(suite: Suite) -> list[CaseResult]:
            async with free:
                return await self._run_suite(suite, wanted)

        async with TaskGroup() as tasks:
            running = [tasks.create_task(in_turn(suite), name=f"test {suite.title}") for suite in suites]
        return [result for task in running for result in task.result()]

    async def _run_suite(self, suite: Suite, pattern: bytes) -> list[CaseResult]:
        try:
            async with self.open_environment(suite) as environment:
                found = await self._find_tests(suite, environment)
                if isinstance(found, CaseResult):
                    return [self._reported(found)]
                names = [name for name in found if pattern in name]
                self.progress.found(suite.title, len(names))
                if len(names) > 1:
                    self.pool.keep_spares(suite.code, min(SPARES, len(names)))
                try:
                    return [await self._run_test(suite, environment, name) for name in names]
                finally:
                    self.pool.retire(suite.code.job, suite.code.generation + 1)
        except SpywebError as error:
            return [self._reported(CaseResult(suite=suite.title, test=LOADING, passed=False, reason=str(error)))]

    def _reported(self, result: CaseResult) -> CaseResult:
        self.progress.ended(result)
        return result

    async def _find_tests(self, suite: Suite, environment: SuiteEnvironment) -> list[bytes] | CaseResult:
        """Return the names of a suite's tests, sorted, or a failure that says why its files do not load."""
        case = CaseRequest(suite, LOADING, suite.finding, Procedure.TESTS)
        ending, result = await self._execute(case, environment)
        if result.passed:
            return list(cast("Sequence[bytes]", ending.result or ()))
        try:
            await self.pool.check(suite.finding)
        except ScriptError as error:  # the compiler complains: it is told which construct is meant
            problem = error.problem
            return replace(result, reason=str(with_hint(problem, suite.finding.source_of(problem.file))))
        except PoolError:
            pass
        return result

    async def _run_test(self, suite: Suite, environment: SuiteEnvironment, name: bytes) -> CaseResult:
        shown = name.decode("utf-8", "backslashreplace")
        _, result = await self._execute(CaseRequest(suite, shown, suite.code, Procedure.TEST, (name,)), environment)
        return self._reported(result)

    async def _execute(self, case: CaseRequest, environment: SuiteEnvironment) -> tuple[Ending, CaseResult]:
        """Execute a case; once more, from the beginning, when the test of another took the worker down."""
        for _ in range(TRIES):
            ending, result = await self._try(case, environment)
            if ending.outcome is not Outcome.LOST or ending.guilty:
                break
        return ending, result

    async def _try(self, case: CaseRequest, environment: SuiteEnvironment) -> tuple[Ending, CaseResult]:
        suite, run, output = case.suite, self.pool.new_id(), OutputBuffer()

        def note(level: str, text: bytes) -> None:
            output.add(log_line(level, text, self.clock.now_ms()))

        options = {**environment.options, "ctx": ctx_for(suite, run, self.clock.now_ms())}
        request = Request(
            run=run,
            code=case.code,
            timeout_ms=suite.timeout_ms,
            cpu_limit_ms=suite.cpu_limit_ms,
            procedure=case.procedure,
            arguments=(*case.arguments, options),
        )
        async with environment.host(run, note) as host:
            began = self.clock.monotonic()
            try:
                ending = await self.pool.run(request, host, is_fresh=True)
            except PoolError as error:
                ending = Ending(outcome=Outcome.FAILED, reason=str(error))
            duration_ms = (self.clock.monotonic() - began) * 1000
        return ending, CaseResult(
            suite=suite.title,
            test=case.test,
            passed=ending.outcome is Outcome.SUCCESS,
            duration_ms=duration_ms,
            reason=ending.reason,
            traceback=ending.traceback,
            output=output.all(),
        )


class CaseRequest(Struct, frozen=True):
    """Describes one thing to execute: a test, or the files in which tests are looked for."""

    suite: Suite
    test: str  # its name, as it is shown
    code: Code
    procedure: Procedure
    arguments: tuple[object, ...] = ()


def ctx_for(suite: Suite, run: RunId, now_ms: int) -> Mapping[str, object]:
    """Make the `ctx` of a test: that of a run by hand; for a monitor, that of its first worker."""
    now = now_ms / 1000
    about: dict[str, object] = {"job": str(suite.job), "run_id": int(run), "attempt": 1}
    about |= {"scheduled_at": now, "started_at": now, "trigger": {"type": "manual"}}
    if suite.is_monitor:
        about["worker_id"] = 1
    return {} if suite.server else about
