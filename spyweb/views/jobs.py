"""What people and machines are shown of jobs and runs.

Frozen values and pure functions that build them.  The HTTP door sends them as JSON, the command line reads
them back into the same types: a command prints the same whether a daemon answered or the database was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import assert_never
from zoneinfo import ZoneInfo

import msgspec

from spyweb.errors import Problem
from spyweb.lua.result import show_value
from spyweb.model import (
    At,
    Cron,
    Cursor,
    Ending,
    Every,
    Failure,
    JobId,
    JobSpec,
    Never,
    Outcome,
    Run,
    RunId,
    Schedule,
)
from spyweb.settings.nearest import nearest_name
from spyweb.settings.units import format_duration

LOG_NAME = "hooks.log"  # in the job's folder: what its script logged


class JobState(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"  # a run waits for its turn or for its retry delay
    PAUSED = "paused"
    DISABLED = "disabled"
    BROKEN = "broken"  # its file does not load and no earlier version runs


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    run: RunId
    outcome: Outcome
    failure: Failure | None
    started_ms: int | None
    ended_ms: int | None
    duration_ms: int | None
    reason: str
    storage_errors: int = 0
    result: str = ""
    http_status: int | None = None
    items_found: int | None = None
    items_new: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
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
    generation: int = 0  # 0: no daemon has loaded it
    vms: int = 0  # made for its runs since the daemon started
    error: str = ""  # what is wrong with the file now on disk
    warnings: tuple[str, ...] = ()  # what is doubtful about it
    tags: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of a job besides its settings."""

    cursor: Cursor | None = None
    next_due_ms: int | None = None
    last: Run | None = None  # the newest that really ran and ended
    in_flight: int = 0
    waiting: int = 0
    generation: int = 0
    vms: int = 0
    error: str = ""
    warnings: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    job: JobId
    due_ms: int
    local: str  # with the zone, for people
    timezone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a watched run logged or printed."""

    level: str
    text: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """How a watched run ended."""

    job: JobId
    run: RunId | None
    outcome: Outcome
    failure: Failure | None = None
    reason: str = ""
    traceback: str = ""
    duration_ms: int = 0
    cpu_ms: int = 0
    generation: int = 0
    globals_reset: bool = False
    result: object = None
    storage_errors: int = 0
    http_status: int | None = None
    items_found: int | None = None
    items_new: int | None = None
    note: str = ""


RunEvent = LogLine | RunEnded


def view_job(spec: JobSpec, facts: JobFacts) -> JobView:
    return JobView(
        id=spec.id,
        name=spec.name,
        enabled=spec.enabled,
        state=state_of(spec, facts.cursor, running=facts.in_flight > 0, waiting=facts.waiting > 0),
        schedule=describe_start(spec),
        path=spec.path,
        folder=spec.folder,
        next_due_ms=facts.next_due_ms,
        last=last_run(facts.last) if facts.last else None,
        in_flight=facts.in_flight,
        waiting=facts.waiting,
        generation=facts.generation,
        vms=facts.vms,
        error=facts.error,
        warnings=tuple(map(str, facts.warnings)),
        tags=spec.tags,
        description=spec.description,
    )


def told(problems: Sequence[Problem]) -> str:
    return "; ".join(map(str, problems))


def broken_job(job: JobId, problems: Sequence[Problem]) -> JobView:
    """A file that does not load, and that no earlier version runs for."""
    return JobView(
        id=job,
        name=job,
        enabled=False,
        state=JobState.BROKEN,
        schedule="",
        path=problems[0].file,
        folder=f"jobs/{job}",
        error=told(problems),
    )


def state_of(spec: JobSpec, cursor: Cursor | None, *, running: bool, waiting: bool) -> JobState:
    if running:
        return JobState.RUNNING
    if not spec.enabled:
        return JobState.DISABLED
    if cursor and cursor.paused:
        return JobState.PAUSED
    return JobState.WAITING if waiting else JobState.IDLE


def last_run(run: Run) -> LastRun | None:
    if run.outcome is None:
        return None
    return LastRun(
        run=run.id,
        outcome=run.outcome,
        failure=run.failure,
        started_ms=run.started_ms,
        ended_ms=run.ended_ms,
        duration_ms=duration_ms(run),
        reason=run.reason,
        storage_errors=run.storage_errors,
        result=run.result,
        http_status=run.http_status,
        items_found=run.items_found,
        items_new=run.items_new,
        note=run.note,
    )


def duration_ms(run: Run) -> int | None:
    if run.started_ms is None or run.ended_ms is None:
        return None
    return max(0, run.ended_ms - run.started_ms)


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
        case _:
            assert_never(schedule)


def describe_start(spec: JobSpec) -> str:
    """What starts a job: its schedule; without one, the jobs that it follows and the changes that it hears of."""
    if not isinstance(spec.schedule, Never):
        return describe_schedule(spec.schedule)
    after = [f"after {', '.join(after.job for after in spec.after)}"] if spec.after else []
    on = ["on state"] if spec.on else []
    return ", ".join(after + on) or describe_schedule(spec.schedule)


def describe_moment(ms: int, timezone: str) -> str:
    """Weekday, date, time and zone: `Sun 2026-03-29 03:00:00 CEST`."""
    whole, rest = divmod(ms, 1000)
    try:
        local = datetime.fromtimestamp(whole, tz=UTC).astimezone(ZoneInfo(timezone))
    except (ValueError, OverflowError):  # before the year 1 or after 9999, as an import may have it
        return f"{ms} ms since 1970"
    fraction = f".{rest:03d}" if rest else ""
    return f"{local:%a %Y-%m-%d %H:%M:%S}{fraction} {local:%Z}"


def describe_briefly(ms: int, timezone: str, now_ms: int) -> str:
    """Time, and the date where it is another day's, in a time zone that is known: `03-29 03:00:00`."""
    try:
        local, today = (datetime.fromtimestamp(each // 1000, tz=ZoneInfo(timezone)) for each in (ms, now_ms))
    except (ValueError, OverflowError):
        return describe_moment(ms, timezone)
    if local.date() == today.date():
        return f"{local:%H:%M:%S}"
    return f"{local:%m-%d %H:%M:%S}" if local.year == today.year else f"{local:%Y-%m-%d %H:%M:%S}"


def describe_details(run: Run | LastRun) -> str:
    """What there is to say of a run beside its outcome: `404, 0 items`, why it failed, what it returned."""
    cause = run.failure if run.failure not in (None, Failure.ERROR) else ""
    reason = run.reason if not cause or run.reason.startswith(cause) else f"{cause}: {run.reason}"
    return "; ".join(filter(None, (reason, describe_page(run), run.result, run.note)))


def describe_page(run: Run | LastRun | RunEnded) -> str:
    """Of a monitor's run: how its page answered, unless that goes without saying, and what was found on it."""
    status, found, new = run.http_status, run.items_found, run.items_new
    shown = [] if status is None or 200 <= status < 300 else [str(status)]
    if found is not None:
        shown += [f"{found} {'item' if found == 1 else 'items'}"] + ([f"{new} new"] if new else [])
    return ", ".join(shown)


def describe_outcome(run: Run | LastRun, state: str = "") -> str:
    """`success, 3 storage errors`; without an outcome the state that it is in."""
    return ", ".join(filter(None, (run.outcome or state, describe_storage_errors(run.storage_errors))))


def describe_storage_errors(count: int) -> str:
    return f"{count} storage {'error' if count == 1 else 'errors'}" if count else ""


def describe_failure(reason: str, traceback: str) -> str:
    """All that is known of it: a traceback may begin with the reason."""
    if not traceback or traceback.startswith(reason):
        return traceback or reason
    return f"{reason}\n{traceback}"


def next_run(job: JobId, due_ms: int, timezone: str) -> NextRun:
    return NextRun(job=job, due_ms=due_ms, local=describe_moment(due_ms, timezone), timezone=timezone)


def zone_of(schedule: Schedule, default: str) -> str:
    """The time zone that a person thinks in when reading this schedule."""
    return schedule.timezone if isinstance(schedule, Cron) else default


def find_job(jobs: Iterable[JobSpec] | Iterable[JobView], name_or_id: str) -> JobId | None:
    """The job with this id; else the only one with this name."""
    named = []
    for job in jobs:
        if job.id == name_or_id:
            return job.id
        if job.name == name_or_id:
            named.append(job.id)
    return named[0] if len(named) == 1 else None


LONGEST_NAME = 80  # characters of a name that nobody knows, as it is told


def no_such_job(jobs: Iterable[JobView], name: str, others: Iterable[str] = ()) -> str:
    """Say that there is no such job, or that it does not load; `others` are the ids of jobs that do."""
    known = list(jobs)
    for job in known:
        if name in (job.id, job.name) and job.state is JobState.BROKEN:
            return f"{job.id} does not load: {job.error}"
    return unknown_job([*(job.id for job in known), *others], name)


def unknown_job(ids: Sequence[str], name: str) -> str:
    """Where none of these is meant."""
    close = nearest_name(name, ids)
    shown = repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}...")
    if close is not None:
        return f"no job is named {shown}: did you mean {close!r}?"
    return f"no job is named {shown}: `spyweb jobs` lists them"


def log_file(root: Path, folder: str) -> Path:
    return root / folder / LOG_NAME


def log_line(level: str, text: bytes, at_ms: int) -> LogLine:
    return LogLine(level=level, text=text.decode("utf-8", "replace"), at_ms=at_ms)


def run_ended(run: Run, ending: Ending, ended_ms: int) -> RunEnded:
    return RunEnded(
        job=run.job,
        run=run.id,
        outcome=ending.outcome,
        failure=ending.failure,
        reason=ending.reason,
        traceback=ending.traceback,
        duration_ms=max(0, ended_ms - run.started_ms) if run.started_ms is not None else 0,
        cpu_ms=ending.cpu_ms,
        generation=run.generation,
        globals_reset=ending.globals_reset,
        result=show_value(ending.result if ending.preview is None else ending.preview),
        storage_errors=ending.storage_errors,
        http_status=ending.http_status,
        items_found=ending.items_found,
        items_new=ending.items_new,
        note=ending.note,
    )


def to_json(value: object) -> bytes:
    return msgspec.json.encode(value)


def event_to_json(event: RunEvent) -> bytes:
    """One line of a watched run: the event's fields beside its kind."""
    kind = "log" if isinstance(event, LogLine) else "ended"
    return msgspec.json.encode({"event": kind, **msgspec.to_builtins(event)})


def event_from_json(line: bytes) -> RunEvent:
    fields = msgspec.json.decode(line, type=dict[str, object])
    kind = fields.pop("event", None)
    return msgspec.convert(fields, LogLine) if kind == "log" else msgspec.convert(fields, RunEnded)
