"""Newer versions in place of older ones, or not at all.

Load, prove, swap, retire: the files are read and compared with the jobs that live; a newer version compiles in a
scratch VM before it takes the place of the older one, whose runs in flight end on the VM they began on.  A monitor's
files must also have been executed, in the very VM that its cycles will use.  What does not load leaves the old version
running and its problems on show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from spyweb.clock import Clock
from spyweb.errors import ConfigError, PoolError, Problem, ScriptError, StoreError
from spyweb.lua.session import Code
from spyweb.model import Cursor, JobId, JobSpec, Monitor
from spyweb.reload.few import few_at_once
from spyweb.reload.modules import Modules, changed_modules, module_codes
from spyweb.reload.plan import Plan, not_loaded, plan, whose
from spyweb.runs.live import LiveJob, LiveJobs, code_of
from spyweb.settings import Settings
from spyweb.settings.fixed import waiting_for_a_start
from spyweb.settings.load import read_file
from spyweb.settings.sections import FILE
from spyweb.specs.discover import JobFile, Scan, scan
from spyweb.specs.linting.linting import Linter
from spyweb.specs.linting.luau import with_hint
from spyweb.specs.monitor_file import selector_problem
from spyweb.specs.tree import EMPTY

log = structlog.get_logger()

RESCAN_SECONDS = 60.0  # a safety net: some file systems tell of no change
PATIENCE = 5.0  # seconds before what the store refused, or no worker could be had for, is tried again
EXECUTION_PATIENCE = 600.0  # seconds before files that failed are executed again, if nothing about them changes
PROOFS_AT_ONCE = 16  # more of them make no start faster, and leave more memory behind

Problems = dict[JobId, list[Problem]]
Execute = Callable[[JobSpec, Code], Awaitable[None]]
FindSelectorProblems = Callable[[Monitor], Awaitable[Sequence[tuple[str, str]]]]


class Prover(Protocol):
    """What can tell whether a script compiles, and drop VMs (lua/pool.py)."""

    async def check(self, code: Code) -> None: ...

    def retire(self, job: JobId, older_than: int) -> None: ...

    def discard(self, job: JobId, generation: int) -> None: ...


class Schedule(Protocol):
    """The part of the scheduler that hears of changes."""

    async def catch_up(self, jobs: Sequence[LiveJob]) -> None: ...

    async def welcome(self, jobs: Sequence[LiveJob], known: Mapping[JobId, Cursor]) -> None: ...

    async def dismiss(self, jobs: Sequence[LiveJob]) -> None: ...

    async def note_absent(self, cursors: Sequence[Cursor]) -> list[Cursor]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a reload works on; all of it is built by daemon.py."""

    root: Path
    live: LiveJobs
    prover: Prover
    execute: Execute  # a monitor's files, in the VM of this version; raises ScriptError or PoolError
    modules: Modules
    schedule: Schedule
    read_settings: Callable[[], Settings]
    forget: Callable[[LiveJob], None]  # the runner's: what waits of a deleted job
    clock: Clock
    find_selector_problems: FindSelectorProblems | None = None  # key and reason; None: nobody here can tell


