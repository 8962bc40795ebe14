"""`spyweb jobs` and `next`: list the jobs, and when each is due; `trigger`, `pause` and `resume`: start or stop one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.options import JobName, MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import find_in
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
    found = source.jobs()
    if form is Format.JSON:
        output.show_json(found)
    else:
        show_jobs(found, project.settings.daemon.timezone, project.clock.now_ms())
        for warning in source.warnings():
            output.note(f"warning: {warning}")


def show_jobs(found: Sequence[JobView], timezone: str, now_ms: int) -> None:
    header = ("job", "state", "schedule", "next", "last", "took", "note", "description")
    rows = [_job_row(job, timezone, now_ms) for job in found]
    output.show_table(
        header,
        rows,
        empty="no jobs: put a Lua file into jobs/",
        cut=("note", "schedule", "job"),
        spare=("description", "took"),
    )


def next_runs(
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=10_000, help="How many.")] = 5,
    form: Output = Format.TABLE,
) -> None:
    """List the next due times, with their time zone."""
    project = project_of(context)
    backend, now_ms = project.backend(), project.clock.now_ms()
    found = backend.next_runs(find_in(backend.jobs(), job) if job else None, count)

    def row(run: NextRun) -> tuple[str, ...]:
        return (run.local, until(run.due_ms - now_ms), run.job)

    output.show_list(form, found, ("due", "in", "job"), row, empty="nothing is due")


def _job_row(job: JobView, timezone: str, now_ms: int) -> tuple[str, ...]:
    last, took = _last_cells(job.last, now_ms)
    return (
        job.id,
        job.state,
        job.schedule.removesuffix(f" ({timezone})"),
        "" if job.next_due_ms is None else until(job.next_due_ms - now_ms),
        last,
        took,
        job.error or "; ".join(filter(None, (job.paused_for, describe_last(job.last) if job.last else ""))),
        job.description,
    )


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


def until(ms: int) -> str:
    return f"in {output.rounded(ms)}" if ms > 0 else "now"


def trigger(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Have the daemon start a job now.

    Does not wait for it: `spyweb run` does.
    """
    project = project_of(context)
    daemon = project.need_daemon(f": `spyweb run {job}` runs the job here, `spyweb start` starts one")
    run = daemon.trigger(find_in(daemon.jobs(), job))
    output.tell(form, "it did not start: see `spyweb runs`" if run is None else f"run {run} starts", {"run": run})


def pause(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Stop a job's schedule until it is resumed.

    A run under way goes on.  The pause outlives restarts.
    """
    backend = project_of(context).backend()
    chosen = find_in(backend.jobs(), job)
    backend.pause(chosen)
    output.tell(form, f"{chosen} is paused", {"job": chosen, "paused": True})


def resume(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Let a paused job's schedule go on.

    What was due meanwhile does not run: it is recorded as paused.
    """
    backend = project_of(context).backend()
    chosen = find_in(backend.jobs(), job)
    backend.resume(chosen)
    output.tell(form, f"{chosen} is no longer paused", {"job": chosen, "paused": False})
