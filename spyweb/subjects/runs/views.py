"""Everything about one run, and the statistics of a job's runs over a span of time.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct, structs

from spyweb.model import Failure, JobId, JobSpec, Outcome, Run, RunId, RunMark, RunState, TriggerType
from spyweb.settings.units import DAY_MS, format_duration, format_size
from spyweb.store.model.runs import NO_TIME, RunPoint
from spyweb.subjects.records.views import RecordView
from spyweb.subjects.runs.plans import PlanView
from spyweb.views.runs import FAILING, SUCCEEDED, TaskView, copied, mark_of, moment_of, took_of
from spyweb.views.source import SourceView, TraceFrame
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
    """One step in the history of a run."""

    kind: str  # the type of its trigger
    words: str  # "due", "after a success of Prices", "a change of orders/new:1"
    at_ms: int | None = None
    run: RunBrief | None = None  # the run that led to this one


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
    attempts: Sequence[RunBrief]  # of a run that was retried, this one included; else none
    followers: Sequence[RunBrief]
    tasks: Sequence[TaskView]
    frames: Sequence[TraceFrame]
    source: SourceView | None  # around the line that its error names
    log: RunLog
    limits: Sequence[LimitView]  # of the job now
    records: Sequence[RecordView] = ()  # new items of a monitor's run
    before: RunId | None = None  # of the same job
    after: RunId | None = None
    is_there: bool = True  # the job still exists
    plan: PlanView | None = None  # of a run with tasks


_WORDS = {Outcome.SUCCESS: "Succeeded", Outcome.PAUSED: "Did not run: paused"}
_FAILURES = {
    Failure.TIMEOUT: "Over its timeout",
    Failure.CPU: "Over its CPU limit",
    Failure.MEMORY: "Over its memory limit",
    Failure.CANCELLED: "Cancelled",
}


def run_words(run: Run) -> str:
    """Describe how a run ended, or its state."""
    if run.outcome is None:
        if run.state is RunState.RUNNING:
            return "Running"
        return "Waiting" if run.start_after_ms is None else "Waiting for its retry"
    words = _WORDS.get(run.outcome, run.outcome.value.capitalize())
    if run.failure:
        words = _FAILURES.get(run.failure, "Failed")
    return f"{words}, {run.count:,} due times" if run.count > 1 else words


def run_seen_by(detail: RunDetail, may_see: Callable[[str], bool]) -> RunDetail:
    """Return a run's details without runs of jobs that the client may not see, and without their history."""
    causes: list[CauseStep] = []
    for cause in reversed(detail.causes):
        if cause.run is not None and not may_see(cause.run.job):
            causes.append(CauseStep(kind=cause.kind, words="a run of another job"))
            break
        causes.append(cause)
    followers = [each for each in detail.followers if may_see(each.job)]
    return structs.replace(detail, causes=causes[::-1], followers=followers)


def brief(run: Run) -> RunBrief:
    words = {"words": run_words(run), "reason": first_line(run.reason)}
    return copied(RunBrief, run, run=run.id, mark=mark_of(run), at_ms=moment_of(run), took_ms=took_of(run), **words)


def view_cause(run: Run, before: Run | None, name: str | None = None) -> CauseStep:
    """Describe the start of a run; `before` is the run that led to it, `name` the name of that run's job."""
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
            return ", ".join(["started manually", *(words for name, words in _EXTRAS if getattr(trigger, name))])
        case TriggerType.STATE if trigger.scope:
            return f"{trigger.key} of {trigger.scope} was {trigger.event_type.rpartition(':')[2]}"
        case TriggerType.AFTER if other:
            return f"{other} ended: {trigger.outcome}"
        case TriggerType.ALERT:
            what = "is over" if "closed" in trigger.incident else "has begun"
            return f"{trigger.hook}: incident {trigger.incident.get('id')} {what}"
        case TriggerType.DEPENDS:
            return f"{other} depends on it, and is failing"
        case TriggerType.RETRY if trigger.of or trigger.retry_of:
            return f"attempt {run.attempt}, of run {trigger.of}" if trigger.of else f"a retry of run {trigger.retry_of}"
        case _:
            return _PLAIN.get(trigger.type, "started by an unknown trigger")


_PLAIN: Mapping[str, str] = {
    TriggerType.WEBHOOK: "a request to its webhook",
    TriggerType.STARTUP: "the daemon started",
    TriggerType.STATE: "a change of state",
    TriggerType.AFTER: "another job ended",
    TriggerType.RETRY: "a retry",
    TriggerType.DRIFT: "a drift check found differences",
}
_EXTRAS = (("debug", "to debug"), ("dry_run", "dry"), ("values", "with values"), ("payload", "with a payload"))


def cause_run(run: Run) -> RunId | None:
    """Return the run that led to this one: its first attempt, the job before it, the writer of a change, a failure."""
    trigger = run.trigger
    found = trigger.of or trigger.retry_of or trigger.run_id or trigger.by or trigger.incident.get("run")
    return RunId(found) if isinstance(found, int) and found < run.id else None


