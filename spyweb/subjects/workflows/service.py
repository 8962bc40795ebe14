"""The runs of jobs with tasks, and the resources that they keep: for `spyweb state workflow`, over any open store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from spyweb.errors import Absent
from spyweb.model import JobId, RunId
from spyweb.ops.resources import NAMESPACE, BadResource, Expected, Resource, prefix_of, read_resource
from spyweb.store.sqlite.store import Store
from spyweb.subjects.state.service import PAGE, take_page
from spyweb.subjects.workflows.views import ResourceView, WorkflowDetail, WorkflowView, view_workflow
from spyweb.views.runs import view_task

MOST = 1_000  # runs that a name is looked for in
LONGEST_RUN = 19  # digits of the largest number that the store takes


@dataclass(frozen=True, slots=True)
class WorkflowService:
    store: Store

    async def newest(self, limit: int) -> list[WorkflowView]:
        """Return the newest runs that have tasks on record."""
        kept = Counter([each.run async for each in self._resources(None)])
        runs = await self.store.tasks.newest(limit)
        rows = await self.store.tasks.of_runs(runs)
        found = [await self.store.past_runs.find(run) for run in runs]
        return [
            view_workflow(run, [row.workflow for row in rows.get(run.id, ())], kept[run.id]) for run in found if run
        ]

    async def detail(self, which: str) -> WorkflowDetail:
        """Return a run by its id, or the newest of a workflow or a job by its name.  Raises Absent."""
        run_id = await self._find(which)
        run = None if run_id is None else await self.store.past_runs.find(run_id)
        if run is None:
            raise Absent(f"there is no run of a workflow {which[:80]!r}: `spyweb state workflow list` lists them")
        rows = (await self.store.tasks.of_runs([run.id])).get(run.id, ())
        resources = [each async for each in self._resources(run.job) if each.run == run.id]
        return WorkflowDetail(
            workflow=view_workflow(run, [row.workflow for row in rows], len(resources)),
            tasks=[view_task(row) for row in rows],
            resources=[view_resource(each) for each in resources],
        )

    async def _find(self, which: str) -> RunId | None:
        if which.isascii() and which.isdecimal() and len(which) < LONGEST_RUN:
            run = RunId(int(which))
            return run if await self.store.tasks.of_runs([run]) else None
        runs = await self.store.tasks.newest(MOST)
        rows = await self.store.tasks.of_runs(runs)
        for run in runs:
            if any(row.workflow == which for row in rows.get(run, ()) if row.workflow):
                return run
            found = await self.store.past_runs.find(run)
            if found and found.job == which:
                return run
        return None

    async def _resources(self, job: JobId | None) -> AsyncIterator[Resource]:
        """Yield the resources of one job, or of all, without unreadable rows: `spyweb drift` reports those."""
        prefix = b"" if job is None else prefix_of(job)
        least = prefix
        while page := await self.store.values.gather(NAMESPACE, prefix, partial(take_page, PAGE), least=least):
            for key, entry in page:
                try:
                    yield read_resource(key, entry.value)
                except BadResource:
                    continue
            least = page[-1][0] + b"\0"


def view_resource(resource: Resource) -> ResourceView:
    kept = resource.kept
    action = "noop" if not resource.changed else "delete" if kept.expected is Expected.ABSENT else "update"
    return ResourceView(
        type=kept.module, name=kept.target, action=action, checksum=kept.checksum, created_ms=resource.at_ms
    )
