"""Prove that files work before a newer version goes live: they compile, selectors parse, a monitor's hooks load.

A proof changes no live job.  It ends with a problem or without one; if a worker was lost during it, nothing is known
about the files, and the proof has to be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.errors import OpError, PoolError, Problem, ScriptError
from spyweb.lua.pool import Pool
from spyweb.lua.session import Code
from spyweb.model import JobId, JobSpec
from spyweb.ops.sources import Sources
from spyweb.runs.live import LiveJob, code_of
from spyweb.specs.linting.luau import with_hint
from spyweb.specs.monitor_file import selector_problem
from spyweb.specs.parse import JobFile

RETRY_S = 600.0  # seconds before files that failed are executed again, if nothing about them changes
PROOFS_AT_ONCE = 16  # more of them make no start faster, and leave more memory behind

T = TypeVar("T")
R = TypeVar("R")
FindSelectorProblem = Callable[..., Awaitable[str | None]]  # Extractor.find_selector_problem


class Verdict(Struct, frozen=True):
    """The result of a proof."""

    problem: Problem | None = None
    is_final: bool = True  # false when a worker was lost: the files may be fine


class FailedExecution(Struct, frozen=True):
    """Files that were executed and failed."""

    file: JobFile
    generation: int
    verdict: Verdict
    at: float  # by the monotonic clock


@dataclass(kw_only=True, eq=False)
class Prover:
    """Proves jobs' files and modules with the workers that will run them."""

    pool: Pool
    sources: Sources
    load: Callable[[JobSpec, Code], Awaitable[None]]  # a monitor's files; raises ScriptError, PoolError as `judge` says
    find_selector_problem: FindSelectorProblem
    clock: Clock
    _failed: dict[JobId, FailedExecution] = field(default_factory=dict)

    async def compile(self, code: Code) -> Verdict:
        """Compile the files in a scratch VM."""
        return await judge(self.pool.check(code), code)

    def find_changed_modules(self, jobs: Iterable[LiveJob]) -> dict[JobId, list[str]]:
        """Return the loaded modules of each job that have changed on disk.  Reads files: call it in a thread."""
        changed = {job.id: self.sources.changed(job.id, job.code.generation) for job in jobs}
        return {job: paths for job, paths in changed.items() if paths}

    def read_modules(self, user: Code, paths: Iterable[str]) -> list[Code | Problem]:
        """Return these modules as code to prove, in the name of the files that load them, without removed ones.

        A module that may not be loaded is a problem.  Reads files: call it in a thread.
        """
        found: list[Code | Problem] = []
        for path in paths:
            try:
                source = self.sources.read(path)
            except OpError as error:
                found.append(Problem(path, None, None, str(error).removeprefix(path).lstrip(": ")))
                continue
            if source is not None:
                found.append(replace(user, chunk=path, source=source))
        return found

    async def execute(self, file: JobFile, generation: int) -> tuple[Verdict, bool]:
        """Load a monitor's files in the VM that the cycles of this generation will use.

        Return whether the loading failed, so that the generation can't be used any more.

        Files that failed before are not loaded again while nothing about them changes: files that are slow to fail must
        not delay every scan of the disk.
        """
        job = file.spec.id
        failed = self._failed.pop(job, None)
        if failed and await self._would_fail_again(failed, file):
            self._failed[job] = failed
            return failed.verdict, failed.generation == generation
        code = code_of(file, generation)
        verdict = await judge(self.load(file.spec, code), code)
        if verdict.problem:
            self.pool.discard(job, generation)
            self._failed[job] = FailedExecution(file, generation, verdict, self.clock.monotonic())
        return verdict, verdict.problem is not None

    async def _would_fail_again(self, failed: FailedExecution, file: JobFile) -> bool:
        patience = RETRY_S if failed.verdict.is_final else 0
        is_same = failed.file == file and self.clock.monotonic() - failed.at < patience
        if is_same and not await asyncio.to_thread(self.sources.changed, file.spec.id, failed.generation):
            return True
        self.sources.forget(file.spec.id, failed.generation)
        return False

    async def foresee(self, file: JobFile, generation: int) -> None:
        """Read the modules that a newer version names, as they are beside it."""
        sources = (source for _, source in code_of(file, generation).files)
        await self.sources.foresee(file.spec.id, generation, file.spec.folder, sources)

    def retire(self, code: Code, newer: int, in_use: Iterable[int] = ()) -> None:
        """Drop the VMs of this and earlier generations once no run is left in them; `newer` is the first that stays.

        The modules of those `in_use` stay as well: a run in flight may still require one.
        """
        self.pool.retire(code.job, newer)
        self.sources.keep_only(code.job, {newer, *in_use})


async def judge(proof: Awaitable[None], code: Code) -> Verdict:
    """Turn the exceptions of a proof into a verdict: a file fails, or a worker was lost during the proof."""
    try:
        await proof
    except ScriptError as error:
        return Verdict(await asyncio.to_thread(with_hint, error.problem, code.source_of(error.problem.file)))
    except PoolError as error:
        return Verdict(Problem(code.chunk, None, None, str(error)), is_final=False)
    return Verdict()


async def find_selector_problems(find: FindSelectorProblem, spec: JobSpec) -> list[Problem]:
    """Check every selector of a monitor; a selector that does not parse is a problem of its file."""
    monitor = spec.monitor
    if monitor is None:
        return []
    of_items, *of_fields = await asyncio.gather(
        find(monitor.selector), *(find(field.selector, of_field=True) for field in monitor.fields)
    )
    problems = [selector_problem(spec, "selector", of_items)] if of_items else []
    for each, problem in zip(monitor.fields, of_fields, strict=True):
        if problem:
            problems.append(selector_problem(spec, "fields", f"{each.name}: {problem}"))
    return problems


async def bounded_gather(count: int, call: Callable[[T], Awaitable[R]], things: Sequence[T]) -> list[R]:
    """Call a function for each item, `count` at a time, and return the results in the order of the items.

    There are `count` tasks: one task per item with a semaphore would leave memory behind for every loaded job.  After
    a call has raised, no more are begun.
    """
    found: dict[int, R] = {}
    left = iter(enumerate(things))

    async def work() -> None:
        for index, thing in left:
            found[index] = await call(thing)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(count, len(things))):
                group.create_task(work())
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [found[index] for index in range(len(things))]
