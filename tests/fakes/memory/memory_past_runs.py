"""Answer questions about past runs from a list."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, takewhile

from spyweb.model import JobId, Outcome, Run, RunId
from spyweb.store.past_runs_protocol import (
    NO_TIME,
    FailingSeries,
    RunFilter,
    RunPage,
    RunPoint,
    RunStrip,
    StripWish,
)
from spyweb.views.strips import FAILING, SUCCEEDED, mark_of, moment_of, took_of
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryPastRuns:
    def __init__(self, executor: ImmediateExecutor, all_runs: Callable[[], list[Run]]) -> None:
        self._executor = executor
        self._all = all_runs

    def find(self, run: RunId) -> Future[Run | None]:
        return self._executor.read(lambda: next((each for each in self._all() if each.id == run), None))

    def strips(self, jobs: Sequence[StripWish], count: int) -> Future[Mapping[JobId, RunStrip]]:
        return self._executor.read(lambda: {wish.job: self._strip(wish, count) for wish in jobs})

    def failing(self, jobs: Sequence[JobId]) -> Future[Mapping[JobId, FailingSeries]]:
        return self._executor.read(self._failing, jobs)

    def search(self, wanted: RunFilter, *, limit: int, before: RunId | None = None) -> Future[RunPage]:
        return self._executor.read(self._search, wanted, limit, before)

    def neighbours(self, job: JobId, run: RunId) -> Future[tuple[RunId | None, RunId | None]]:
        return self._executor.read(self._neighbours, job, run)

    def points(self, job: JobId, *, since_ms: int, limit: int, before: RunId | None = None) -> Future[list[RunPoint]]:
        return self._executor.read(lambda: list(islice(self._points(job, since_ms, before), limit)))

    def followers(self, run: RunId, *, limit: int) -> Future[list[Run]]:
        return self._executor.read(lambda: [each for each in self._all() if follows(each, run)][:limit])

    def _strip(self, wish: StripWish, count: int) -> RunStrip:
        newest = [run for run in self._all() if run.job == wish.job][-count:]
        took = (took_of(run) for run in newest)
        return RunStrip(
            ids=[run.id for run in newest],
            marks="".join(mark_of(run, wish.late_ms) for run in newest),
            took_ms=[NO_TIME if ms is None else ms for ms in took],
        )

    def _failing(self, jobs: Sequence[JobId]) -> dict[JobId, FailingSeries]:
        found = {}
        for job in jobs:
            newest_first = (run for run in reversed(self._all()) if run.job == job)
            marked = ((run, mark_of(run, 0)) for run in newest_first)
            failures = [
                run for run, mark in takewhile(lambda each: each[1] not in SUCCEEDED, marked) if mark in FAILING
            ]
            if failures:
                count = max(1, sum(run.attempt == 1 for run in failures))
                found[job] = FailingSeries(since_ms=moment_of(failures[-1]) or 0, count=count, first=failures[-1].id)
        return found

    def _search(self, wanted: RunFilter, limit: int, before: RunId | None) -> RunPage:
        newest_first = reversed(self._all())
        found = [run for run in newest_first if (before is None or run.id < before) and matches(run, wanted)]
        return RunPage(runs=found[:limit], before=found[limit - 1].id if 0 < limit <= len(found) else None)

    def _neighbours(self, job: JobId, run: RunId) -> tuple[RunId | None, RunId | None]:
        ids = [each.id for each in self._all() if each.job == job]
        return max((one for one in ids if one < run), default=None), min(
            (one for one in ids if one > run), default=None
        )

    def _points(self, job: JobId, since_ms: int, before: RunId | None) -> Iterator[RunPoint]:
        for run in reversed(self._all()):
            took_ms = took_of(run)
            if run.job != job or took_ms is None or run.started_ms is None or run.started_ms < since_ms:
                continue
            if before is None or run.id < before:
                late_ms = 0 if run.due_ms is None or run.attempt > 1 else max(0, run.started_ms - run.due_ms)
                yield RunPoint(run.id, run.started_ms, took_ms, late_ms, mark_of(run, 1 << 62))


def matches(run: Run, wanted: RunFilter) -> bool:
    at_ms = moment_of(run)
    return (
        wanted.job in (None, run.job)
        and (not wanted.outcomes or run.outcome in wanted.outcomes)
        and (not wanted.triggers or run.trigger.get("type") in [each.value for each in wanted.triggers])
        and (wanted.began_skipped or run.started_ms is None or run.outcome is not Outcome.SKIPPED)
        and (wanted.since_ms is None or (at_ms is not None and at_ms >= wanted.since_ms))
        and (wanted.until_ms is None or (at_ms is not None and at_ms < wanted.until_ms))
    )


def follows(run: Run, earlier: RunId) -> bool:
    cause = run.trigger.get("cause")
    inner = cause if isinstance(cause, Mapping) else {}
    causes = (run.trigger.get("of"), run.trigger.get("run_id"), run.trigger.get("by"), inner.get("by"))
    return run.id > earlier and earlier in causes
