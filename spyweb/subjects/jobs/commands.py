"""`spyweb jobs` and `next`: list the jobs, and when each is due; `trigger`, `pause` and `resume`: start or stop one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, of_job, with_query
from spyweb.cli.options import JobName, MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, find_in
from spyweb.errors import Problem
from spyweb.model import JobId, RunId
from spyweb.settings.units import format_duration
from spyweb.views.jobs import JobView, NextRun
from spyweb.views.runs import LastRun, describe_details, describe_storage_errors


def jobs(context: typer.Context, form: Output = Format.TABLE) -> None:
    """List the jobs, and how each one goes.

    Its state, its schedule, its next and its last run, and what is wrong with its file.  What is doubtful in the
    project's files follows.
    """
    project = project_of(context)
    source = project.backend()
    found = listed_jobs(source)
    show_jobs(form, found, project.settings.daemon.timezone, project.clock.now_ms())
    for warning in _warnings(source) if form is Format.TABLE else ():
        output.note(f"warning: {warning}")


def listed_jobs(source: Backend) -> list[JobView]:
    """Return the jobs with what is on record of each: when it is due next, and how its last run went."""
    if isinstance(source, DaemonClient):
        return source.jobs()
    from spyweb.subjects.jobs.stored_jobs import listed_jobs

    return listed_jobs(source)


def _warnings(source: Backend) -> list[Problem]:
    if isinstance(source, DaemonClient):
        return source.ask("GET", "/api/warnings", list[Problem])
    return sorted(source.scanned.warnings, key=Problem.place)


def show_jobs(form: Format, found: Sequence[JobView], timezone: str, now_ms: int) -> None:
    def row(job: JobView) -> dict[str, str]:
        last, took = _last_cells(job.last, now_ms)
        return {
            "job": job.id,
            "state": job.state,
            "schedule": job.schedule.removesuffix(f" ({timezone})"),
            "next": "" if job.next_due_ms is None else output.until(job.next_due_ms - now_ms),
            "last": last,
            "took": took,
            "note": job.error or "; ".join(filter(None, (job.paused_for, describe_last(job.last) if job.last else ""))),
            "description": job.description,
        }

    empty, cut, spare = "no jobs: put a Lua file into jobs/", ("note", "schedule", "job"), ("description", "took")
    output.show_list(form, found, row, empty=empty, cut=cut, spare=spare)


def next_runs(
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=10_000, help="How many.")] = 5,
    form: Output = Format.TABLE,
) -> None:
    """List the next due times, with their time zone."""
    project = project_of(context)
    backend, now_ms = project.backend(), project.clock.now_ms()
    chosen = find_in(backend.jobs(), job) if job else None
    if isinstance(backend, DaemonClient):
        found = backend.ask("GET", with_query("/api/next", job=chosen, count=count), list[NextRun])
    else:
        from spyweb.subjects.jobs.stored_jobs import next_runs

        found = next_runs(backend, chosen, count)

    def row(run: NextRun) -> dict[str, str]:
        return {"due": run.local, "in": output.until(run.due_ms - now_ms), "job": run.job}

    output.show_list(form, found, row, empty="nothing is due")


def _last_cells(last: LastRun | None, now_ms: int) -> tuple[str, str]:
    if last is None:
        return ("", "")
    ended = "" if last.ended_ms is None else f", {output.rounded(now_ms - last.ended_ms)} ago"
    took = "" if last.duration_ms is None else format_duration(last.duration_ms)
    return (f"{last.outcome}{ended}", took)


def describe_last(last: LastRun) -> str:
    """Describe the latest run for the list of jobs: what asks for attention goes first."""
    details = describe_details(replace(last, note=""))
    return "; ".join(filter(None, (describe_storage_errors(last.storage_errors), last.note, details)))


def trigger(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Have the daemon start a job now.

    Does not wait for it: `spyweb run` does.
    """
    project = project_of(context)
    daemon = project.need_daemon(f": `spyweb run {job}` runs the job here, `spyweb start` starts one")
    run = start_run(daemon, find_in(daemon.jobs(), job))
    output.tell(form, "it did not start: see `spyweb runs`" if run is None else f"run {run} starts", {"run": run})


def start_run(daemon: DaemonClient, job: JobId) -> RunId | None:
    return daemon.ask("POST", of_job(job, "trigger"), dict[str, RunId | None])["run"]


def pause(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Stop a job's schedule until it is resumed.

    A run under way goes on.  The pause outlives restarts.
    """
    chosen = _set_paused(project_of(context).backend(), job, paused=True)
    output.tell(form, f"{chosen} is paused", {"job": chosen, "paused": True})


def resume(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Let a paused job's schedule go on.

    What was due meanwhile does not run: it is recorded as paused.
    """
    chosen = _set_paused(project_of(context).backend(), job, paused=False)
    output.tell(form, f"{chosen} is no longer paused", {"job": chosen, "paused": False})


def _set_paused(source: Backend, name: str, *, paused: bool) -> JobId:
    job = find_in(source.jobs(), name)
    if isinstance(source, DaemonClient):
        source.ask("POST", of_job(job, "pause" if paused else "resume"), dict[str, object])
    else:
        from spyweb.subjects.jobs.stored_jobs import set_paused

        set_paused(source, job, paused=paused)
    return job
