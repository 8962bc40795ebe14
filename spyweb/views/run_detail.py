"""Everything about one run: how it came about, what came of it, and its facts beside their limits.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from spyweb.model import Failure, JobId, JobSpec, Outcome, Run, RunId, RunMark, RunState, TriggerType
from spyweb.settings.units import format_duration, format_size
from spyweb.views.records import RecordView
from spyweb.views.runs import TaskView
from spyweb.views.source import SourceView, TraceFrame
from spyweb.views.strips import mark_of, moment_of, took_of
from spyweb.words import first_line


class RunBrief(Struct, frozen=True, kw_only=True):
    """A run in one line of a list."""

    run: RunId
    job: JobId
    mark: RunMark
    at_ms: int | None  # none while it waits for its turn
    took_ms: int | None
    attempt: int
    words: str  # how it ended
    reason: str


class CauseStep(Struct, frozen=True, kw_only=True):
    """One step of how a run came about."""

    kind: str  # the type of its trigger
    words: str  # "due", "after a success of Prices", "a change of orders/new:1"
    at_ms: int | None = None
    run: RunBrief | None = None  # the run before, which led to this one


class LimitView(Struct, frozen=True, kw_only=True):
    """A fact of a run beside its limit."""

    name: str  # "time", "CPU", "memory"
    used: int | None  # None: not measured
    limit: int
    unit: str  # "ms" or "bytes"
    words: str  # "20s of 5m"
    share: float | None = None
    is_over: bool = False


class RunLog(Struct, frozen=True, kw_only=True):
    """The lines that a run logged."""

    lines: Sequence[str] = ()
    is_cut: bool = False  # only the latest are here
    is_shared: bool = False  # another run of the job was under way: its lines are among these


class RunDetail(Struct, frozen=True, kw_only=True):
    run: Run
    name: str  # of the job
    words: str  # "Failed", "Over its timeout"
    mark: RunMark
    at_ms: int | None  # none while it waits for its turn
    took_ms: int | None
    late_ms: int
    causes: Sequence[CauseStep]  # the first cause first
    attempts: Sequence[RunBrief]  # of a run that was tried again, this one included; else none
    followers: Sequence[RunBrief]
    tasks: Sequence[TaskView]
    frames: Sequence[TraceFrame]
    source: SourceView | None  # around the line that its error names
    log: RunLog
    limits: Sequence[LimitView]  # as they are now
    records: Sequence[RecordView] = ()  # what a monitor's run found that was new
    before: RunId | None = None  # of the same job
    after: RunId | None = None
    is_there: bool = True  # the job is


_WORDS = {
    Outcome.SUCCESS: "Succeeded",
    Outcome.FAILED: "Failed",
    Outcome.LOST: "Lost",
    Outcome.STOPPED: "Stopped",
    Outcome.SKIPPED: "Skipped",
    Outcome.MISSED: "Missed",
    Outcome.PAUSED: "Did not run: paused",
}
_FAILURES = {
    Failure.TIMEOUT: "Over its timeout",
    Failure.CPU: "Over its CPU limit",
    Failure.MEMORY: "Over its memory limit",
    Failure.CANCELLED: "Cancelled",
}


def run_words(run: Run) -> str:
    """Say how a run ended, or what it does."""
    if run.outcome is None:
        if run.state is RunState.RUNNING:
            return "Running"
        return "Waiting" if run.start_after_ms is None else "Waiting to be tried again"
    words = _FAILURES.get(run.failure, "Failed") if run.failure else _WORDS[run.outcome]
    return f"{words}, {run.count:,} due times" if run.count > 1 else words


def run_seen_by(detail: RunDetail, may_see: Callable[[str], bool]) -> RunDetail:
    """Return a run's details without the runs of jobs that somebody may not see, and what came before those."""
    causes: list[CauseStep] = []
    for cause in reversed(detail.causes):
        if cause.run is not None and not may_see(cause.run.job):
            causes.append(CauseStep(kind=cause.kind, words="a run of another job"))
            break
        causes.append(cause)
    followers = [each for each in detail.followers if may_see(each.job)]
    return structs.replace(detail, causes=causes[::-1], followers=followers)


