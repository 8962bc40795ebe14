"""Newer versions in place of older ones, or not at all.

Load, prove, swap, retire: the files are read and compared with the jobs that live; a newer version compiles in a
scratch VM before it takes the place of the older one, whose runs in flight end on the VM they began on.  What does not
load leaves the old version running and its problems on show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import structlog

from spyweb.clock import Clock
from spyweb.errors import ConfigError, PoolError, Problem, ScriptError
from spyweb.jobs.discover import JobFile, Scan, scan
from spyweb.jobs.live import LiveJob, LiveJobs, code_of
from spyweb.jobs.luau import explain
from spyweb.lua.session import Code
from spyweb.model import Cursor, JobId
from spyweb.reload.modules import Modules, changed_modules, module_codes
from spyweb.reload.plan import Plan, plan
from spyweb.settings import Settings

log = structlog.get_logger()

RESCAN_SECONDS = 60.0  # a safety net: some file systems tell of no change
PROOFS_AT_ONCE = 16  # scratch VMs: more of them make no start faster, and leave more memory behind


class Prover(Protocol):
    """What can tell whether a script compiles, and drop VMs of older versions (lua/pool.py)."""

    async def check(self, code: Code) -> None: ...

    def retire(self, job: JobId, older_than: int) -> None: ...


class Schedule(Protocol):
    """The part of the scheduler that hears of changes."""

    async def welcome(self, jobs: Sequence[LiveJob], known: Mapping[JobId, Cursor]) -> None: ...

    async def dismiss(self, jobs: Sequence[LiveJob]) -> None: ...

    async def note_absent(self, cursors: Sequence[Cursor]) -> list[Cursor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a reload works on; all of it is built by daemon.py."""

    root: Path
    live: LiveJobs
    prover: Prover
    modules: Modules
    schedule: Schedule
    read_settings: Callable[[], Settings]
    forget: Callable[[LiveJob], None]  # the runner's: what waits of a deleted job
    clock: Clock


