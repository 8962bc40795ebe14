"""Find the suites of a project, one for each job with Lua and one for its server, and run them.

A suite's files are read here; Lua finds the tests in them.  Suites run side by side, the tests of a suite one after
another, and every test in its own VM.
"""

from __future__ import annotations

from asyncio import Semaphore, TaskGroup
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from msgspec import Struct, field
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import PoolError, Problem, Refused, ScriptError, SpywebError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code, Host, Procedure, Request
from spyweb.model import Ending, Isolation, JobId, Outcome, RunId
from spyweb.ops.world import JobLog
from spyweb.permissions.policy import ANYTHING, Policy
from spyweb.runs.live import code_of
from spyweb.specs.discover import Scan
from spyweb.specs.linting.luau import with_hint
from spyweb.specs.parse import JobFile
from spyweb.specs.server_file import FOLDER as SERVER_FOLDER
from spyweb.specs.server_file import INIT, SERVER, TESTS, code_of_server, find_files
from spyweb.specs.tree import is_there, read_source
from spyweb.testing.results import LOADING, CaseResult, OutputBuffer
from spyweb.views.jobs import find_job, unknown_job
from spyweb.views.runs import copied, log_line

FILE = "tests.lua"  # in a job's folder
MARK = b"test_"  # how the name of a test begins
SERVER_TITLE = "server"
SERVER_TESTS = JobId(f"{SERVER}/tests")  # the owner of these VMs, which answer no requests
TIMEOUT_MS, CPU_LIMIT_MS = 300_000, 10_000  # of a server's test: the defaults of a job


class Suite(Struct, frozen=True, kw_only=True):
    """Describes the tests of one job, or of the server."""

    title: str  # the job's id
    job: JobId  # whose stored keys and modules the tests see
    folder: str
    code: Code  # all files that a test's VM executes
    finding: Code  # the files in which tests are looked for
    agent: str = "local"
    timeout_ms: int = TIMEOUT_MS
    cpu_limit_ms: int = CPU_LIMIT_MS
    is_monitor: bool = False
    policy: Policy = ANYTHING
    server: bytes | None = None  # the source of the server that answers while they run


class FoundSuites(Struct):
    """The suites of a project, and those whose files can't be read or do not load."""

    suites: list[Suite] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)  # title and reason


def find_suites(root: Path, scanned: Scan, wanted: str | None, of_server: Policy = ANYTHING) -> FoundSuites:
    """Find the suites of one job, by name or id, of the `server`, or all.  Raises Refused when there is no such job."""
    found = FoundSuites()
    if wanted is None:
        for file in sorted(scanned.jobs.values(), key=lambda file: file.spec.id):
            _add_job(found, root, file)
        found.broken += [(job, _in_one_line(problems)) for job, problems in sorted(scanned.broken.items())]
        of_jobs = {problem for problems in scanned.broken.values() for problem in problems}
        others = [problem for problem in scanned.problems if problem not in of_jobs and is_there(root / problem.file)]
        found.broken += [(problem.file, str(problem)) for problem in others]
        _add_server(found, root, of_server)
        return found
    if wanted == SERVER_TITLE:
        _add_server(found, root, of_server)
        if not (found.suites or found.broken):
            there = [path for path in (INIT, TESTS) if is_there(root / path)]
            raise Refused(f"tests of the server need {INIT} and {TESTS}: there is {there[0] if there else 'neither'}")
    job = find_job([file.spec for file in scanned.jobs.values()], wanted)
    if job is not None:
        _add_job(found, root, scanned.jobs[job], by_name=True)
    elif wanted in scanned.broken:
        found.broken.append((wanted, _in_one_line(scanned.broken[JobId(wanted)])))
    elif not (found.suites or found.broken):
        raise Refused(unknown_job([*scanned.jobs, *scanned.broken], wanted))
    return found


def _add_job(found: FoundSuites, root: Path, file: JobFile, *, by_name: bool = False) -> None:
    """Add the suite of a job, unless it has no tests: its files are not executed just to find that out."""
    spec, path = file.spec, f"{file.spec.folder}/{FILE}"
    tests = read_source(root, path) if is_there(root / path) else b""
    if isinstance(tests, Problem):
        found.broken.append((spec.id, str(tests)))
        return
    if not tests and not by_name and not any(MARK in source for _, source in file.lua):
        return
    code = code_of(file, 1)
    if tests and code.source:
        code = replace(code, more=(*code.more, (path, tests)))
    elif tests:
        code = replace(code, chunk=path, source=tests, more=())
    is_monitor = spec.monitor is not None
    found.suites.append(copied(Suite, spec, title=spec.id, job=spec.id, code=code, finding=code, is_monitor=is_monitor))


