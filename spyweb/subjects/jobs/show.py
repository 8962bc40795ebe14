"""`spyweb show`: everything about one job, as its page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.client import DaemonClient
from spyweb.cli.options import JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, find_in
from spyweb.model import JobId, Run
from spyweb.settings.units import format_duration
from spyweb.specs.origins import OriginKind, ResolvedSetting, resolve_settings
from spyweb.store.model.entries import job_namespace
from spyweb.store.model.runs import FailingSeries, RunStrip
from spyweb.subjects.incidents.commands import incidents
from spyweb.subjects.incidents.views import IncidentView, told_words
from spyweb.subjects.jobs.commands import describe_last, shown_state
from spyweb.subjects.jobs.overview import failed_runs, read_strips, view_row
from spyweb.subjects.jobs.stored_jobs import listed_jobs
from spyweb.subjects.jobs.views import JobDetail, LastError, Tie, detail_of, last_error
from spyweb.subjects.runs.commands import newest_runs, show_runs
from spyweb.views.runs import DECISIVE, LastRun
from spyweb.views.source import frames_of
from spyweb.words import counted

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject
    from spyweb.store.sqlite.store import Store

OPEN_INCIDENTS = 10


def show(
    context: typer.Context,
    job: JobName,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many runs.")] = 5,
    every: Annotated[bool, typer.Option("--all", help="Show settings with their defaults too.")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Show a job's state, last error, settings and runs.

    Also its schedule, next and last run, success rate and open incident, and which file each setting comes from.
    """
    project = project_of(context)
    source = project.backend()
    chosen = find_in(source.jobs(), job)
    if isinstance(source, DaemonClient):
        detail = source.ask("GET", f"/api/jobs/{quote(chosen, safe='')}", JobDetail)
    else:
        detail = stored_detail(source, chosen)
    found = incidents(source, is_open=True, limit=OPEN_INCIDENTS, job=chosen)
    runs = newest_runs(source, chosen, limit=count)
    if form is Format.JSON:
        output.show_json({"job": detail, "incidents": found, "runs": runs})
        return
    output.show_fields([fact for fact in _facts(project, detail, found) if fact[1]])
    if detail.error:
        output.say("\n" + "\n".join(_error_lines(detail.error)))
    if detail.settings:
        _show_settings(detail.settings, every=every)
    output.say("")
    show_runs(form, runs, project.settings.daemon.timezone, project.clock.now_ms())


def stored_detail(project: OfflineProject, job: JobId) -> JobDetail:
    """Return everything about a job as `JobDetails` does, but for what only a daemon knows."""
    view = next(view for view in listed_jobs(project) if view.id == job)
    file = project.scanned.jobs.get(job)
    if file is None:
        problems = project.scanned.broken[job]
        return JobDetail(row=view_row(view), schedule="", problems=problems, namespace=job_namespace(job))
    spec = file.spec

    async def ask(store: Store) -> tuple[RunStrip, FailingSeries | None, Sequence[Run]]:
        strips, series = await read_strips(store, [spec])
        failing = series.get(job)
        return strips[job], failing, await failed_runs(store.past_runs, job, failing.count if failing else 0)

    nothing: tuple[RunStrip, FailingSeries | None, Sequence[Run]] = (RunStrip(), None, [])
    strip, series, failed = project.read(ask, nothing)
    errors = (last_error(run, frames_of(run.traceback), None, [each.reason for each in failed]) for run in failed)
    row, timezone = view_row(view, strip=strip, series=series), project.settings.daemon.timezone
    settings = resolve_settings(spec, file.sources, project.settings.permissions)
    detail = detail_of(row, spec, project.specs, timezone, settings)
    return replace(detail, problems=file.warnings, error=next(errors, None))


def _show_settings(settings: Sequence[ResolvedSetting], *, every: bool) -> None:
    given = [each for each in settings if every or each.origin is not OriginKind.BUILT_IN]
    rows = [(each.key, each.value, each.words) for each in given]
    output.say("")
    output.show_table(("setting", "value", "from"), rows, empty="all settings have their defaults", cut=("value",))
    if left_out := len(settings) - len(given):
        output.note(f"{counted(left_out, 'default')}: --all shows them")


def _facts(project: Project, detail: JobDetail, open_incidents: Sequence[IncidentView]) -> Iterator[tuple[str, str]]:
    row, job, now_ms = detail.row, detail.row.job, project.clock.now_ms()
    yield "job", job.id if job.name == job.id else f"{job.id} ({job.name})"
    yield "description", job.description
    yield "node", job.node
    failing = f"{row.failing.words}, since {project.moment(row.failing.since_ms)}" if row.failing else ""
    why = failing if shown_state(job) == "failing" else job.paused_for
    yield "state", ": ".join(filter(None, (shown_state(job), why)))
    yield "failing", "" if why == failing else failing
    yield "schedule", detail.schedule
    if job.next_due_ms is not None:
        yield "next", f"{output.until(job.next_due_ms - now_ms)}, {project.moment(job.next_due_ms)}"
    if job.last:
        yield (
            "last run",
            _last_run(job.last, now_ms, "" if detail.error else describe_last(job.last, is_check=bool(job.check))),
        )
    if row.success_rate is not None:
        ended = sum(mark in DECISIVE for mark in row.strip)
        median = f", median {format_duration(row.median_ms)}" if row.median_ms is not None else ""
        yield "success rate", f"{100 * row.success_rate:.0f} % of {counted(ended, 'run')}{median}"
    for each in open_incidents:
        acked = f", acknowledged by {each.acked_by}" if each.acked_by else ""
        opened = f"{each.id}, since {project.moment(each.since_ms)}: {each.reason}{acked}"
        yield "incident", "; ".join(filter(None, (opened, told_words(each), each.held and f"held: {each.held}")))
    yield "starts after", ", ".join(map(_tie, detail.follows))
    yield "starts", ", ".join(map(_tie, detail.followed_by))
    yield "listens to", "; ".join(detail.listens)
    yield "watches", ", ".join(detail.pages)
    yield "tags", ", ".join(job.tags)
    yield "file", job.path
    for problem in detail.problems:
        yield "warning" if problem.is_warning else "problem", str(problem)


def _last_run(last: LastRun, now_ms: int, details: str) -> str:
    ago = "" if last.ended_ms is None else f" {output.rounded(now_ms - last.ended_ms)} ago"
    took = "" if last.duration_ms is None else f", in {format_duration(last.duration_ms)}"
    return ": ".join(filter(None, (f"{last.run}, {last.outcome}{ago}{took}", details)))


def _tie(tie: Tie) -> str:
    outcomes = " or ".join(tie.outcomes)
    return f"{tie.job} ({outcomes}{'' if tie.is_there else '; no such job'})"


def _error_lines(error: LastError) -> Iterator[str]:
    same = {True: ", the same in all failures", False: ", other failures differ"}
    yield f"last error, run {error.run}{'' if error.is_same is None else same[error.is_same]}:"
    yield from (f"  {line}" for line in [*error.reason.splitlines(), *(frame.text for frame in error.frames)])
