"""The jobs of a project and their due times, read from its files and its database while no daemon runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spyweb.cli.offline import OfflineProject
from spyweb.cooperative import run_at_once
from spyweb.errors import Refused
from spyweb.model import Cursor, JobId, JobSpec, Pings, Run
from spyweb.schedules import due
from spyweb.store.model.runs import Change
from spyweb.store.opening import refuse_beside_nodes
from spyweb.views.jobs import JobPaused, JobView, NextRun, next_run, view_job, zone_of

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store


def listed_jobs(project: OfflineProject) -> list[JobView]:
    async def ask(store: Store) -> tuple[dict[JobId, Cursor], dict[JobId, Run]]:
        return await store.runs.cursors(), await store.runs.latest()

    nothing: tuple[dict[JobId, Cursor], dict[JobId, Run]] = ({}, {})
    cursors, latest = project.read(ask, nothing)

    def view(spec: JobSpec) -> JobView:
        cursor = cursors.get(spec.id)
        warnings = tuple(map(str, project.scanned.jobs[spec.id].warnings))
        next_due_ms = next(_upcoming(spec, cursor, project.clock.now_ms()), None)
        return replace(view_job(spec, cursor, latest.get(spec.id)), warnings=warnings, next_due_ms=next_due_ms)

    return project.jobs(view)


def next_runs(project: OfflineProject, job: JobId | None, count: int) -> list[NextRun]:
    cursors: dict[JobId, Cursor] = project.read(lambda store: store.runs.cursors(), {})
    chosen = [spec for spec in project.specs if job in (None, spec.id)]
    zones = {spec.id: zone_of(spec.schedule, project.settings.daemon.timezone) for spec in chosen}
    times = ((spec.id, _upcoming(spec, cursors.get(spec.id), project.clock.now_ms())) for spec in chosen)
    return [next_run(due_job, due_ms, zones[due_job]) for due_ms, due_job in run_at_once(due.earliest(times, count))]


def _upcoming(spec: JobSpec, cursor: Cursor | None, now_ms: int) -> Iterator[int]:
    """Yield the due times from now on, as if a daemon started now."""
    if not spec.enabled or (cursor and cursor.paused):
        return iter(())
    if isinstance(spec.schedule, Pings):
        expected_ms = due.expected_ping(spec.schedule, cursor.due_ms) if cursor else None
        return iter(() if expected_ms is None else (expected_ms,))
    due_ms = due.activate(spec, cursor, now_ms, due.SPREAD_MS).cursor.due_ms
    return due.upcoming(spec, due.decide_due(spec, due_ms, now_ms, kept_since_ms=now_ms).cursor_ms)


def set_paused(project: OfflineProject, job: JobId, *, paused: bool) -> JobPaused:
    """Pause or resume a job in the database: the next daemon starts from there, and records due times as paused."""
    file = project.scanned.jobs.get(job)
    if file is None:
        raise Refused(f"{job} does not load: `spyweb check` says why")
    spec = file.spec

    async def change(store: Store) -> tuple[Cursor | None, Cursor | None]:
        await refuse_beside_nodes(store)
        before = (await store.runs.cursors()).get(job)
        known: dict[JobId, Cursor | None] = {job: before}

        def set_it() -> Change:
            cursor, now_ms = known[job], project.clock.now_ms()
            if cursor is not None and cursor.paused is paused:
                return Change()
            # A job that no daemon has loaded yet gets its first cursor.
            seen = due.Activation(cursor=cursor) if cursor else due.activate(spec, None, now_ms, due.SPREAD_MS)
            changed = replace(due.deactivated(seen.cursor, now_ms), paused=paused, paused_for="")
            return Change(expects={job: cursor}, cursors=[changed], skipped=seen.skipped, steps=seen.steps)

        await store.runs.write_cursors(set_it, known.__setitem__)
        return before, (await store.runs.cursors()).get(job)

    before, now = project.write(change)
    due_ms = None if paused else next(_upcoming(spec, now, project.clock.now_ms()), None)
    return JobPaused(job=job, paused=paused, was_paused=bool(before and before.paused), next_due_ms=due_ms)
