"""`spyweb runs` and `artifacts`: list runs, due times that did not run, and the files that tasks have kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec import Struct

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MOST_ROWS, JobName, MaybeJob, Output, project_of, root_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, answer_of, found_of, open_project
from spyweb.errors import Refused
from spyweb.model import JobId, Outcome, Run, RunId, TaskRow, TriggerType
from spyweb.settings.units import format_duration, format_size
from spyweb.views import runs as run_views
from spyweb.views.jobs import to_json
from spyweb.words import counted

PAGE = 1_000
NO_RUNS = "no runs yet"
RUNNING = "running"


def runs(  # noqa: PLR0913 - each is an option
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many.")] = 20,
    outcome: Annotated[Outcome | None, typer.Option(help="Only runs with this outcome.")] = None,
    trigger: Annotated[TriggerType | None, typer.Option(help="Only runs with this trigger.")] = None,
    with_tasks: Annotated[bool, typer.Option("--tasks", help="Show the tasks of each run below it.")] = False,
    form: Output = Format.TABLE,
) -> None:
    """List runs, newest first.

    Due times that did not run are listed too: consecutive ones in one line, with the reason.
    """
    project = project_of(context)
    source = project.backend()
    every = _pages(source, job, PAGE if outcome or trigger else min(count, PAGE))
    wanted = (run for run in every if outcome in (None, run.outcome) and trigger in (None, run.trigger.type))
    found = list(islice(wanted, count))
    timezone, now_ms = project.settings.daemon.timezone, project.clock.now_ms()
    if not (with_tasks and found):
        show_runs(form, found, timezone, now_ms)
    elif form is Format.JSON:
        output.show_json([run_views.run_with_tasks(run, tasks_of(source, run.id)) for run in found])
    else:
        for run in found:
            output.say("  ".join(filter(None, _row(run, timezone, now_ms).values())))
            show_tree(tasks_of(source, run.id), depth=1)


def _pages(source: Backend, name: str | None, limit: int) -> Iterator[Run]:
    """Yield runs, read page by page; a job that was removed still has its history."""
    page = found_of(source, name or None, lambda job: newest_runs(source, job, limit=limit))
    while page:
        yield from page
        page = newest_runs(source, page[-1].job if name else None, limit=limit, before=page[-1].id)


def newest_runs(source: Backend, job: JobId | None, *, limit: int, before: RunId | None = None) -> list[Run]:
    target = with_query("/api/runs", job=job, limit=limit, before=before)
    return answer_of(source, target, list[Run], lambda store: store.runs.list(job, limit=limit, before=before), [])


def tasks_of(source: Backend, run: RunId) -> list[run_views.TaskView]:
    if isinstance(source, DaemonClient):
        return source.ask("GET", f"/api/runs/{run}/tasks", list[run_views.TaskView])
    found: Mapping[RunId, Sequence[TaskRow]] = source.read(lambda store: store.tasks.of_runs([run]), {})
    return [run_views.view_task(row) for row in found.get(run, ())]


def show_runs(form: Format, found: list[Run], timezone: str, now_ms: int) -> None:
    row = partial(_row, timezone=timezone, now_ms=now_ms)
    output.show_list(form, found, row, empty=NO_RUNS, cut=("job", "trigger", "outcome"))


def _row(run: Run, timezone: str, now_ms: int) -> dict[str, str]:
    began_ms = run.due_ms if run.started_ms is None else run.started_ms
    took = run_views.duration_ms(run)
    attempt = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    trial = " (debug)" if run.trigger.debug else " (dry run)" if run.trigger.dry_run else ""
    retried = f" of run {run.trigger.retry_of}" if run.trigger.retry_of and not run.trigger.of else ""
    outcome = ", ".join(filter(None, (run.outcome or run.state, run_views.describe_storage_errors(run.storage_errors))))
    details = run_views.describe_details(run)
    if run.count > 1 and run.last_due_ms is not None:
        details += f" ({run.count} due times, the last {output.row_moment(run.last_due_ms, timezone, now_ms)})"
    return {
        "run": str(run.id),
        "job": run.job,
        "began": "" if began_ms is None else output.row_moment(began_ms, timezone, now_ms),
        "took": "" if took is None else format_duration(took),
        "trigger": f"{run.trigger.type}{trial}{retried}{attempt}",
        "outcome": f"{outcome}: {details}" if details else outcome,
    }


def retry(
    context: typer.Context,
    run: Annotated[int, typer.Argument(metavar="RUN", help="The number of a failed run.", show_default=False)],
    anyway: Annotated[bool, typer.Option("--anyway", help="Also if the job's code has changed since.")] = False,
    form: Output = Format.TABLE,
) -> None:
    """Start a failed run again, with the same payload and values.

    Of a run with tasks only those that failed or did not run are performed; the results of the others are taken over.
    """
    daemon = project_of(context).need_daemon(": `spyweb start` starts one")
    found = daemon.ask("POST", f"/api/runs/{run}/retry", run_views.RunRetried, body=to_json({"anyway": anyway}))
    words = f"run {found.run} retries run {run} of {found.job}"
    if found.taken_over:
        start = f" from {found.first_task}" if found.first_task else ""
        words += f"{start}: {counted(found.taken_over, 'task')} taken over"
    output.tell(form, words if found.run else "it did not start: see `spyweb runs`", msgspec.to_builtins(found))


class KeptFile(Struct):
    run: int
    name: str
    size: int


def artifacts(
    context: typer.Context,
    job: JobName,
    run: Annotated[
        int | None, typer.Argument(metavar="[RUN]", help="The run; by default the newest with files.")
    ] = None,
    get: Annotated[str | None, typer.Option("--get", metavar="NAME", help="Print this file.")] = None,
    form: Output = Format.TABLE,
) -> None:
    """List the files that the tasks of a run have kept.

    Without RUN: the newest run of the job that has files.
    """
    from spyweb.ops.files.artifacts import FOLDER, list_files  # every other command does without the ops

    project = open_project(root_of(context))

    def folders(known: JobId | None) -> list[Path]:
        of_job = project.settings.daemon.data_dir / FOLDER / Path(known or job).name
        return [path for path in of_job.iterdir() if path.name.isdecimal()] if of_job.is_dir() else []

    of_runs = {int(path.name): path for path in found_of(project.offline, job, folders)}
    folder = of_runs.get(max(of_runs, default=0) if run is None else run)
    names = list_files(folder) if folder else []
    if get is not None:
        if folder is None or get not in names:
            raise Refused(f"there is no artifact {get}: there are {', '.join(names) or 'none'}")
        output.print_file(folder / get)
        return
    found = [KeptFile(int(folder.name), name, (folder / name).stat().st_size) for name in names] if folder else []

    def row(file: KeptFile) -> dict[str, str]:
        return {"run": str(file.run), "file": file.name, "size": format_size(file.size)}

    output.show_list(form, found, row, empty="no task has kept a file")


class TaskTree:
    """Shows each task as it ends; on a terminal a temporary line names the tasks under way."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._workflow = ""  # whose tasks are being shown
        self._under_way: dict[tuple[str, str], None] = {}

    def show(self, task: run_views.TaskView) -> None:
        key = (task.workflow, task.task)
        if task.status == RUNNING:
            self._under_way[key] = None
        else:
            self._under_way.pop(key, None)
            self.hide_passing()
            if task.workflow != self._workflow:
                self._workflow = task.workflow
                output.show_branch(self._depth, "", task.workflow)
            output.show_branch(self._depth + bool(task.workflow), task.status, describe_task(task))
        self.show_passing()

    def show_passing(self) -> None:
        if self._under_way:
            output.show_passing(f"{RUNNING} {', '.join(task for _, task in self._under_way)}")

    def hide_passing(self) -> None:
        output.show_passing("")


def describe_task(task: run_views.TaskView) -> str:
    """Describe a task, without its status: `build in 1.2s (attempt 3): pushed`."""
    took = f" in {format_duration(task.took_ms)}" if task.took_ms is not None and task.attempts else ""
    attempts = f" (attempt {task.attempts})" if task.attempts > 1 else ""
    is_older = not task.attempts and task.status in ("success", "unchanged")  # recorded before `taken_from` was
    origin = f"run {task.taken_from}" if task.taken_from else "an earlier run" if is_older else ""
    earlier = f" (taken over from {origin})" if origin else ""
    return f"{task.task}{took}{attempts}{earlier}{': ' if task.message else ''}{' '.join(task.message.split())}"


def show_tree(tasks: Iterable[run_views.TaskView], depth: int = 0) -> None:
    tree = TaskTree(depth)
    for task in tasks:
        tree.show(task)
