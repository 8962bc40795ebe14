"""Jobs as people and programs see them: frozen values, and pure functions that build them.

The HTTP server sends them as JSON, and the command line reads them back into the same types.  So a command prints the
same whether a daemon answered or the database was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import assert_never

import msgspec
from msgspec import Struct

from spyweb.errors import Problem
from spyweb.model import At, Cron, Cursor, Every, JobId, JobSpec, Never, Outcome, Pings, Run, RunId, Schedule
from spyweb.settings.reading import Names
from spyweb.settings.units import format_duration
from spyweb.views.runs import LastRun, last_run
from spyweb.words import describe_moment

LOG_NAME = "hooks.log"  # in the job's folder: the log of its script


class JobState(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"  # a run waits for its turn or for its retry delay
    PAUSED = "paused"
    DISABLED = "disabled"
    BROKEN = "broken"  # its file does not load and no earlier version runs


class JobView(Struct, frozen=True, kw_only=True, gc=False):  # made for each job of a list: a dataclass takes longer
    id: JobId
    name: str
    enabled: bool
    state: JobState
    schedule: str
    path: str  # as in JobSpec
    folder: str
    next_due_ms: int | None = None
    last: LastRun | None = None
    in_flight: int = 0
    waiting: int = 0
    generation: int = 0  # 0: no daemon has loaded the job
    vms: int = 0  # made for its runs since the daemon started
    error: str = ""  # the problem of the file now on disk
    warnings: tuple[str, ...] = ()  # about that file
    tags: tuple[str, ...] = ()
    description: str = ""
    paused_for: str = ""  # why, where spyweb has paused it: "5 failures in a row"
    node: str = ""  # the one that runs it, where there are several
    check: str = ""  # its kind, where the job is a check


class NextRun(Struct, frozen=True, kw_only=True):
    job: JobId
    due_ms: int
    local: str  # with the zone, for people
    timezone: str


class Triggered(Struct, frozen=True, kw_only=True):
    """The requested run; none where it was skipped."""

    run: RunId | None


class JobPaused(Struct, frozen=True, kw_only=True):
    """A job that was paused or resumed."""

    job: JobId
    paused: bool
    was_paused: bool = False  # before the request
    next_due_ms: int | None = None  # of a resumed job


def view_job(
    spec: JobSpec, cursor: Cursor | None = None, last: Run | None = None, *, in_flight: int = 0, waiting: int = 0
) -> JobView:
    """Make the view of a job; `last` is the newest run that ended, a skipped one only where there is no other."""
    return JobView(
        id=spec.id,
        name=spec.name,
        enabled=spec.enabled,
        state=state_of(spec, cursor, running=in_flight > 0, waiting=waiting > 0),
        schedule=describe_start(spec),
        path=spec.path,
        folder=spec.folder,
        last=last_run(last) if last else None,
        in_flight=in_flight,
        waiting=waiting,
        tags=spec.tags,
        description=spec.description,
        paused_for=cursor.paused_for if cursor else "",
        check=spec.check or "",
    )


def is_failing(view: JobView) -> bool:
    """Return whether the last run of a job failed or was lost."""
    return view.last is not None and view.last.outcome in (Outcome.FAILED, Outcome.LOST)


def join_problems(problems: Sequence[Problem]) -> str:
    return "; ".join(map(str, problems))


def broken_job(job: JobId, problems: Sequence[Problem]) -> JobView:
    """Make the view of a job whose file does not load, and for which no earlier version runs."""
    return JobView(
        id=job,
        name=job,
        enabled=False,
        state=JobState.BROKEN,
        schedule="",
        path=problems[0].file,
        folder=f"jobs/{job}",
        error=join_problems(problems),
    )


def state_of(spec: JobSpec, cursor: Cursor | None, *, running: bool, waiting: bool) -> JobState:
    if running:
        return JobState.RUNNING
    if not spec.enabled:
        return JobState.DISABLED
    if cursor and cursor.paused:
        return JobState.PAUSED
    return JobState.WAITING if waiting else JobState.IDLE


@lru_cache(maxsize=4096)
def describe_schedule(schedule: Schedule) -> str:
    match schedule:
        case Every():
            return f"every {format_duration(schedule.period_ms)}"
        case Cron():
            return f"cron {schedule.expression} ({schedule.timezone})"
        case At():
            return f"at {describe_moment(schedule.at_ms, 'UTC')}"
        case Never():
            return "never"
        case Pings():
            return f"expects a ping {describe_schedule(schedule.schedule)}"
        case _:
            assert_never(schedule)


def describe_start(spec: JobSpec) -> str:
    """Describe the starts of a job: its schedule, or the jobs that it follows and the changes that it listens to."""
    if not isinstance(spec.schedule, Never):
        return describe_schedule(spec.schedule)
    after = [f"after {', '.join(after.job for after in spec.after)}"] if spec.after else []
    on = ["on state"] if spec.on else []
    return ", ".join(after + on) or describe_schedule(spec.schedule)


def next_run(job: JobId, due_ms: int, timezone: str) -> NextRun:
    return NextRun(job=job, due_ms=due_ms, local=describe_moment(due_ms, timezone), timezone=timezone)


def zone_of(schedule: Schedule, default: str) -> str:
    """Return the time zone in which a person reads this schedule."""
    if isinstance(schedule, Pings):
        return zone_of(schedule.schedule, default)
    return schedule.timezone if isinstance(schedule, Cron) else default


def find_job(jobs: Iterable[JobSpec] | Iterable[JobView], name_or_id: str) -> JobId | None:
    """Return the job with this id, else the only one with this name."""
    named = []
    for job in jobs:
        if job.id == name_or_id:
            return job.id
        if job.name == name_or_id:
            named.append(job.id)
    return named[0] if len(named) == 1 else None


LONGEST_NAME = 80  # characters of an unknown name that are shown


def no_such_job(jobs: Iterable[JobView], name: str, others: Iterable[str] = ()) -> str:
    """Return the error for an unknown job or one that does not load; `others` are ids of jobs that load."""
    known = list(jobs)
    for job in known:
        if name in (job.id, job.name) and job.state is JobState.BROKEN:
            return f"{job.id} does not load: {job.error}"
    return unknown_job([*(job.id for job in known), *others], name)


def unknown_job(ids: Sequence[str], name: str) -> str:
    """Return the error for an unknown job, with the nearest of these ids."""
    close = Names(ids).nearest(name)
    shown = repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}...")
    if close is not None:
        return f"no job is named {shown}: did you mean {close!r}?"
    return f"no job is named {shown}: `spyweb jobs` lists them"


def log_file(root: Path, folder: str) -> Path:
    return root / folder / LOG_NAME


def to_json(value: object) -> bytes:
    return msgspec.json.encode(value)


def as_text(value: object) -> str:
    """Return a value as people read it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else to_json(value).decode()


MaySee = Callable[[str], bool]  # whether a client may see a job


def anything(_job: str) -> bool:
    return True
