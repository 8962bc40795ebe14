"""How the tasks of a run ended, in a dictionary."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import structs

from spyweb.limits import SHOWN_OUTPUTS
from spyweb.model import JobId, Run, RunId, TaskRow, TaskStatus
from spyweb.store.sqlite.tasks import match_plan
from spyweb.store.tasks_protocol import RESUMES, PlannedTask
from tests.fakes.memory.memory_executor import ImmediateExecutor

FindRun = Callable[[RunId], Run | None]


class MemoryTasks:
    def __init__(self, executor: ImmediateExecutor, find_run: FindRun) -> None:
        self._executor = executor
        self._find_run = find_run
        self.rows: dict[RunId, dict[int, TaskRow]] = {}

    def add(self, run: RunId, rows: Sequence[TaskRow]) -> Future[None]:
        return self._executor.write(self._add, run, rows)

    def of_runs(self, runs: Sequence[RunId]) -> Future[Mapping[RunId, Sequence[TaskRow]]]:
        return self._executor.read(self._shown, runs)

    def newest(self, limit: int) -> Future[Sequence[RunId]]:
        return self._executor.read(lambda: sorted(self.rows, reverse=True)[:limit])

    def take_over(self, run: RunId, plan: Sequence[PlannedTask]) -> Future[Sequence[TaskRow]]:
        return self._executor.write(self._take_over, run, plan)

    def chain(self, run: RunId) -> Future[Sequence[RunId]]:
        return self._executor.read(self._chain, run)

    async def prune(self, *, keep: int) -> int:
        return await self._executor.write(self._prune, keep)

    def _add(self, run: RunId, rows: Sequence[TaskRow]) -> None:
        if rows:
            self.rows.setdefault(run, {}).update({row.ordinal: row for row in rows})

    def _shown(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[TaskRow]]:
        return {run: list(shown(rows)) for run, rows in self._of_runs(runs).items()}

    def _of_runs(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[TaskRow]]:
        return {run: [row for _, row in sorted(self.rows[run].items())] for run in runs if run in self.rows}

    def _take_over(self, run: RunId, plan: Sequence[PlannedTask]) -> Sequence[TaskRow]:
        chain = [each for each in self._chain(run) if each in self.rows]
        done = [row for each in chain for row in self._of_runs([each])[each] if is_done(row)]
        taken = match_plan(done, plan)
        self._add(run, taken)
        return taken

    def _chain(self, run: RunId) -> Sequence[RunId]:
        first = self._resumes(run)
        earlier = map(RunId, range(1, run)) if first else ()
        return [each for each in earlier if self._find_run(each) and first in (each, self._resumes(each))]

    def _resumes(self, run: RunId) -> object:
        found = self._find_run(run)
        return found.trigger.get(RESUMES) if found else None

    def _prune(self, keep: int) -> int:
        kept: Counter[JobId] = Counter()
        outdated = []
        for run in sorted(self.rows, reverse=True):
            found = self._find_run(run)
            if found:
                kept[found.job] += 1
            if not found or kept[found.job] > keep:
                outdated.append(run)
        for run in outdated:
            del self.rows[run]
        return len(outdated)


def is_done(row: TaskRow) -> bool:
    return row.status is not TaskStatus.FAILED and row.started_ms is not None


def shown(rows: Sequence[TaskRow]) -> Iterator[TaskRow]:
    """The rows with the first outputs."""
    size = 0
    for row in rows:
        size += len(row.output or b"")
        yield row if size <= SHOWN_OUTPUTS else structs.replace(row, output=None)