@dataclass(slots=True)
class Looked:
    """What one look at the disk came to."""

    found: Scan
    stale: Mapping[JobId, Sequence[str]]  # modules that have changed
    broken: Mapping[JobId, Sequence[Problem]]
    failed: Problems = field(default_factory=dict)  # those that can be read, and can't be run
    uncompiled: set[str] = field(default_factory=set)  # their files that are no Lua


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a proof has found."""

    problem: Problem | None = None
    is_final: bool = True  # not where a worker was lost, which says nothing about the files


@dataclass(frozen=True, slots=True)
class Attempt:
    """Files that were executed and failed."""

    file: JobFile
    generation: int
    verdict: Verdict
    at: float  # by the monotonic clock


class Reloader:
    """Keeps the live jobs what the files say."""

    def __init__(self, parts: Parts, settings: Settings) -> None:
        self._parts = parts
        self._live = parts.live
        self.settings = settings
        self._first_settings = settings
        self._settings_problems: Sequence[str] = ()  # told already
        self._waiting: Sequence[str] = ()  # settings that were edited and take effect at the next start
        self.problems: Sequence[Problem] = ()  # everything wrong on disk, as of the last look
        self.broken: Mapping[JobId, Sequence[Problem]] = {}  # jobs whose file is wrong, live or not
        self._cursors: dict[JobId, Cursor] = {}  # of jobs that may come, or come back
        self._unwelcomed: dict[JobId, LiveJob] = {}  # that the scheduler has still to take up
        self._generations: dict[JobId, int] = {}  # the newest; a job that comes back goes on from there
        self._attempts: dict[JobId, Attempt] = {}
        self._linter = Linter(deferred=True)
        self.warnings: Sequence[Problem] = ()  # everything doubtful on disk, as of the last look
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
        before = self.settings
        await self._read_settings()
        if self.settings != before:
            self._live.link()
        await self._look()

    async def _look(self) -> None:
        async with self._one_at_a_time:
            found = await asyncio.to_thread(scan, self._parts.root, self.settings, self._linter)
            stale = await asyncio.to_thread(changed_modules, self._parts.modules, list(self._live))
            looked = Looked(found, stale, whose(self._live, found))
            todo = plan(self._live, found.jobs, looked.broken, stale)
            await self._prove(todo, looked)
            todo = todo.without(looked.failed)
            slow = todo.executing()
            await self._swap(todo.without({file.spec.id for file in slow.files()}))
            await self._execute(slow, looked)
            await self._swap(slow.without(looked.failed))
            self._note_problems(looked, await asyncio.to_thread(self._linter.finish))

    async def _read_settings(self) -> None:
        problems: Sequence[str] = ()
        if await asyncio.to_thread(is_emptied, self._parts.root):
            problems = [f"{FILE}: {EMPTY}"]
        else:
            try:
                self.settings = await asyncio.to_thread(self._parts.read_settings)
            except ConfigError as error:
                problems = [str(problem) for problem in error.problems]
        for problem in problems:
            if problem not in self._settings_problems:  # a log in the project's folder would be a change to look at
                log.error("settings not reloaded", problem=problem)
        self._settings_problems = problems
        waiting = waiting_for_a_start(self._first_settings, self.settings)
        if waiting and waiting != self._waiting:
            log.warning("settings take effect at the next start", settings=waiting)
        self._waiting = waiting

    async def _prove(self, todo: Plan, looked: Looked) -> None:
        """Compile what is new, in scratch VMs, and look at what it selects."""
        codes = [code_of(file, 0) for file in todo.new]
        for _, file in todo.recoded:
            codes += await self._with_modules(code_of(file, 0), looked)
        codes = [code for code in codes if code.source]
        for code, problem in zip(codes, await few_at_once(PROOFS_AT_ONCE, self._proof, codes), strict=True):
            if problem:
                looked.failed.setdefault(code.job, []).append(problem)
                looked.uncompiled.add(problem.file)
        await self._prove_selectors(todo, looked)

    async def _with_modules(self, code: Code, looked: Looked) -> list[Code]:
        """Of the modules that have changed, those that may be loaded."""
        stale = looked.stale.get(code.job, ())
        found = await asyncio.to_thread(module_codes, self._parts.modules, code, stale)
        problems = [each for each in found if isinstance(each, Problem)]
        if problems:
            looked.failed.setdefault(code.job, []).extend(problems)
        return [code, *(each for each in found if isinstance(each, Code))]

    async def _proof(self, code: Code) -> Problem | None:
        return self._problem_of(await judge(self._parts.prover.check(code), code))

    def _problem_of(self, found: Verdict) -> Problem | None:
        if not found.is_final:
            self._parts.clock.call_later(PATIENCE, self.wake)
        return found.problem

    async def _prove_selectors(self, todo: Plan, looked: Looked) -> None:
        find = self._parts.find_selector_problems
        if find is None:
            return
        changed = [file.spec for file in todo.files() if self._watches_otherwise(file.spec)]
        found = await asyncio.gather(*(find(spec.monitor) for spec in changed if spec.monitor))
        for spec, problems in zip(changed, found, strict=True):
            told = [selector_problem(spec, key, reason) for key, reason in problems]
            if told:
                looked.failed.setdefault(spec.id, []).extend(told)

    def _watches_otherwise(self, spec: JobSpec) -> bool:
        """Whether it is a monitor that no live version of it has proved."""
        job = self._live.find(spec.id)
        return spec.monitor is not None and (job is None or job.spec.monitor != spec.monitor)

    async def _execute(self, todo: Plan, looked: Looked) -> None:
        """Execute the files of monitors, each in the VM that its cycles will use if that goes well."""
        files = list(todo.files())
        found = await few_at_once(PROOFS_AT_ONCE, self._execution, files)
        looked.failed.update({file.spec.id: [problem] for file, problem in zip(files, found, strict=True) if problem})

    async def _execution(self, file: JobFile) -> Problem | None:
        attempt = self._attempts.pop(file.spec.id, None)
        if attempt and await self._would_fail_again(attempt, file):
            self._attempts[file.spec.id] = attempt
            return attempt.verdict.problem
        code = code_of(file, self._next_generation(file.spec.id))
        found = await judge(self._parts.execute(file.spec, code), code)
        if found.problem:
            self._parts.prover.discard(code.job, self._take_generation(code.job))
            self._attempts[code.job] = Attempt(file, code.generation, found, self._parts.clock.monotonic())
        return self._problem_of(found)

    async def _would_fail_again(self, attempt: Attempt, file: JobFile) -> bool:
        """Nothing has changed about it: files that are slow to fail must not hold up every look at the disk."""
        modules, patience = self._parts.modules, EXECUTION_PATIENCE if attempt.verdict.is_final else 0
        is_same = attempt.file == file and self._parts.clock.monotonic() - attempt.at < patience
        if is_same and not await asyncio.to_thread(modules.changed, file.spec.id, attempt.generation):
            return True
        modules.forget(file.spec.id, attempt.generation)
        return False

    def _next_generation(self, job: JobId) -> int:
        return self._generations.setdefault(job, 1)

    def _take_generation(self, job: JobId) -> int:
        generation = self._next_generation(job)
        self._generations[job] = generation + 1
        return generation

    async def _swap(self, todo: Plan) -> None:
        if todo.is_empty and not self._unwelcomed:
            return
        await self._dismiss(todo.gone)
        edited = [*todo.recoded, *todo.respecified]
        await self._parts.schedule.catch_up([job for job, _ in edited])  # with what was due before the edit
        fresh = [newcomer(file, self._take_generation(file.spec.id)) for file in todo.new]
        for job in fresh:
            self._live.add(job)
        for job, file in todo.recoded:
            self._replace(job, file)
        for job, file in edited:
            job.spec = file.spec
        self._live.link()
        self._unwelcomed.update({job.id: job for job in (*fresh, *(job for job, _ in edited))})
        await self._welcome()
        _tell(fresh, todo)

    async def _welcome(self) -> None:
        """Have the scheduler take up who is new or edited; whom it could not, because the store refused, stays."""
        if self._unwelcomed:
            await self._parts.schedule.welcome(list(self._unwelcomed.values()), self._cursors)
            self._unwelcomed.clear()

    def _replace(self, job: LiveJob, file: JobFile) -> None:
        """The newer version is proved: later runs start in a fresh VM, those in flight end in theirs."""
        self._parts.modules.forget(job.id, job.code.generation)
        job.code = code_of(file, self._take_generation(job.id))
        job.digest = file.digest
        self._parts.prover.retire(job.id, job.code.generation)

    async def _dismiss(self, gone: Sequence[LiveJob]) -> None:
        if not gone:
            return
        await self._parts.schedule.dismiss(gone)
        for job in gone:
            if not job.is_newcomer:
                self._cursors[job.id] = job.cursor
            self._live.remove(job.id)
            self._unwelcomed.pop(job.id, None)
            self._parts.forget(job)
            self._parts.prover.retire(job.id, job.code.generation + 1)
            self._parts.modules.forget(job.id, job.code.generation)

    def _note_problems(self, looked: Looked, doubts: Mapping[str, Sequence[Problem]]) -> None:
        found, failed = looked.found, looked.failed
        broken = {**looked.broken, **failed}
        problems = [*found.problems, *(problem for each in failed.values() for problem in each)]
        doubtful = (*found.warnings, *(doubt for each in doubts.values() for doubt in each))
        warnings = sorted(
            (warning for warning in doubtful if warning.file not in looked.uncompiled),
            key=lambda warning: (warning.file, warning.line or 0),
        )
        known = {*self.problems, *self.warnings}
        for problem in problems:
            if problem not in known:
                log.error("not loaded", problem=str(problem))
        for warning in warnings:
            if warning not in known:
                log.warning("doubtful", problem=str(warning))
        for ignored in found.ignored:
            log.debug("ignored", problem=str(ignored))
        for job in self._live:
            job.problems = broken.get(job.id, ())
            file = found.jobs.get(job.id)
            found_here = (*file.warnings, *doubts.get(job.spec.path, ())) if file else ()
            job.warnings = tuple(each for each in found_here if each.file not in looked.uncompiled)
        self.problems, self.broken, self.warnings = problems, broken, warnings
        self._live.expect(not_loaded(self._live, broken, found.unsure))

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
            await self._rescan_or_put_off()

    async def _rescan_or_put_off(self) -> None:
        """What a full or locked disk keeps from being done now is done a little later."""
        try:
            await self.rescan()
        except StoreError as error:
            log.error("reload put off", reason=str(error), by_s=PATIENCE)
            self._parts.clock.call_later(PATIENCE, self._changed.set)


def is_emptied(root: Path) -> bool:
    """An editor, or `>`, empties a file before it writes it: that moment must not be taken for what somebody wants."""
    try:
        return not read_file(root).strip()
    except OSError:
        return False  # it is told by whoever reads it


async def verdict(proof: Awaitable[None], code: Code) -> Problem | None:
    """What a proof has found wrong."""
    return (await judge(proof, code)).problem


async def judge(proof: Awaitable[None], code: Code) -> Verdict:
    try:
        await proof
    except ScriptError as error:
        return Verdict(await asyncio.to_thread(with_hint, error.problem, code.source_of(error.problem.file)))
    except PoolError as error:
        return Verdict(Problem(code.chunk, None, None, str(error)), is_final=False)
    return Verdict()


def newcomer(file: JobFile, generation: int = 1) -> LiveJob:
    """A job that has just been found; the scheduler gives it its true cursor."""
    spec, code = file.spec, code_of(file, generation)
    return LiveJob(spec=spec, code=code, digest=file.digest, cursor=Cursor(job=spec.id, due_ms=0, schedule=""))


def _tell(fresh: Sequence[LiveJob], todo: Plan) -> None:
    for job in fresh:
        log.debug("job loaded", job=job.id)
    for job, _ in todo.recoded:
        log.info("job reloaded", job=job.id, generation=job.code.generation)
    for job, _ in todo.respecified:
        log.info("job settings reloaded", job=job.id)
    for job in todo.gone:
        log.info("job gone", job=job.id)