class Reloader:
    """Keeps the live jobs what the files say."""

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts = parts
        self._live = parts.live
        self.settings = settings
        self.problems: Sequence[Problem] = ()  # everything wrong on disk, as of the last look
        self.broken: Mapping[JobId, Sequence[Problem]] = {}  # jobs whose file is wrong, live or not
        self._cursors: dict[JobId, Cursor] = {}  # of jobs that are to be welcomed, now or when they come back
        self._warnings: Sequence[Problem] = ()
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()

    async def load(self, known: Mapping[JobId, Cursor]) -> None:
        """Look at the disk for the first time; `known` are the cursors that an earlier daemon left."""
        self._cursors.update(known)
        await self._look()
        absent = [cursor for job, cursor in known.items() if self._live.find(job) is None and job not in self.broken]
        self._cursors.update({cursor.job: cursor for cursor in await self._parts.schedule.note_absent(absent)})

    async def rescan(self) -> None:
        """Look at the disk again, and bring about what changed."""
        self._read_settings()
        await self._look()

    async def _look(self) -> None:
        async with self._one_at_a_time:
            found = await asyncio.to_thread(scan, self._parts.root, self.settings)
            stale = await asyncio.to_thread(changed_modules, self._parts.modules, list(self._live))
            todo = plan(self._live, found.jobs, found.broken, stale)
            failed = await self._prove(todo, stale)
            await self._swap(todo, failed)
            self._note_problems(found, failed)

    def _read_settings(self) -> None:
        try:
            self.settings = self._parts.read_settings()
        except ConfigError as error:
            for problem in error.problems:
                log.error("settings not reloaded", problem=str(problem))

    async def _prove(self, todo: Plan, stale: Mapping[JobId, Sequence[str]]) -> dict[JobId, Problem]:
        """Compile what is new, in scratch VMs; gives what is wrong with those that don't."""
        codes = [code_of(file, 0) for file in todo.new]
        for job, file in todo.recoded:
            codes.append(code_of(file, 0))
            codes += await asyncio.to_thread(module_codes, self._parts.root, file, stale.get(job.id, ()))
        gate = asyncio.Semaphore(PROOFS_AT_ONCE)
        verdicts = await asyncio.gather(*(self._proof(code, gate) for code in codes))
        return {code.job: problem for code, problem in zip(codes, verdicts, strict=True) if problem}

    async def _proof(self, code: Code, gate: asyncio.Semaphore) -> Problem | None:
        async with gate:
            try:
                await self._parts.prover.check(code)
            except ScriptError as error:
                return with_hint(error.problem, code.source)
            except PoolError as error:
                return Problem(code.chunk, None, None, str(error))
        return None

    async def _swap(self, todo: Plan, failed: Mapping[JobId, Problem]) -> None:
        fresh = [newcomer(file) for file in todo.new if file.spec.id not in failed]
        recoded = [(job, file) for job, file in todo.recoded if job.id not in failed]
        for job in fresh:
            self._live.add(job)
        for job, file in recoded:
            self._replace(job, file)
        edited = [*recoded, *todo.respecified]
        self._cursors.update({job.id: job.cursor for job, _ in edited})
        for job, file in edited:
            job.spec = file.spec
        await self._dismiss(todo.gone)
        self._live.link()
        await self._parts.schedule.welcome([*fresh, *(job for job, _ in edited)], self._cursors)
        _tell(fresh, recoded, todo)

    def _replace(self, job: LiveJob, file: JobFile) -> None:
        """The newer version is proved: later runs start in a fresh VM, those in flight end in theirs."""
        self._parts.modules.forget(job.id, job.code.generation)
        job.code = code_of(file, job.code.generation + 1)
        job.digest = file.digest
        self._parts.prover.retire(job.id, job.code.generation)

    async def _dismiss(self, gone: Sequence[LiveJob]) -> None:
        if not gone:
            return
        await self._parts.schedule.dismiss(gone)
        for job in gone:
            self._cursors[job.id] = job.cursor
            self._live.remove(job.id)
            self._parts.forget(job)
            self._parts.prover.retire(job.id, job.code.generation + 1)
            self._parts.modules.forget(job.id, job.code.generation)

    def _note_problems(self, found: Scan, failed: Mapping[JobId, Problem]) -> None:
        broken = {**found.broken, **{job: [problem] for job, problem in failed.items()}}
        problems = [*found.problems, *failed.values()]
        for problem in problems:
            if problem not in self.problems:
                log.error("not loaded", problem=str(problem))
        for warning in found.warnings:
            if warning not in self._warnings:
                log.warning("doubtful", problem=str(warning))
        for ignored in found.ignored:
            log.debug("ignored", problem=str(ignored))
        for job in self._live:
            job.problems = broken.get(job.id, ())
        self.problems, self.broken, self._warnings = problems, broken, found.warnings

    def wake(self) -> None:
        """Something changed, or may have (SIGHUP): look soon."""
        self._changed.set()

    async def keep_up(self) -> None:
        """Rescan whenever something changed, and now and then in any case."""
        while True:
            timer = self._parts.clock.call_later(RESCAN_SECONDS, self._changed.set)
            await self._changed.wait()
            timer.cancel()
            self._changed.clear()
            await self.rescan()


def newcomer(file: JobFile) -> LiveJob:
    """A job that has just been found; the scheduler gives it its true cursor."""
    spec = file.spec
    return LiveJob(
        spec=spec, code=code_of(file, 1), digest=file.digest, cursor=Cursor(job=spec.id, due_ms=0, schedule="")
    )


def with_hint(problem: Problem, source: bytes) -> Problem:
    """Name the Luau construct that Lua 5.4 stumbled over, when it was one."""
    hint = explain(source.decode("utf-8", "replace"), problem.line or 1)
    return replace(problem, reason=f"{problem.reason} ({hint})") if hint else problem


def _tell(fresh: Sequence[LiveJob], recoded: Sequence[tuple[LiveJob, JobFile]], todo: Plan) -> None:
    for job in fresh:
        log.debug("job loaded", job=job.id)
    for job, _ in recoded:
        log.info("job reloaded", job=job.id, generation=job.code.generation)
    for job, _ in todo.respecified:
        log.info("job settings reloaded", job=job.id)
    for job in todo.gone:
        log.info("job gone", job=job.id)