def brief(run: Run) -> RunBrief:
    return RunBrief(
        run=run.id,
        job=run.job,
        mark=mark_of(run),
        at_ms=moment_of(run),
        took_ms=took_of(run),
        attempt=run.attempt,
        words=run_words(run),
        reason=first_line(run.reason),
    )


def view_cause(run: Run, before: Run | None, name: str | None = None) -> CauseStep:
    """Say what started a run; `before` is the run that led to it, `name` that of its job."""
    return CauseStep(
        kind=run.trigger.type or "unknown",
        words=_cause_words(run, name or run.trigger.job),
        at_ms=run.due_ms if run.trigger.type == TriggerType.SCHEDULE else (before.ended_ms if before else None),
        run=brief(before) if before else None,
    )


def _cause_words(run: Run, other: str) -> str:
    trigger = run.trigger
    match trigger.type:
        case TriggerType.SCHEDULE:
            return "due" if run.count == 1 else f"due {run.count:,} times"
        case TriggerType.MANUAL:
            return ", ".join(["started by hand", *(words for name, words in _EXTRAS if getattr(trigger, name))])
        case TriggerType.STATE if trigger.scope:
            return f"{trigger.key} of {trigger.scope} was {trigger.event_type.rpartition(':')[2]}"
        case TriggerType.AFTER if other:
            return f"{other} ended: {trigger.outcome}"
        case TriggerType.ALERT:
            what = "is over" if "closed" in trigger.incident else "has begun"
            return f"{trigger.hook}: incident {trigger.incident.get('id')} {what}"
        case TriggerType.DEPENDS:
            return f"{other} depends on it, and is failing"
        case TriggerType.RETRY if trigger.of:
            return f"attempt {run.attempt}, of run {trigger.of}"
        case _:
            return _PLAIN.get(trigger.type, "started, nobody knows by what")


_PLAIN: Mapping[str, str] = {
    TriggerType.WEBHOOK: "a request to its webhook",
    TriggerType.STARTUP: "the daemon started",
    TriggerType.STATE: "a change of state",
    TriggerType.AFTER: "another job ended",
    TriggerType.RETRY: "it is tried again",
    TriggerType.DRIFT: "something is not as its runs left it",
}
_EXTRAS = (("debug", "to debug"), ("dry_run", "dry"), ("values", "with values"), ("payload", "with a payload"))


def cause_run(run: Run) -> RunId | None:
    """Return the run that led to this one.

    It is the one that this retries, comes after, hears a change of, or tells the incident of.
    """
    trigger = run.trigger
    found = trigger.of or trigger.run_id or trigger.by or trigger.incident.get("run")
    return RunId(found) if isinstance(found, int) and found < run.id else None


def view_limits(run: Run, spec: JobSpec) -> list[LimitView]:
    """Return the limits of the job as they are now, and how much of each a run has used."""
    took_ms = took_of(run)
    cpu_ms = run.cpu_ms if run.state is RunState.ENDED else None
    return [
        _limit("time", took_ms, spec.timeout_ms, is_over=run.failure is Failure.TIMEOUT),
        _limit("CPU", cpu_ms, spec.cpu_limit_ms, is_over=run.failure is Failure.CPU),
        LimitView(
            name="memory",
            used=None,
            limit=spec.memory_limit,
            unit="bytes",
            words=f"at most {format_size(spec.memory_limit)}",
            is_over=run.failure is Failure.MEMORY,
        ),
    ]


def _limit(name: str, used: int | None, limit: int, *, is_over: bool) -> LimitView:
    most = format_duration(limit)
    words = f"at most {most}" if used is None else f"{format_duration(used)} of {most}"
    share = None if used is None or not limit else min(1.0, used / limit)
    return LimitView(name=name, used=used, limit=limit, unit="ms", words=words, share=share, is_over=is_over)
