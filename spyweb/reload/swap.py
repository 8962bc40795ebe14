"""Replace live jobs by newer versions of their files.

Load, prove, swap, retire: the files are read and compared with the live jobs; a newer version is proved beside the
older one, and only then takes its place.  Runs in flight end on the VM they began on.  When a newer version does not
load, the older one stays live, and the problem is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.endpoints import Endpoints, ServerVersion
from spyweb.errors import ConfigError, Problem, StoreError
from spyweb.lua.session import Code
from spyweb.model import Cursor, JobId
from spyweb.permissions.policy import ANYTHING, Policy
from spyweb.reload.plan import Plan, not_loaded, plan, whose
from spyweb.reload.proof import PROOFS_AT_ONCE, Prover, Verdict, bounded_gather, find_selector_problems
from spyweb.runs.live import JobChange, JobListener, LiveJob, LiveJobs, code_of
from spyweb.runs.runner import Runner
from spyweb.scheduler.scheduler import Scheduler
from spyweb.settings.load import is_emptied
from spyweb.settings.sections import FILE, Settings
from spyweb.specs.discover import Scan, scan
from spyweb.specs.linting.linter import Linter
from spyweb.specs.maintenance import MaintenanceCalendar
from spyweb.specs.parse import JobFile
from spyweb.specs.server_file import INIT, SERVER, code_of_server, find_server
from spyweb.specs.tree import EMPTY

log = structlog.get_logger()

# Settings of these sections are read once: an edit takes effect at the next start, but for those AT_ONCE.
SECTIONS = ("daemon", "server", "store", "cluster", "state", "http", "exec", "security")
AT_ONCE = frozenset({"daemon.default_interval", "state.history"})


class SettingsFile:
    """Has the newest valid settings as `current`; logs each problem once."""

    def __init__(self, root: Path, read: Callable[[], Settings], current: Settings) -> None:
        self._root = root
        self._read = read
        self._first = current
        self._problems: Sequence[str] = ()  # logged already
        self._waiting: Sequence[str] = ()  # edited, and in effect from the next start on
        self.current = current

    async def reread(self) -> bool:
        """Read the file again; return whether anything in it has changed."""
        before, problems = self.current, list[str]()
        if await asyncio.to_thread(is_emptied, self._root):
            problems.append(f"{FILE}: {EMPTY}")
        else:
            try:
                self.current = await asyncio.to_thread(self._read)
            except ConfigError as error:
                problems += map(str, error.problems)
        for problem in problems:
            if problem not in self._problems:  # a log in the project's folder would count as a change of the project
                log.error("settings not reloaded", problem=problem)
        self._problems = problems
        waiting = waiting_for_a_start(self._first, self.current)
        if waiting and waiting != self._waiting:
            log.warning("settings take effect at the next start", settings=waiting)
        self._waiting = waiting
        return self.current != before


def waiting_for_a_start(before: Settings, now: Settings) -> list[str]:
    """Return the names of the settings that are read once and differ, as they are written in the file."""
    return [
        name
        for section in SECTIONS
        for field in fields(getattr(before, section))
        if getattr(getattr(before, section), field.name) != getattr(getattr(now, section), field.name)
        and (name := f"{section}.{field.name.removesuffix('_ms')}") not in AT_ONCE
    ]


SPARES = 4  # VMs that each worker has ready for the next requests; more gained nothing


@dataclass(kw_only=True, eq=False)
class ServerReloader:
    """Keeps the endpoints up to date with server/init.lua: a newer version takes over once it compiles.

    When a newer version does not compile, the older one keeps answering, and the problem is shown.  Before there is any
    version, the problem makes every request fail.
    """

    root: Path
    endpoints: Endpoints
    prover: Prover
    workers: int = 1  # that serve requests while there is a server
    policy: Policy = ANYTHING
    _generation: int = 0

    async def look(self) -> bool:
        """Read the file and apply changes; return False if that has to be repeated soon."""
        found = await asyncio.to_thread(find_server, self.root)
        if found is None:
            self._remove()
            return True
        if isinstance(found, Problem):
            self._refuse(found)
            return True
        stale = await asyncio.to_thread(self.prover.sources.changed, SERVER, self._generation)
        version = self.endpoints.version
        if version and version.code.source == found and not stale:
            self.endpoints.problem = None
            return True
        code = code_of_server(found, self._generation + 1, policy=self.policy)
        verdict = await self._prove([code, *await asyncio.to_thread(self.prover.read_modules, code, stale)])
        if verdict.problem:
            self._refuse(verdict.problem)
            return verdict.is_final
        others = [code_of_server(found, code.generation, worker, self.policy) for worker in range(1, self.workers)]
        self.prover.sources.forget(SERVER, self._generation)
        self._generation = code.generation
        self.endpoints.version, self.endpoints.problem = ServerVersion(codes=[code, *others]), None
        for each in (code, *others):
            self.prover.pool.keep_spares(each, SPARES)
        log.info("server loaded", file=INIT, generation=self._generation)
        return True

    async def _prove(self, codes: Sequence[Code | Problem]) -> Verdict:
        for code in codes:
            verdict = Verdict(code) if isinstance(code, Problem) else await self.prover.compile(code)
            if verdict.problem:
                return verdict
        return Verdict()

    def _refuse(self, problem: Problem) -> None:
        if problem != self.endpoints.problem:
            log.error("not loaded", problem=str(problem))
        self.endpoints.problem = problem

    def _remove(self) -> None:
        if self.endpoints.version:
            log.info("server gone", file=INIT)
            for code in self.endpoints.version.codes:
                self.prover.pool.retire(code.job, self._generation + 1)
            self.prover.sources.forget(SERVER, self._generation)
        self.endpoints.version = self.endpoints.problem = None


class Renames:
    """Remembers removed jobs: a new job with the same content, or one added as the only one was removed, may be a
    renamed one."""

    def __init__(self, keeps_values: Callable[[JobId], Awaitable[bool]]) -> None:
        self._keeps_values = keeps_values
        self._gone: dict[str, JobId] = {}  # by digest
        self._older: dict[
            JobId, JobId
        ] = {}  # of live jobs that may be renamed ones, whose values are still under the old id

    def note_gone(self, job: LiveJob) -> None:
        self._gone[job.digest] = job.id
        self._older.pop(job.id, None)

    async def look(self, new: Sequence[LiveJob], gone: Sequence[JobId]) -> None:
        """Compare added jobs with removed ones, and log how a renamed job gets its old values."""
        for job in new:
            only = gone[0] if len(new) == len(gone) == 1 else None
            older = self._gone.pop(job.digest, only)
            if older and older != job.id and await self._keeps_values(older):
                self._older[job.id] = older
                job.warnings = (*job.warnings, *self.warnings(job))
                log.warning("a job may have been renamed", job=job.id, problem=reason_of(older, job.id))

    async def forget_moved(self) -> None:
        """Forget jobs whose values were moved."""
        for job, older in list(self._older.items()):
            if not await self._keeps_values(older):
                del self._older[job]

    def warnings(self, job: LiveJob) -> tuple[Problem, ...]:
        older = self._older.get(job.id)
        return (Problem(job.spec.path, None, None, reason_of(older, job.id), is_warning=True),) if older else ()


def reason_of(older: JobId, job: JobId) -> str:
    return f"if this is {older} under a new name, `spyweb state move {older} {job}` moves its stored values"


RETRY_S = 5.0  # seconds before a change is tried again that the store refused, or that got no worker


class Look(Struct):
    """The findings of one scan of the disk, so far."""

    found: Scan
    stale: Mapping[JobId, Sequence[str]]  # modules that have changed since the job loaded them
    broken: Mapping[JobId, Sequence[Problem]]  # files that can't be read as a job's
    failed: dict[JobId, list[Problem]] = msgspec.field(default_factory=dict)  # those that can be read, and can't be run
    uncompiled: set[str] = msgspec.field(default_factory=set)  # files that are no Lua
    is_final: bool = True  # no proof has to be tried again

    def note(self, job: JobId, verdict: Verdict) -> None:
        if verdict.problem:
            self.failed.setdefault(job, []).append(verdict.problem)
        self.is_final &= verdict.is_final


@dataclass(kw_only=True)
class Reloader:
    """Keeps the live jobs, and the server, up to date with the files."""

    root: Path
    settings_file: SettingsFile
    live: LiveJobs
    scheduler: Scheduler
    runner: Runner
    prover: Prover
    renames: Renames
    server: ServerReloader | None = None
    looked: Callable[[], Awaitable[None]] | None = None  # called after the server's files were read
    clock: Clock

    maintenance: MaintenanceCalendar = field(default_factory=MaintenanceCalendar)
    problems: Sequence[Problem] = ()  # all problems on disk, as of the last scan
    warnings: Sequence[Problem] = ()  # all warnings, as of the last scan
    broken: Mapping[JobId, Sequence[Problem]] = field(default_factory=dict)  # jobs whose file is wrong, live or not
    _cursors: dict[JobId, Cursor] = field(default_factory=dict)  # of jobs that may come, or come back
    _not_activated: dict[JobId, LiveJob] = field(default_factory=dict)  # the store refused it
    _generations: dict[JobId, int] = field(default_factory=dict)  # the next; a job that comes back goes on from there
    _linter: Linter = field(default_factory=lambda: Linter(deferred=True))
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def settings(self) -> Settings:
        return self.settings_file.current

    async def load(self, known: Mapping[JobId, Cursor]) -> None:
        """Load the files for the first time; `known` are the cursors that an earlier daemon left."""
        self._cursors.update(known)
        await self._look()
        gone = [job for job in known if self.live.find(job) is None and job not in self.broken]
        absent = [known[job] for job in gone if self.live.is_mine(job)]
        new = [job for job in self.live if job.id not in known]
        await self.renames.look(new, [cursor.job for cursor in absent if cursor.idle_since_ms is None])
        self._cursors.update({cursor.job: cursor for cursor in await self.scheduler.note_absent(absent)})

    async def rescan(self) -> None:
        """Read the files again, and apply what changed."""
        if await self.settings_file.reread():
            self.live.link()
        await self._look()

    async def _look(self) -> None:
        """Load, prove, swap.

        Files that have to be executed may take a while: changes that need no execution are swapped before them.
        """
        async with self._one_at_a_time:
            server_is_final = await self.server.look() if self.server else True
            if self.looked:
                await self.looked()
            found = await asyncio.to_thread(scan, self.root, self.settings, self._linter)
            stale = await asyncio.to_thread(self.prover.find_changed_modules, list(self.live))
            rules = self.maintenance.rules
            if found.maintenance != rules and (found.maintenance_is_whole or not rules):
                self.maintenance = MaintenanceCalendar(found.maintenance)  # else by those that were right before
                self.live.link()
            await self.renames.forget_moved()
            look = Look(found, stale, whose(self.live, found), is_final=server_is_final)

            todo = plan(self.live, found.jobs, look.broken, stale)
            await self._prove(todo, look)
            todo = todo.without(look.failed)
            slow = todo.executing()
            await self._swap(todo.without({file.spec.id for file in slow.files()}))
            await bounded_gather(PROOFS_AT_ONCE, lambda file: self._execute(file, look), slow.files())
            await self._swap(slow.without(look.failed))

            self._show_problems(look, await asyncio.to_thread(self._linter.finish))
            if not look.is_final:
                self.clock.call_later(RETRY_S, self.wake)

    async def _prove(self, todo: Plan, look: Look) -> None:
        """Compile new code, with the changed modules, and parse the selectors of monitors."""
        files = [*todo.new, *(file for _, file in todo.recoded)]
        fresh = [file for file in files if any(b"require" in source for _, source in file.lua)]
        await bounded_gather(
            PROOFS_AT_ONCE, lambda file: self.prover.foresee(file, self._generations.get(file.spec.id, 1)), fresh
        )
        codes = [code_of(file, 0) for file in todo.new]
        for job, file in todo.recoded:
            code = code_of(file, 0)
            codes.append(code)
            for module in await asyncio.to_thread(self.prover.read_modules, code, look.stale.get(job.id, ())):
                if isinstance(module, Problem):
                    look.note(job.id, Verdict(module))
                else:
                    codes.append(module)
        codes = [code for code in codes if code.source]
        verdicts = await bounded_gather(PROOFS_AT_ONCE, self.prover.compile, codes)
        for code, verdict in zip(codes, verdicts, strict=True):
            look.note(code.job, verdict)
            if verdict.problem:
                look.uncompiled.add(verdict.problem.file)
        live = {job.id: job.spec.monitor for job in self.live}  # whose selectors are proved
        watching = [file.spec for file in todo.files() if live.get(file.spec.id) != file.spec.monitor]
        find = partial(find_selector_problems, self.prover.find_selector_problem)
        for spec, problems in zip(watching, await asyncio.gather(*map(find, watching)), strict=True):
            for problem in problems:
                look.note(spec.id, Verdict(problem))

    async def _execute(self, file: JobFile, look: Look) -> None:
        job = file.spec.id
        generation = self._generations.setdefault(job, 1)
        verdict, has_spoilt = await self.prover.execute(file, generation)
        look.note(job, verdict)
        if has_spoilt:
            self._generations[job] = generation + 1

    async def _swap(self, todo: Plan) -> None:
        """Carry out the plan, all of which is proved."""
        if todo.is_empty and not self._not_activated:
            return
        await self._remove(todo.gone)
        edited = [*todo.recoded, *todo.respecified]
        await self.scheduler.catch_up([job for job, _ in edited])  # with what was due before the edit
        new = [make_live_job(file, self._take_generation(file.spec.id)) for file in todo.new]
        for job in new:
            self.live.add(job)
        for job, file in todo.recoded:
            older, job.code = job.code, code_of(file, self._take_generation(job.id))
            job.digest = file.digest
            self.prover.retire(older, job.code.generation, _generations_in_use(job))
        for job, file in edited:
            job.spec, job.sources = file.spec, file.sources
        self.live.link()
        self._not_activated.update({job.id: job for job in (*new, *(job for job, _ in edited))})
        if self._not_activated:
            await self.scheduler.activate([job for job in self._not_activated.values() if job.mine], self._cursors)
            self._not_activated.clear()
        await self.renames.look(new, [job.id for job in todo.gone])
        _tell_swap(self.live.listener, new, todo)

    def _take_generation(self, job: JobId) -> int:
        generation = self._generations.get(job, 1)
        self._generations[job] = generation + 1
        return generation

    async def _remove(self, gone: Sequence[LiveJob]) -> None:
        if not gone:
            return
        await self.scheduler.deactivate(gone)
        for job in gone:
            if not job.is_new:
                self._cursors[job.id] = job.cursor
            self.renames.note_gone(job)
            self.live.remove(job.id)
            self._not_activated.pop(job.id, None)
            self.runner.forget(job)
            self.prover.retire(job.code, job.code.generation + 1, _generations_in_use(job))

    def _show_problems(self, look: Look, doubts: Mapping[str, Sequence[Problem]]) -> None:
        """Give each job its problems, and log new ones; `doubts` are the linter's warnings by the job's file."""
        found, known = look.found, {*self.problems, *self.warnings}
        broken_before, self.broken = self.broken, {**look.broken, **look.failed}
        self.problems = [*found.problems, *(problem for each in look.failed.values() for problem in each)]
        doubtful = (*found.warnings, *(doubt for each in doubts.values() for doubt in each))
        self.warnings = sorted(
            (warning for warning in doubtful if warning.file not in look.uncompiled), key=Problem.place
        )
        for problem in self.problems:
            if problem not in known:
                log.error("not loaded", problem=str(problem))
        for warning in self.warnings:
            if warning not in known:
                log.warning("doubtful", problem=str(warning))
        for job in self.live:
            self._show_on(job, look, doubts.get(job.spec.path, ()))
        self.live.set_unloadable(not_loaded(self.live, self.broken, found.unsure))
        if self.live.listener:
            _tell_broken(self.live, self.live.listener, broken_before, self.broken)

    def _show_on(self, job: LiveJob, look: Look, doubts: Sequence[Problem]) -> None:
        job.problems = self.broken.get(job.id, ())
        file = look.found.jobs.get(job.id)
        if file and job.id not in look.failed:
            job.sources = file.sources  # also when only their line numbers have changed
        found_here = (*file.warnings, *doubts) if file else ()
        doubtful_here = [each for each in found_here if each.file not in look.uncompiled]
        job.warnings = (*doubtful_here, *self.renames.warnings(job))

    def wake(self) -> None:
        """Have the files read again soon: something changed, or may have (SIGHUP)."""
        self._changed.set()

    async def keep_up(self) -> None:
        """Rescan whenever something changed, or may have."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.rescan()
            except StoreError as error:  # a full or locked disk
                log.error("reload put off", reason=str(error), by_s=RETRY_S)
                self.clock.call_later(RETRY_S, self.wake)