def view_limits(run: Run, spec: JobSpec) -> list[LimitView]:
    """Return the current limits of the job, and how much of each a run has used."""
    took_ms = took_of(run)
    cpu_ms = run.cpu_ms if run.state is RunState.ENDED else None
    return [
        _limit("time", took_ms, spec.timeout_ms, is_over=run.failure is Failure.TIMEOUT),
        _limit("CPU", cpu_ms, spec.cpu_limit_ms, is_over=run.failure is Failure.CPU),
        _limit("memory", None, spec.memory_limit, unit="bytes", is_over=run.failure is Failure.MEMORY),
    ]


def _limit(name: str, used: int | None, limit: int, *, is_over: bool, unit: str = "ms") -> LimitView:
    most = format_duration(limit) if unit == "ms" else format_size(limit)
    words = f"at most {most}" if used is None else f"{format_duration(used)} of {most}"
    share = None if used is None or not limit else min(1.0, used / limit)
    return LimitView(name=name, used=used, limit=limit, unit=unit, words=words, share=share, is_over=is_over)


MOST_POINTS = 500  # in a chart
OF_SLOT = 3  # points for all runs of a slot, where there are more


class TimeSpan(StrEnum):
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"

    @property
    def ms(self) -> int:
        return {TimeSpan.DAY: DAY_MS, TimeSpan.WEEK: 7 * DAY_MS, TimeSpan.MONTH: 30 * DAY_MS}[self]


class Percentiles(Struct, frozen=True, kw_only=True):
    """The p50, p95 and p99 of some values, and their maximum."""

    p50: int
    p95: int
    p99: int
    most: int


class JobStatistics(Struct, frozen=True, kw_only=True):
    job: JobId
    span: TimeSpan
    since_ms: int
    until_ms: int
    runs: int
    succeeded: int
    failed: int  # lost ones too
    success_rate: float | None = None
    uptime: float | None = None  # the share of the time that is known, maintenance left out
    took_ms: Percentiles | None = None
    late_ms: Percentiles | None = None
    points: Sequence[RunPoint] = ()  # oldest first, at most MOST_POINTS
    is_thinned: bool = False  # the points are the shortest, the middle and the longest runs of each slot of time
    is_partial: bool = False  # the span has older runs, too many to read


def make_statistics(
    job: JobId, span: TimeSpan, points: Sequence[RunPoint], now_ms: int, *, is_partial: bool = False
) -> JobStatistics:
    """Compute the statistics of a job from its runs, oldest first."""
    good = sum(point.mark in SUCCEEDED for point in points)
    bad = sum(point.mark in FAILING for point in points)
    since_ms, ran = now_ms - span.ms, [point for point in points if point.mark is not RunMark.SKIPPED]
    thinned = thin(at_level(points), since_ms, now_ms)
    return JobStatistics(
        job=job,
        span=span,
        since_ms=since_ms,
        until_ms=now_ms,
        runs=len(ran),
        succeeded=good,
        failed=bad,
        success_rate=good / (good + bad) if good + bad else None,
        took_ms=percentiles([point.took_ms for point in ran if point.took_ms != NO_TIME]),
        late_ms=percentiles([point.late_ms for point in ran]),
        points=thinned,
        is_thinned=len(thinned) < len(points),
        is_partial=is_partial,
    )


def percentiles(values: Sequence[int]) -> Percentiles | None:
    if not values:
        return None
    ranked = sorted(values)
    p50, p95, p99 = (ranked[-(-len(ranked) * part // 100) - 1] for part in (50, 95, 99))
    return Percentiles(p50=p50, p95=p95, p99=p99, most=ranked[-1])


def at_level(points: Sequence[RunPoint]) -> Sequence[RunPoint]:
    """Put runs without a latency, such as failed ones, where the one before was; the first ones where the next is."""
    if all(point.took_ms != NO_TIME for point in points):
        return points
    level = next((point.took_ms for point in points if point.took_ms != NO_TIME), 0)
    found = []
    for point in points:
        level = level if point.took_ms == NO_TIME else point.took_ms
        found.append(point._replace(took_ms=level))
    return found


def thin(points: Sequence[RunPoint], since_ms: int, until_ms: int, most: int = MOST_POINTS) -> list[RunPoint]:
    """Return at most so many points: of each slot of time the shortest run, a middle one and the longest.

    Where a slot has a failure, one of its points is a failure.
    """
    if len(points) <= most:
        return list(points)
    count = max(1, most // OF_SLOT)
    width = max(1, -(-(until_ms - since_ms + 1) // count))
    slots: dict[int, list[RunPoint]] = {}
    for point in points:
        slots.setdefault(min(max(0, point.at_ms - since_ms) // width, count - 1), []).append(point)
    return [point for number in sorted(slots) for point in _of_slot(slots[number])]


def _of_slot(slot: Sequence[RunPoint]) -> list[RunPoint]:
    if len(slot) <= OF_SLOT:
        return list(slot)
    ranked = sorted(slot, key=lambda point: (point.took_ms, point.run))
    shortest, middle, longest = ranked[0], ranked[len(ranked) // 2], ranked[-1]
    if not any(point.mark in FAILING for point in (shortest, middle, longest)):
        middle = next((point for point in ranked[1:-1] if point.mark in FAILING), middle)
    return sorted((shortest, middle, longest), key=lambda point: (point.at_ms, point.run))
