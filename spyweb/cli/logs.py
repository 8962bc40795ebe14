"""`spyweb logs`: show what a job's script logged.  Reads the file itself: a daemon need not run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import MOST_ROWS, JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, find_in
from spyweb.clock import RealClock
from spyweb.errors import Refused, SpywebError
from spyweb.logs.tail import follow
from spyweb.model import JobId, Outcome, Run, RunId
from spyweb.views.jobs import JobView, log_file, to_json
from spyweb.views.runs import describe_details

LATEST = 50  # runs that are looked at
POLL = 5  # looks at the file for one question to the daemon
SETTLED_MS = 500  # a script's lines reach the file a little after its run has ended
FAILURE_WORDS = {Outcome.FAILED: "failed", Outcome.LOST: "was lost"}


def logs(
    context: typer.Context,
    job: JobName,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines are added.")] = False,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many of the last lines.")
    ] = 50,
    form: Output = Format.TABLE,
) -> None:
    """Show what a job's script logged."""
    project = project_of(context)
    if following:
        project.need_files("`spyweb logs -f`")
    views = project.source().jobs()
    chosen = find_in(views, job)
    view = next(view for view in views if view.id == chosen)
    lines = project.log_lines(view, count)
    if not lines:
        output.note(f"{chosen} has not logged anything yet")
    _show(lines, form, following=following)
    trouble = _trouble(view)
    if trouble:
        output.note(trouble)
    if following:
        failures = Failures(partial(_latest_runs, project, view.id))
        asyncio.run(_follow(log_file(project.root, view.folder), form, lambda: failures.look(project.clock.now_ms())))


def _trouble(view: JobView) -> str:
    """Describe what the script could not log by itself: why its file does not load, or why its latest run failed."""
    if view.error:
        return f"its file does not load: {view.error}"
    last = view.last
    word = FAILURE_WORDS.get(last.outcome) if last else None
    if last and word:
        return f"its latest run ({last.run}) {word}: {last.reason}: see `spyweb runs {view.id}`"
    return ""


def _show(lines: list[str], form: Format, *, following: bool) -> None:
    """Print the lines: in JSON one array, or with -f, which has no end, one string a line."""
    if form is Format.JSON and not following:
        output.show_json(lines)
        return
    for line in lines:
        _show_line(line, form)


def _show_line(line: str, form: Format) -> None:
    if form is Format.JSON:
        output.show_json_line(to_json(line))
    else:
        output.say(line)


async def _follow(path: Path, form: Format, look_elsewhere: Callable[[], Sequence[str]]) -> None:
    async for line in follow(path, RealClock(), look_elsewhere):
        _show_line(line, form)


def _latest_runs(project: Project, job: JobId) -> Sequence[Run]:
    """Return the latest runs, newest first.  Raises Refused where no daemon runs: then no job does either."""
    daemon = project.find_daemon()
    if daemon is None:
        raise Refused("no daemon runs")
    return daemon.runs(job, limit=LATEST, before=None)


class Failures:
    """Finds the runs of a job that fail from now on, and formats them as lines of its log."""

    def __init__(self, ask: Callable[[], Sequence[Run]]) -> None:
        self._ask = ask
        self._looks = 0
        self._ended: set[RunId] | None = None  # of the latest runs those that had ended; None: not known yet

    def look(self, now_ms: int) -> list[str]:
        self._looks += 1
        if (self._looks - 1) % POLL:
            return []
        try:
            latest = self._ask()
        except SpywebError:  # the daemon is gone, or about to go: it is asked again
            return []
        ended = [run for run in reversed(latest) if run.ended_ms is not None and run.ended_ms + SETTLED_MS <= now_ms]
        new = [] if self._ended is None else [run for run in ended if run.id not in self._ended]
        self._ended = {run.id for run in ended}
        return [_failure_line(run) for run in new if run.outcome in FAILURE_WORDS]


def _failure_line(run: Run) -> str:
    """Format a failed run like a line of the log."""
    word = FAILURE_WORDS[run.outcome] if run.outcome else ""
    at = datetime.fromtimestamp((run.ended_ms or 0) / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return " ".join(f"{at.removesuffix('+00:00')}Z ERROR run {run.id} {word}: {describe_details(run)}".split())
