"""`spyweb jobs` and `next`: list the jobs and their due times; `trigger`, `pause` and `resume`: control one.

`logs`: show the log of a job's script; with `--follow` the daemon sends further lines.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

import msgspec
import typer
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, of_job, with_query
from spyweb.cli.options import MOST_ROWS, JobName, MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project, find_in
from spyweb.errors import Problem, Refused
from spyweb.model import Failure, JobId, Outcome, RunId
from spyweb.settings.units import format_duration
from spyweb.views.jobs import JobPaused, JobState, JobView, NextRun, is_failing, log_file, to_json
from spyweb.views.runs import LastRun, describe_end, describe_storage_errors

if TYPE_CHECKING:
    from spyweb.events.happenings import RunHappened

MOST_REMOTE_LINES = 10_000
SETTLED_S = 0.5  # a line reaches the file this much after it was logged
AGAIN_S = 1.0  # the time between two searches for a daemon, while none runs
MISSED = 1_000  # lines that a daemon may have logged before it was found again
COMPARED = 1_000  # characters by which a line is recognised: its event may be cut
NO_JOBS = "no jobs: put a Lua file into jobs/"
ShownState = Literal["failing", "idle", "running", "waiting", "paused", "disabled", "broken"]
_STAMPED = re.compile(r"(?P<at>[0-9T:.-]{23}Z) (?P<level>[A-Z]+) (?P<text>.*)", re.DOTALL)
FAILURE_WORDS = {Outcome.FAILED: "failed", Outcome.LOST: "was lost"}


def jobs(
    context: typer.Context,
    failing: Annotated[bool, typer.Option("--failing", help="Only jobs whose last run failed.")] = False,
    state: Annotated[ShownState | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    tag: Annotated[str, typer.Option("--tag", metavar="TAG", help="Only jobs with this tag.")] = "",
    form: Output = Format.TABLE,
) -> None:
    """List the jobs with their state, schedule and last run.

    The note says what is wrong with a job's file, or how its last run failed.  Warnings about the project's files
    follow the table.
    """
    project = project_of(context)
    source = project.backend()
    is_filtered = failing or state is not None or bool(tag)
    found = [job for job in listed_jobs(source) if state in (None, shown_state(job)) and (not tag or tag in job.tags)]
    found = [job for job in found if is_failing(job) or not failing]
    empty = "no job matches" if is_filtered else NO_JOBS
    show_jobs(form, found, project.settings.daemon.timezone, project.clock.now_ms(), empty)
    if form is not Format.TABLE or is_filtered:
        return
    if isinstance(source, DaemonClient):
        warnings = source.ask("GET", "/api/warnings", list[Problem])
    else:
        warnings = sorted(source.scanned.warnings, key=Problem.place)
    for warning in warnings:
        output.note(f"warning: {warning}")


def listed_jobs(source: Backend) -> list[JobView]:
    """Return the jobs, each with its next due time and its last run."""
    if isinstance(source, DaemonClient):
        return source.jobs()
    from spyweb.subjects.jobs.stored_jobs import listed_jobs

    return listed_jobs(source)


def shown_state(job: JobView) -> str:
    """Return the state that the list shows; JSON has the state without the last run's outcome."""
    may_fail = job.state in (JobState.IDLE, JobState.WAITING)
    return "failing" if may_fail and is_failing(job) else job.state.value


def show_jobs(form: Format, found: Sequence[JobView], timezone: str, now_ms: int, empty: str = NO_JOBS) -> None:
    has_nodes = any(job.node for job in found)

    def row(job: JobView) -> dict[str, str]:
        last, ended, took, why = job.last, "", "", job.paused_for
        if last:
            ended = "" if last.ended_ms is None else f", {output.rounded(now_ms - last.ended_ms)} ago"
            took = "" if last.duration_ms is None else format_duration(last.duration_ms)
            why = "; ".join(filter(None, (why, describe_last(last, is_check=bool(job.check)))))
        return {
            "job": job.id,
            **({"node": job.node} if has_nodes else {}),
            "state": shown_state(job),
            "schedule": job.schedule.removesuffix(f" ({timezone})"),
            "next": "" if job.next_due_ms is None else output.until(job.next_due_ms - now_ms),
            "last": f"{last.outcome}{ended}" if last else "",
            "took": took,
            "note": job.error or why,
            "description": job.description,
        }

    cut, spare = ("note", "schedule", "job"), ("description", "took")
    output.show_list(form, found, row, empty=empty, cut=cut, spare=spare)


