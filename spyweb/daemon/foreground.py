"""What a person does without a daemon: run one job here and now, or have every file checked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from spyweb.clock import Clock, RealClock
from spyweb.daemon.engine_info import engine_info
from spyweb.daemon.runtime import Runtime, keep_history, open_runtime
from spyweb.errors import STORE_REFUSED, ConfigError, Problem, Refused
from spyweb.extraction.pool import open_extractor
from spyweb.lua.pool import open_pool
from spyweb.lua.session import Code
from spyweb.model import Ending, JobId, JobSpec, Run
from spyweb.reload.proof import find_selector_problems, judge
from spyweb.reload.settings_file import is_emptied
from spyweb.reload.swap import make_live_job
from spyweb.runs.claims import by_hand
from spyweb.runs.live import code_of
from spyweb.settings import Settings, examine_settings, load_settings
from spyweb.settings.sections import FILE
from spyweb.specs.discover import JobFile, Scan, scan
from spyweb.specs.server_file import read_all
from spyweb.specs.tree import EMPTY, read_source
from spyweb.specs.watches import watches_of
from spyweb.store.interchange.foreign_spyweb import DATA_FILE, describe_data_file
from spyweb.store.lock import hold_lock
from spyweb.testing.suites import FILE as TESTS
from spyweb.views.jobs import RunEnded, RunEvent, find_job, log_line, run_ended, unknown_job

log = structlog.get_logger()

SENDING_S = 5.0  # how long messages may take after a run
BROKEN = JobId("-")  # of files whose settings are wrong too: whose they are is not known for sure


@dataclass(slots=True)
class RunRelay:
    """An observer that hands each event on at once."""

    on_event: Callable[[RunEvent], None]
    clock: Clock
    over: asyncio.Future[RunEnded] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def log(self, level: str, text: bytes) -> None:
        self._show(log_line(level, text, self.clock.now_ms()))

    def ended(self, run: Run, ending: Ending) -> None:
        event = run_ended(run, ending, self.clock.now_ms())
        self._show(event)
        if not self.over.done():  # Ctrl-C has ended the waiting, and this is what became of the run
            self.over.set_result(event)

    def _show(self, event: RunEvent) -> None:
        """Where nobody reads any more (`spyweb run JOB | head`) the waiting ends."""
        try:
            self.on_event(event)
        except OSError as error:
            if not self.over.done():
                self.over.set_exception(error)


async def run_once(
    root: Path,
    flags: Mapping[str, object],
    job: str,
    on_event: Callable[[RunEvent], None],
    on_sending: Callable[[int], None],
    *,
    debug: bool = False,
) -> RunEnded:
    """Run a job once, by name or id, in this process's own workers.  Recorded as manual; nothing follows it.

    Whoever asks is told of its messages that are about to be sent, and how many they are.
    """
    settings = load_settings(root, environ=os.environ, flags=flags)
    found = scan(root, settings)
    file = find_file(found, job)
    async with foreground(settings) as runtime:
        runtime.store.events.watch(watches_of(each.spec for each in found.jobs.values()))  # for the next daemon
        watching = RunRelay(on_event, runtime.clock)
        live = make_live_job(file)
        runtime.live.add(live)
        runtime.live.link()
        await runtime.runner.start_by_hand(live, by_hand(watching, debug=debug))
        over = await watching.over
        await send_messages(runtime, live.id, on_sending)
        return over


async def send_messages(runtime: Runtime, job: JobId, on_sending: Callable[[int], None]) -> None:
    """What does not arrive in time, or what the store does not take, is left for the daemon."""
    try:
        count = len(await runtime.courier.due(job))
        if count:
            on_sending(count)
            await runtime.courier.send_due(job, SENDING_S)
    except STORE_REFUSED as error:
        log.error("messages are left for the daemon", reason=str(error))


@asynccontextmanager
async def foreground(settings: Settings) -> AsyncIterator[Runtime]:
    clock = RealClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(hold_lock(settings.daemon.data_dir, root=settings.root, clock=clock))
        settings = replace(settings, daemon=replace(settings.daemon, workers=1))
        runtime = await open_runtime(stack, settings, clock, echo=False)
        runtime.live.on_linked(lambda: keep_history(runtime.live, runtime.store, settings))
        try:
            yield runtime
        finally:
            await runtime.runner.drain(0)  # Ctrl-C: what runs is stopped, and recorded so


def find_file(found: Scan, job: str) -> JobFile:
    job_id = find_job([file.spec for file in found.jobs.values()], job)
    if job_id is not None:
        return found.jobs[job_id]
    broken = [problem for name, problems in found.broken.items() if name == job for problem in problems]
    if broken:
        raise ConfigError(broken)
    raise Refused(unknown_job([*found.jobs, *found.broken], job))


async def check_project(root: Path) -> list[Problem]:
    """Every problem in every file, compile errors and warnings included."""
    settings, problems = examine_settings(root, environ=os.environ, flags={})
    found = await asyncio.to_thread(scan, root, settings)
    specs = [*(file.spec for file in found.jobs.values()), *found.broken_specs]
    compiled = await compile_all(settings, found, specs)
    failed = [*compiled, *await parse_selectors(specs)]
    uncompiled = {problem.file for problem in compiled if not problem.is_warning}
    doubts = [warning for warning in found.warnings if warning.file not in uncompiled]
    if is_emptied(root):
        doubts.append(Problem(FILE, None, None, EMPTY, is_warning=True))
    if what := describe_data_file(root / DATA_FILE):
        doubts.append(Problem(DATA_FILE, None, None, what, is_warning=True))
    return sorted({*problems, *found.problems, *failed, *doubts}, key=_where)


def _where(problem: Problem) -> tuple[object, ...]:
    return problem.file, problem.line or 0, problem.key or "", problem.reason


def each_alone(code: Code) -> list[Code]:
    """Its files, so that a problem in one hides none in another."""
    files = ((code.chunk, code.source), *code.more)
    return [replace(code, chunk=chunk, source=source, more=()) for chunk, source in files if source]


def tests_of(root: Path, spec: JobSpec) -> list[Code]:
    """A job's own tests; what can't be read is told by whoever runs them."""
    path = f"{spec.folder}/{TESTS}"
    source = read_source(root, path) if (root / path).is_file() else b""
    if isinstance(source, Problem) or not source:
        return []
    return [Code(job=spec.id, generation=0, chunk=path, source=source, memory_limit=spec.memory_limit)]


async def parse_selectors(specs: Sequence[JobSpec]) -> list[Problem]:
    async with open_extractor(RealClock()) as selectors:
        return [
            problem
            for spec in specs
            if spec.monitor
            for problem in await find_selector_problems(selectors.find_selector_problem, spec, spec.monitor)
        ]


async def compile_all(settings: Settings, found: Scan, specs: Sequence[JobSpec]) -> list[Problem]:
    async with open_pool(clock=RealClock(), workers=1, init=engine_info(settings, None)) as pool:
        codes = [code for file in found.jobs.values() for code in each_alone(code_of(file, 0))]
        codes += [code for spec in specs for code in tests_of(settings.root, spec)]
        codes += [Code(job=BROKEN, generation=0, chunk=path, source=source) for path, source in found.broken_lua]
        of_server, told = read_all(settings.root)
        verdicts = [await judge(pool.check(code), code) for code in [*codes, *of_server]]
    return [*told, *(verdict.problem for verdict in verdicts if verdict.problem)]
