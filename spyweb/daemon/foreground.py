"""What a person does without a daemon: run one job here and now, or have every file checked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from spyweb.clock import Clock, RealClock
from spyweb.daemon.build import Parts, Purpose, build, init_facts
from spyweb.errors import ConfigError, Problem, Refused, ScriptError
from spyweb.jobs.discover import JobFile, Scan, scan
from spyweb.jobs.live import code_of
from spyweb.jobs.run import Start
from spyweb.jobs.view import RunEnded, RunEvent, find_job, log_line, run_ended
from spyweb.jobs.watches import watches_of
from spyweb.lua.pool import Pool, open_pool
from spyweb.model import Ending, Run, TriggerType
from spyweb.reload.swap import newcomer, with_hint
from spyweb.settings import Settings, examine_settings, load_settings
from spyweb.store.lock import hold_lock


@dataclass(slots=True)
class Watching:
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


async def run_once(root: Path, flags: Mapping[str, object], job: str, on_event: Callable[[RunEvent], None]) -> RunEnded:
    """Run a job once, by name or id, in this process's own workers.  Recorded as manual; nothing follows it."""
    settings = load_settings(root, environ=os.environ, flags=flags)
    found = scan(root, settings)
    file = find_file(found, job)
    async with foreground(settings) as parts:
        parts.store.events.watch(watches_of(each.spec for each in found.jobs.values()))  # for the next daemon
        watching = Watching(on_event, parts.clock)
        live = newcomer(file)
        parts.live.add(live)
        parts.live.link()
        start = Start(trigger={"type": TriggerType.MANUAL.value}, observer=watching)
        await parts.runner.start_by_hand(live, start)
        return await watching.over


@asynccontextmanager
async def foreground(settings: Settings) -> AsyncIterator[Parts]:
    clock = RealClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(hold_lock(settings.daemon.data_dir, root=settings.root, clock=clock))
        parts = await build(stack, settings, clock, Purpose(workers=1, echo=False))
        try:
            yield parts
        finally:
            await parts.runner.drain(0)  # Ctrl-C: what runs is stopped, and recorded so


def find_file(found: Scan, job: str) -> JobFile:
    job_id = find_job([file.spec for file in found.jobs.values()], job)
    if job_id is not None:
        return found.jobs[job_id]
    broken = [problem for name, problems in found.broken.items() if name == job for problem in problems]
    if broken:
        raise ConfigError(broken)
    raise Refused(f"no job is named {job!r}: `spyweb jobs` lists them")


async def check_project(root: Path) -> list[Problem]:
    """Every problem in every file, compile errors and warnings included."""
    settings, problems = examine_settings(root, environ=os.environ, flags={})
    found = await asyncio.to_thread(scan, root, settings)
    failed = await compile_all(settings, list(found.jobs.values()))
    doubts = [replace(warning, is_warning=True) for warning in found.warnings]
    return sorted({*problems, *found.problems, *failed, *doubts}, key=lambda problem: (problem.file, problem.line or 0))


async def compile_all(settings: Settings, files: list[JobFile]) -> list[Problem]:
    async with open_pool(clock=RealClock(), workers=1, init=init_facts(settings, None)) as pool:
        problems = [await compile_one(pool, file) for file in files]
    return [problem for problem in problems if problem]


async def compile_one(pool: Pool, file: JobFile) -> Problem | None:
    try:
        await pool.check(code_of(file, 0))
    except ScriptError as error:
        return with_hint(error.problem, file.source)
    return None