def next_runs(
    context: typer.Context,
    job: MaybeJob = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=10_000, help="How many.")] = 5,
    form: Output = Format.TABLE,
) -> None:
    """List the next due times, with their time zone.

    Of all jobs, or of one.
    """
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


def describe_last(last: LastRun, *, is_check: bool = False) -> str:
    """Describe the latest run for the list of jobs: what needs attention comes first."""
    details = describe_end(replace(last, note=""), is_check=is_check)
    return "; ".join(filter(None, (describe_storage_errors(last.storage_errors), last.note, details)))


def trigger(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Start a job now, in the daemon.

    Does not wait for its end: `spyweb run` does.
    """
    daemon = project_of(context).need_daemon(f": `spyweb run {job}` runs the job here, `spyweb start` starts one")
    chosen = find_in(daemon.jobs(), job)
    run = start_run(daemon, chosen)
    line = f"run {run} of {chosen} starts: `spyweb logs {chosen} -f` follows it, `spyweb runs {chosen}` shows its end"
    output.tell(form, "no run was started: see `spyweb runs`" if run is None else line, {"run": run})


def start_run(daemon: DaemonClient, job: JobId) -> RunId | None:
    return daemon.ask("POST", of_job(job, "trigger"), dict[str, RunId | None])["run"]


def pause(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Pause a job's schedule until it is resumed.

    A run that is under way continues.  The pause survives restarts of the daemon.
    """
    now = _set_paused(project_of(context).backend(), job, paused=True)
    line = f"{now.job} was paused already" if now.was_paused else f"{now.job} is paused until `spyweb resume {now.job}`"
    output.tell(form, line, now)


def resume(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Resume a paused job's schedule.

    Due times that passed during the pause do not run: they are recorded as paused.
    """
    project = project_of(context)
    now = _set_paused(project.backend(), job, paused=False)
    line = f"{now.job} {'is resumed' if now.was_paused else 'was not paused'}"
    if (due_ms := now.next_due_ms) is not None:
        line += f": next due {output.until(due_ms - project.clock.now_ms())}, {project.moment(due_ms)}"
    output.tell(form, line, now)


def _set_paused(source: Backend, name: str, *, paused: bool) -> JobPaused:
    job = find_in(source.jobs(), name)
    if isinstance(source, DaemonClient):
        return source.ask("POST", of_job(job, "pause" if paused else "resume"), JobPaused)
    from spyweb.subjects.jobs.stored_jobs import set_paused

    return set_paused(source, job, paused=paused)


def logs(
    context: typer.Context,
    job: JobName,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Show further lines as they are logged.")] = False,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many of the last lines.")
    ] = 50,
    form: Output = Format.TABLE,
) -> None:
    """Show the log of a job's script."""
    project = project_of(context)
    views = listed_jobs(project.backend())
    chosen = find_in(views, job)
    view = next(view for view in views if view.id == chosen)
    if view.node:  # the log comes from there, and what is known of its runs here may be older
        from spyweb.subjects.jobs.views import JobDetail

        view = project.need_daemon().ask("GET", f"/api/jobs/{quote(chosen, safe='')}", JobDetail).row.job
    follower = LogFollower(project, view, form)
    if form is Format.JSON and not following:
        output.show_json(log_lines(project, view, count))
    elif not follower.show_file(count):
        output.note(f"{chosen} has not logged anything yet")
    last = view.last
    if view.error:  # the script can't log this itself
        output.note(f"its file does not load: {view.error}")
    elif last and last.outcome in FAILURE_WORDS:
        word = FAILURE_WORDS[last.outcome]
        output.note(f"its latest run ({last.run}) {word}: {last.reason}: see `spyweb runs {view.id}`")
    if following:
        follower.follow()


def log_lines(project: Project, job: JobView, count: int) -> list[str]:
    """Return the last lines that a job's script has logged."""
    if not project.is_elsewhere and not job.node:
        from spyweb.logs.reading import last_lines  # no other command needs structlog

        return last_lines(log_file(project.root, job.folder), count)
    target = with_query(of_job(job.id, "logs"), lines=min(count, MOST_REMOTE_LINES))
    return project.need_daemon().ask("GET", target, list[str])


class LogFollower:
    """Shows the last lines of a log, then further lines from the daemon's events, also after its restart."""

    def __init__(self, project: Project, view: JobView, form: Format) -> None:
        self._project, self._view, self._form = project, view, form
        self._last = ""  # beginning of the log line that was shown last
        self._ahead = Counter[str]()  # beginnings of lines of the file whose events may come once more

    def follow(self) -> None:
        """Follow until Ctrl-C.  Raises Refused when a daemon on another machine ends."""
        shown = ""
        while True:
            try:
                self._follow_one()
            except Refused as error:
                if self._project.is_elsewhere:
                    raise
                if shown != str(error):
                    shown = str(error)
                    output.note(f"{shown}: trying again")
            time.sleep(AGAIN_S)

    def _follow_one(self) -> None:
        from spyweb.events.happenings import EventType, LogHappened, RunHappened  # no other command needs it
        from spyweb.logs.job import stamped

        daemon = self._project.need_daemon("")
        for name, data in daemon.events(types="log,run", job=self._view.id):
            if not name:  # from here on no event is missed; earlier lines are in the file
                time.sleep(SETTLED_S)
                self._ahead = Counter(line[:COMPARED] for line in self.show_file(MISSED))
            elif name == EventType.LOG:
                line = msgspec.json.decode(data, type=LogHappened)
                text = stamped(line.at_ms, line.level, line.text).decode("utf-8", "replace")
                for each in text.rstrip("\n").split("\n"):
                    if self._ahead[each[:COMPARED]]:
                        self._ahead[each[:COMPARED]] -= 1
                    else:
                        self._last = each[:COMPARED]
                        self._show(each)
            elif name == EventType.RUN:
                run = msgspec.json.decode(data, type=RunHappened)
                if run.what == "ended" and run.outcome in FAILURE_WORDS:
                    self._show(failure_line(run))
            else:
                output.note("lines arrived faster than they were read: some are not shown")
        raise Refused(daemon.cut_off("the end of the log"))

    def show_file(self, most: int) -> list[str]:
        """Show those of the file's last lines that follow the line shown last; return them."""
        lines = log_lines(self._project, self._view, most)
        shown = [at for at, line in enumerate(lines) if line[:COMPARED] == self._last]
        lines = lines[shown[-1] + 1 :] if shown else lines
        for line in lines:
            self._last = line[:COMPARED]
            self._show(line)
        return lines

    def _show(self, line: str) -> None:
        """Print a line; as JSON, one string per line."""
        if self._form is Format.JSON:
            output.show_json_line(to_json(line))
        elif sys.stdout.isatty() and (found := _STAMPED.fullmatch(line)):
            try:
                stamp = output.log_stamp(round(datetime.fromisoformat(found["at"]).timestamp() * 1000))
            except ValueError:  # no moment has this stamp
                stamp = found["at"]
            output.show_log_line(stamp, found["level"].lower(), found["text"])
        else:
            output.say(line)


def failure_line(run: RunHappened) -> str:
    """Format a failed run like a line of the log."""
    is_told = run.failure in (None, Failure.ERROR) or run.reason.startswith(run.failure)
    reason = run.reason if is_told else f"{run.failure}: {run.reason}"
    at = datetime.fromtimestamp((run.ended_ms or 0) / 1000, tz=UTC).isoformat(timespec="milliseconds")
    word = FAILURE_WORDS[run.outcome or Outcome.FAILED]
    return " ".join(f"{at.removesuffix('+00:00')}Z ERROR run {run.run} {word}: {reason}".split())
