"""Everything about one run: how it came about, what came of it, and its facts beside their limits.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, structs

from spyweb.model import Failure, JobId, JobSpec, Outcome, Run, RunId, RunMark, RunState
from spyweb.settings.units import format_duration, format_size
from spyweb.views.records import RecordView
from spyweb.views.runs import TaskView
from spyweb.views.source import SourceView, TraceFrame
from spyweb.views.strips import mark_of, moment_of, took_of


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


class CauseKind(StrEnum):
    """A kind of thing that leads to a run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    WEBHOOK = "webhook"
    STARTUP = "startup"
    STATE = "state"
    AFTER = "after"
    RETRY = "retry"
    ALERT = "alert"
    DEPENDS = "depends"
    DRIFT = "drift"
    UNKNOWN = "unknown"


class CauseStep(Struct, frozen=True, kw_only=True):
    """One step of how a run came about."""

    kind: CauseKind
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
        reason=run.reason.partition("\n")[0][:200],
    )


def view_cause(run: Run, before: Run | None, name: str | None = None) -> CauseStep:
    """Say what started a run; `before` is the run that led to it, `name` that of its job."""
    kind = kind_of(run.trigger)
    return CauseStep(
        kind=kind,
        words=_PLAIN.get(kind) or _cause_words(run, kind, name or str(run.trigger.get("job", "another job"))),
        at_ms=run.due_ms if kind is CauseKind.SCHEDULE else (before.ended_ms if before else None),
        run=brief(before) if before else None,
    )


def _cause_words(run: Run, kind: CauseKind, other: str) -> str:
    trigger = run.trigger
    match kind:
        case CauseKind.SCHEDULE:
            return "due" if run.count == 1 else f"due {run.count:,} times"
        case CauseKind.MANUAL:
            return ", ".join(["started by hand", *(word for key, word in _EXTRAS if trigger.get(key))])
        case CauseKind.STATE:
            what = str(trigger.get("event_type", "changed")).rpartition(":")[2]
            return f"{trigger.get('key')} of {trigger.get('scope')} was {what}"
        case CauseKind.AFTER:
            return f"{other} ended: {trigger.get('outcome', 'success')}"
        case CauseKind.ALERT:
            incident = _incident_in(trigger)
            what = "is over" if "closed" in incident else "has begun"
            return f"{trigger.get('hook')}: incident {incident.get('id')} {what}"
        case CauseKind.DEPENDS:
            return f"{other} depends on it, and is failing"
        case _:
            return f"attempt {run.attempt}, of run {trigger.get('of')}"


_PLAIN = {
    CauseKind.WEBHOOK: "a request to its webhook",
    CauseKind.STARTUP: "the daemon started",
    CauseKind.DRIFT: "something is not as its runs left it",
    CauseKind.UNKNOWN: "started, nobody knows by what",
}
_CAUSED_BY = {CauseKind.RETRY: "of", CauseKind.AFTER: "run_id", CauseKind.STATE: "by"}
_EXTRAS = (("debug", "to debug"), ("dry_run", "dry"), ("values", "with values"), ("payload", "with a payload"))


def _incident_in(trigger: Mapping[str, object]) -> Mapping[str, object]:
    found = trigger.get("incident")
    return found if isinstance(found, Mapping) else {}


def kind_of(trigger: Mapping[str, object]) -> CauseKind:
    try:
        return CauseKind(str(trigger.get("type")))
    except ValueError:
        return CauseKind.UNKNOWN


def cause_run(run: Run) -> RunId | None:
    """Return the run that led to this one.

    It is the one that this retries, comes after, hears a change of, or tells the incident of.
    """
    kind = kind_of(run.trigger)
    key = _CAUSED_BY.get(kind)
    found = run.trigger.get(key) if key else None
    if kind is CauseKind.ALERT:
        found = _incident_in(run.trigger).get("run")
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