def _add_server(found: FoundSuites, root: Path, policy: Policy) -> None:
    """Add the suite of the server, unless one of its two files is missing; its tests share a worker."""
    sources, problems = find_files(root)
    if problems:
        found.broken.append((SERVER_TITLE, _in_one_line(problems)))
        return
    if INIT not in sources or TESTS not in sources:
        return
    code = replace(code_of_server(sources[INIT], 1, policy=policy), job=SERVER_TESTS, isolation=Isolation.SHARED)
    found.suites.append(
        Suite(
            title=SERVER_TITLE,
            job=SERVER,
            folder=SERVER_FOLDER,
            code=replace(code, more=((TESTS, sources[TESTS]),)),
            finding=replace(code, chunk=TESTS, source=sources[TESTS]),
            policy=policy,
            server=sources[INIT],
        )
    )


def _in_one_line(problems: Iterable[Problem]) -> str:
    return "; ".join(map(str, problems))


AT_ONCE = 16  # suites under way
SPARES = 2  # VMs that are ready for a suite's next tests
TRIES = 3  # of a test whose worker another test has ended


class SuiteEnvironment(Protocol):
    """Answers the ops of the tests of one suite."""

    @property
    def options(self) -> Mapping[str, object]:
        """Return the options of a test's VM besides its `ctx` (lua/session.py: Procedure)."""

    def host(self, run: RunId, log: JobLog) -> AbstractAsyncContextManager[Host]:
        """Open the host that answers the ops of one test, for as long as the test takes."""


class Progress(Protocol):
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
                    return [self._reported((await self._execute(suite, environment, name))[1]) for name in names]
                finally:
                    self.pool.retire(suite.code.job, suite.code.generation + 1)
        except SpywebError as error:
            return [self._reported(CaseResult(suite=suite.title, test=LOADING, passed=False, reason=str(error)))]

    def _reported(self, result: CaseResult) -> CaseResult:
        self.progress.ended(result)
        return result

    async def _find_tests(self, suite: Suite, environment: SuiteEnvironment) -> list[bytes] | CaseResult:
        """Return the names of a suite's tests, sorted, or a failure that says why its files do not load."""
        ending, result = await self._execute(suite, environment, None)
        if result.passed:
            return list(cast("Sequence[bytes]", ending.result or ()))
        try:
            await self.pool.check(suite.finding)
        except ScriptError as error:  # a compile error: the hint names the construct
            problem = error.problem
            return replace(result, reason=str(with_hint(problem, suite.finding.source_of(problem.file))))
        except PoolError:
            pass
        return result

    async def _execute(
        self, suite: Suite, environment: SuiteEnvironment, test: bytes | None
    ) -> tuple[Ending, CaseResult]:
        """Execute a test, or find the tests of a suite; repeat it when another test has ended the worker."""
        for _ in range(TRIES):
            ending, result = await self._try(suite, environment, test)
            if ending.outcome is not Outcome.LOST or ending.guilty:
                break
        return ending, result

    async def _try(self, suite: Suite, environment: SuiteEnvironment, test: bytes | None) -> tuple[Ending, CaseResult]:
        run, output = self.pool.new_id(), OutputBuffer()

        def note(level: str, text: bytes) -> None:
            output.add(log_line(level, text, self.clock.now_ms()))

        options = {**environment.options, "ctx": ctx_for(suite, run, self.clock.now_ms())}
        request = Request(
            run=run,
            code=suite.finding if test is None else suite.code,
            timeout_ms=suite.timeout_ms,
            cpu_limit_ms=suite.cpu_limit_ms,
            procedure=Procedure.TESTS if test is None else Procedure.TEST,
            arguments=(options,) if test is None else (test, options),
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
            test=LOADING if test is None else test.decode("utf-8", "backslashreplace"),
            passed=ending.outcome is Outcome.SUCCESS,
            duration_ms=duration_ms,
            reason=ending.reason,
            traceback=ending.traceback,
            output=output.all(),
        )


def ctx_for(suite: Suite, run: RunId, now_ms: int) -> Mapping[str, object]:
    """Make the `ctx` of a test: as in a manual run; for a monitor, as in its first worker."""
    now = now_ms / 1000
    about: dict[str, object] = {"job": str(suite.job), "run_id": int(run), "attempt": 1}
    about |= {"scheduled_at": now, "started_at": now, "trigger": {"type": "manual"}}
    if suite.is_monitor:
        about["worker_id"] = 1
    return {} if suite.server else about
