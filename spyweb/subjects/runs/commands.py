"""`spyweb runs`: list what ran, what did not, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MOST_ROWS, MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project, found_of
from spyweb.model import JobId, Outcome, Run, RunId, TaskRow, TriggerType
from spyweb.settings.units import format_duration
from spyweb.subjects.runs.task_tree import show_tree
from spyweb.views.runs import TaskView, describe_details, describe_outcome, duration_ms, run_with_tasks, view_task

PAGE = 1_000
NO_RUNS = "no runs yet"


def runs(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many.")] = 20,
    outcome: Annotated[Outcome | None, typer.Option(help="Only those that ended so.")] = None,
    trigger: Annotated[TriggerType | None, typer.Option(help="Only those that began so.")] = None,
    with_tasks: Annotated[bool, typer.Option("--tasks", help="With the tasks of each run, below it.")] = False,
    form: Output = Format.TABLE,
) -> None:
    """List what ran and what did not, newest first.

    Due times that did not run are among them, each stretch in one line with the reason.
    """
    project = project_of(context)
    source = project.backend()
    every = _pages(source, job, PAGE if outcome or trigger else min(count, PAGE))
    wanted = (run for run in every if outcome in (None, run.outcome) and trigger in (None, run.trigger.type))
    found = list(islice(wanted, count))
    if with_tasks:
        _show_with_tasks(source, project, found, form)
    elif form is Format.JSON:
        output.show_json(found)
    else:
        show_runs(found, project.settings.daemon.timezone, project.clock.now_ms())


def _show_with_tasks(source: Backend, project: Project, found: list[Run], form: Format) -> None:
    if form is Format.JSON:
        output.show_json([run_with_tasks(run, tasks_of(source, run.id)) for run in found])
        return
    for run in found:
        row = _row(run, project.settings.daemon.timezone, project.clock.now_ms())
        output.say("  ".join(filter(None, row)))
        show_tree(tasks_of(source, run.id), depth=1)
    if not found:
        output.note(NO_RUNS)


def _pages(source: Backend, name: str | None, limit: int) -> Iterator[Run]:
    """Yield runs page by page as they are asked for; a job that is gone still has its history."""
    page = found_of(source, name or None, lambda job: newest_runs(source, job, limit=limit))
    while page:
        yield from page
        page = newest_runs(source, page[-1].job if name else None, limit=limit, before=page[-1].id)


def newest_runs(source: Backend, job: JobId | None, *, limit: int, before: RunId | None = None) -> list[Run]:
    if isinstance(source, DaemonClient):
        return source.ask("GET", with_query("/api/runs", job=job, limit=limit, before=before), list[Run])
    return source.read(lambda store: store.runs.list(job, limit=limit, before=before), [])


def tasks_of(source: Backend, run: RunId) -> list[TaskView]:
    if isinstance(source, DaemonClient):
        return source.ask("GET", f"/api/runs/{run}/tasks", list[TaskView])
    found: Mapping[RunId, Sequence[TaskRow]] = source.read(lambda store: store.tasks.of_runs([run]), {})
    return [view_task(row) for row in found.get(run, ())]


def show_runs(found: list[Run], timezone: str, now_ms: int) -> None:
    header = ("run", "job", "began", "took", "trigger", "outcome")
    rows = [_row(run, timezone, now_ms) for run in found]
    output.show_table(header, rows, empty=NO_RUNS, cut=("job", "trigger", "outcome"))


def _row(run: Run, timezone: str, now_ms: int) -> tuple[str, ...]:
    began_ms = run.due_ms if run.started_ms is None else run.started_ms
    took = duration_ms(run)
    attempt = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    return (
        str(run.id),
        run.job,
        "" if began_ms is None else output.row_moment(began_ms, timezone, now_ms),
        "" if took is None else format_duration(took),
        f"{run.trigger.type}{attempt}",
        _outcome(run, timezone, now_ms),
    )


def _outcome(run: Run, timezone: str, now_ms: int) -> str:
    """Describe how a run ended: its outcome and details."""
    outcome, details = describe_outcome(run, run.state), describe_details(run)
    if run.count > 1 and run.last_due_ms is not None:
        details += f" ({run.count} due times, the last {output.row_moment(run.last_due_ms, timezone, now_ms)})"
    return f"{outcome}: {details}" if details else outcome
