"""Find drift: compare files and commands with the resources recorded by the jobs' last runs, a slice at a time.

A running daemon has one service, for its API and for jobs with `drift`; without a daemon a command makes one over the
database that it opened itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.model import JobId, JobSpec
from spyweb.ops.drift import describe_expected, find_difference, path_in
from spyweb.ops.files.files import Files
from spyweb.ops.resources import NAMESPACE, SCOPE, BadResource, Expected, Resource, job_of, prefix_of, read_resource
from spyweb.store.sqlite.store import Store
from spyweb.subjects.drift.views import DriftReport, DriftView
from spyweb.subjects.state.service import PAGE, take_page
from spyweb.views.runs import copied
from spyweb.words import counted

SLICE_S = 0.1  # of comparing in a thread, before others may have it
MOST = 200_000  # rows of one comparison, which are in memory
TRIES = 3  # where jobs write meanwhile

Specs = Mapping[JobId, JobSpec]
Difference = tuple[Resource, str]  # with what is there instead


class RecordedState(Struct):
    """The recorded rows of some jobs: the ones to compare, and the ones that can't be compared."""

    resources: list[Resource] = msgspec.field(default_factory=list)  # the newest of each target
    versions: dict[bytes, int] = msgspec.field(default_factory=dict)  # of each row, by key
    bad: list[tuple[bytes, str]] = msgspec.field(default_factory=list)  # rows that can't be read, and why
    is_cut: bool = False  # there are more rows
    gone: Counter[JobId] = msgspec.field(default_factory=Counter)  # rows of jobs that do not exist here


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftService:
    """Compares resources; `specs` gives the jobs that exist, `broken` those whose files do not load."""

    store: Store
    files: Files
    clock: Clock
    specs: Callable[[], Specs]
    broken: Callable[[], Collection[JobId]] = frozenset
    is_elsewhere: Callable[[JobId], bool] = lambda _job: False  # another node runs the job, and has its files

    async def check(self, job: JobId | None) -> DriftReport:
        """Compare all recorded resources of one job, or of all jobs."""
        specs = self.specs()
        for _ in range(TRIES):
            recorded = await self._read(specs, job)
            differing = await self._compare(specs, recorded.resources)
            if not differing:
                break
            now = await self._read(specs, job)
            if all(now.versions.get(each.key) == recorded.versions[each.key] for each, _ in differing):
                break  # else a run has changed something meanwhile, which is no difference
        every = await self._read(specs, None) if differing and job is not None else recorded
        return await asyncio.to_thread(self._report, specs, recorded, differing, every.resources)

    def _report(
        self, specs: Specs, recorded: RecordedState, differing: Sequence[Difference], every: Sequence[Resource]
    ) -> DriftReport:
        """Make the report, in a thread: there may be very many differences."""
        top, jobs_at = self.files.top, dict[str, set[JobId]]()  # which jobs keep something at each place
        for resource in every if differing else ():
            if resource.kept.expected is not Expected.COMMAND:
                place = path_in(specs[resource.job], top, resource.kept.target)
                jobs_at.setdefault(place, set()).add(resource.job)
        views = [
            _view(each, actual, jobs_at.get(path_in(specs[each.job], top, each.kept.target), set()) - {each.job})
            for each, actual in differing
        ]
        views += [_bad_view(key, reason) for key, reason in recorded.bad]
        return DriftReport(
            checked=len(recorded.resources) + len(recorded.bad),
            differences=sorted(views, key=lambda each: each.resource),
            remarks=list(self._remarks(recorded)),
        )

    async def _read(self, specs: Specs, job: JobId | None) -> RecordedState:
        """Read the rows of one job, or of all, page by page."""
        recorded, newest = RecordedState(), dict[tuple[JobId, str, bool], Resource]()
        prefix = b"" if job is None else prefix_of(job)
        least = prefix
        gather, take = self.store.values.gather, partial(take_page, PAGE)
        while not recorded.is_cut and (page := await gather(NAMESPACE, prefix, take, least=least)):
            for key, entry in page:
                owner = job_of(key)
                if owner not in specs or self.is_elsewhere(owner):
                    recorded.gone[owner] += 1
                    continue
                recorded.versions[key] = entry.version
                try:
                    found = read_resource(key, entry.value)
                except BadResource as error:
                    recorded.bad.append((key, str(error)))
                    continue
                subject = (owner, found.kept.target, found.kept.expected is Expected.COMMAND)
                known = newest.get(subject)
                if known is None or (known.run, known.number) < (found.run, found.number):
                    newest[subject] = found
            least = page[-1][0] + b"\0"
            recorded.is_cut = len(recorded.versions) >= MOST
        recorded.resources = list(newest.values())
        return recorded

    async def _compare(self, specs: Specs, resources: Sequence[Resource]) -> list[Difference]:
        """Return the resources that differ, each with its present state.

        One thread at a time compares; the ops of `file` have the others.
        """
        found, left, is_over = list[Difference](), iter(resources), False

        def compare_some() -> bool:
            """Compare the next ones, until a slice of time is over; tell whether none is left."""
            until = self.clock.monotonic() + SLICE_S
            for each in left:
                actual = find_difference(self.files, specs[each.job], each.kept)
                if actual is not None:
                    found.append((each, actual))
                if self.clock.monotonic() > until:
                    return False
            return True

        while not is_over:
            async with self.files.turns:
                is_over = await asyncio.to_thread(compare_some)
        return found

    def _remarks(self, recorded: RecordedState) -> Iterator[str]:
        if recorded.is_cut:
            yield f"only the first {len(recorded.versions)} resources were compared: there are more"
        if elsewhere := [job for job in recorded.gone if self.is_elsewhere(job)]:
            left = counted(sum(recorded.gone.pop(job) for job in elsewhere), "resource")
            yield f"{left} not checked: of jobs of other nodes, which `spyweb drift JOB` asks"
        for job, count in sorted(recorded.gone.items()):
            left = counted(count, "resource")
            if job in self.broken():
                yield f"{left} of {job} not checked: its file does not load"
            else:
                yield (
                    f"{left} of {job} not checked: that job was removed; "
                    f"`spyweb state clear '{job}:*' --scope {SCOPE}` forgets them"
                )


def _view(resource: Resource, actual: str, others: Collection[JobId]) -> DriftView:
    also = f" (kept by {', '.join(sorted(others))} as well)" if others else ""
    origin = {"job": resource.job, "run": resource.run, "since_ms": resource.at_ms}
    words = {"expected": describe_expected(resource.kept), "actual": f"{actual}{also}"}
    return copied(DriftView, resource.kept, resource=_shown(resource.key), **words, **origin)


def _shown(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def _bad_view(key: bytes, reason: str) -> DriftView:
    _, module, target, *_ = (*key.decode("utf-8", "replace").split(":", 2), "", "")
    remedy = f"its row can't be read ({reason}); the next run of its job writes it anew"
    return DriftView(resource=_shown(key), job=job_of(key), module=module, target=target, expected="", actual=remedy)