def _generations_in_use(job: LiveJob) -> Iterator[int]:
    return (run.generation for run in job.queue.in_flight.values())


def make_live_job(file: JobFile, generation: int = 1) -> LiveJob:
    """Make a live job of a file; its cursor is blank until the scheduler sets it."""
    spec, code = file.spec, code_of(file, generation)
    cursor = Cursor(job=spec.id, due_ms=0, schedule="")
    return LiveJob(spec=spec, code=code, digest=file.digest, cursor=cursor, sources=file.sources)


def _tell_swap(listener: JobListener | None, new: Sequence[LiveJob], todo: Plan) -> None:
    for jobs, change, tell, event in (
        (new, JobChange.LOADED, log.debug, "job loaded"),
        ([job for job, _ in todo.recoded], JobChange.RELOADED, log.info, "job reloaded"),
        ([job for job, _ in todo.respecified], JobChange.SETTINGS, log.info, "job settings reloaded"),
        (todo.gone, JobChange.REMOVED, log.info, "job gone"),
    ):
        for job in jobs:
            tell(event, job=job.id, generation=job.code.generation)
            if listener:
                listener.changed(job, change)


def _tell_broken(
    live: LiveJobs,
    listener: JobListener,
    before: Mapping[JobId, Sequence[Problem]],
    now: Mapping[JobId, Sequence[Problem]],
) -> None:
    for job, problems in now.items():
        if problems != before.get(job):
            listener.broken(job, problems)
    for job in before.keys() - now.keys():
        mended = live.find(job)
        if mended is not None:
            listener.changed(mended, JobChange.MENDED)
