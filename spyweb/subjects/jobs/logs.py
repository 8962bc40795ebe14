"""`spyweb logs`: show what a job's script logged.  Reads the file itself: a daemon need not run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import of_job, with_query
from spyweb.cli.options import MOST_ROWS, JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, find_in
from spyweb.clock import RealClock
from spyweb.errors import Refused, SpywebError
from spyweb.events.happenings import EventType, LogHappened, RunHappened
from spyweb.logs.job import stamped
from spyweb.logs.reading import follow, last_lines
from spyweb.model import Failure, Outcome, Run, RunId
from spyweb.subjects.jobs.commands import listed_jobs
from spyweb.subjects.runs.commands import newest_runs
from spyweb.views.jobs import JobView, log_file, to_json
from spyweb.views.runs import describe_details

LATEST = 50  # runs that are looked at
MOST_REMOTE_LINES = 10_000
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
    views = listed_jobs(project.backend())
    chosen = find_in(views, job)
    view = next(view for view in views if view.id == chosen)
    if following and project.is_elsewhere:
        _follow_elsewhere(project, view, count, form)
        return
    lines = log_lines(project, view, count)
    if not lines:
        output.note(f"{chosen} has not logged anything yet")
    _show(lines, form, following=following)
    trouble = _trouble(view)
    if trouble:
        output.note(trouble)
    if following:
        failures = Failures(lambda: newest_runs(project.need_daemon(), chosen, limit=LATEST))
        asyncio.run(_follow(log_file(project.root, view.folder), form, lambda: failures.look(project.clock.now_ms())))


def log_lines(project: Project, job: JobView, count: int) -> list[str]:
    """Return the last lines that a job's script has logged."""
    if not project.is_elsewhere:
        return last_lines(log_file(project.root, job.folder), count)
    target = with_query(of_job(job.id, "logs"), lines=min(count, MOST_REMOTE_LINES))
    return project.need_daemon().ask("GET", target, list[str])


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


def _follow_elsewhere(project: Project, view: JobView, count: int, form: Format) -> None:
    """Show the last lines, and go on with the events of a daemon on another machine."""
    daemon = project.need_daemon()
    shown: Counter[str] = Counter()
    for name, data in daemon.events(types="log,run", job=view.id):
        if not name:  # from here on nothing is missed: what came before is in the file, and some of it may come twice
            lines = log_lines(project, view, count)
            _show(lines, form, following=True)
            shown.update(lines)
        elif name == EventType.LOG:
            line = msgspec.json.decode(data, type=LogHappened)
            for each in stamped(line.at_ms, line.level, line.text).decode("utf-8", "replace").splitlines():
                if shown[each]:
                    shown[each] -= 1
                else:
                    _show_line(each, form)
        elif name == EventType.RUN:
            run = msgspec.json.decode(data, type=RunHappened)
            if run.what == "ended" and run.outcome in FAILURE_WORDS:
                _show_line(_failure_line(run.run, run.outcome, run.ended_ms, _details_of(run)), form)
        else:
            output.note("lines came faster than they were read: some are not shown")
    raise Refused(daemon.cut_off("the log had ended"))


def _details_of(run: RunHappened) -> str:
    if run.failure in (None, Failure.ERROR) or run.reason.startswith(run.failure):
        return run.reason
    return f"{run.failure}: {run.reason}"


async def _follow(path: Path, form: Format, look_elsewhere: Callable[[], Sequence[str]]) -> None:
    async for line in follow(path, RealClock(), look_elsewhere):
        _show_line(line, form)


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
        return [
            _failure_line(run.id, run.outcome, run.ended_ms, describe_details(run))
            for run in new
            if run.outcome in FAILURE_WORDS
        ]


def _failure_line(run: RunId | None, outcome: Outcome | None, ended_ms: int | None, details: str) -> str:
    """Format a failed run like a line of the log."""
    word = FAILURE_WORDS[outcome] if outcome else ""
    at = datetime.fromtimestamp((ended_ms or 0) / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return " ".join(f"{at.removesuffix('+00:00')}Z ERROR run {run} {word}: {details}".split())
