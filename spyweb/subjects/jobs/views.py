"""Jobs as clients list them, and one in detail.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from spyweb.errors import Problem
from spyweb.model import After, At, Cron, Every, JobId, JobSpec, Never, On, Outcome, Pings, Run, RunId, Schedule
from spyweb.schedules.cron import parse_cron
from spyweb.settings.units import format_duration
from spyweb.specs.origins import ResolvedSetting
from spyweb.specs.watches import scope_of
from spyweb.store.model.entries import job_namespace
from spyweb.subjects.jobs.overview import OverviewRow, row_seen_by
from spyweb.views.jobs import JobState, JobView, NextRun, is_failing
from spyweb.views.runs import copied, moment_of
from spyweb.views.source import SourceView, TraceFrame
from spyweb.words import describe_moment

NEXT_SHOWN = 5
LONGEST_WORDS = 80  # of a cron expression


class Tie(Struct, frozen=True, kw_only=True):
    """A link between two jobs: one starts after the other."""

    job: JobId
    name: str
    outcomes: Sequence[Outcome]  # of the first, after which the second starts
    is_there: bool = True


class LastError(Struct, frozen=True, kw_only=True):
    """The error of the latest run that failed."""

    run: RunId
    at_ms: int
    reason: str
    failure: str | None
    frames: Sequence[TraceFrame]
    source: SourceView | None  # around the line that it names
    is_same: bool | None = None  # all failures in a row have this reason; None: not known


class JobDetail(Struct, frozen=True, kw_only=True):
    row: OverviewRow
    schedule: str  # in words
    next_due: Sequence[NextRun] = ()
    problems: Sequence[Problem] = ()  # warnings too
    source: SourceView | None = None  # around the first problem's line
    error: LastError | None = None  # of a job that fails
    follows: Sequence[Tie] = ()
    followed_by: Sequence[Tie] = ()
    listens: Sequence[str] = ()  # changes of stored values that start it, in words
    settings: Sequence[ResolvedSetting] = ()
    files: Sequence[str] = ()  # its Lua files
    pages: Sequence[str] = ()  # a monitor's addresses
    is_elsewhere: bool = False  # it expects pings: nothing of it can be started here
    generation: int = 0
    namespace: str = ""  # of what it stores with store_*


def detail_seen_by(detail: JobDetail, may_see: Callable[[str], bool]) -> JobDetail:
    """Return a job's details without the other jobs that the caller may not see."""
    return structs.replace(
        detail,
        row=row_seen_by(detail.row, may_see),
        follows=[each for each in detail.follows if may_see(each.job)],
        followed_by=[each for each in detail.followed_by if may_see(each.job)],
    )


def schedule_words(spec: JobSpec, timezone: str, name_of: Callable[[str], str] = str) -> str:
    """Return when a job runs, in words: its schedule, the jobs before it, and the values that it listens to."""
    parts = [_schedule(spec.schedule, timezone)]
    if spec.after:
        parts.append("after " + ", ".join(name_of(after.job) for after in spec.after))
    if spec.on:
        parts.append("when " + ", or ".join(map(listen_words, spec.on)))
    words = "; ".join(filter(None, parts)) or "only manually"
    return f"{words}, each up to {format_duration(spec.jitter_ms)} later" if spec.jitter_ms else words


def _schedule(schedule: Schedule, timezone: str) -> str:
    match schedule:
        case Every(period_ms=period_ms):
            return f"every {long_duration(period_ms)}"
        case Cron(expression=expression, timezone=zone):
            words = parse_cron(expression).calendar.explain()
            how = f"{words[0].lower()}{words[1:]}" if len(words) <= LONGEST_WORDS else f"cron {expression}"
            return f"{how}, {zone}"
        case At(at_ms=at_ms):
            return f"once, at {describe_moment(at_ms, timezone)}"
        case Never():
            return ""
        case Pings(schedule=expected, grace_ms=grace_ms):
            return f"expects a ping {_schedule(expected, timezone)}, at most {format_duration(grace_ms)} later"


_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))


def long_duration(ms: int) -> str:
    """Return `5 minutes`, `minute`, `90 seconds`; a duration that is whole in no unit, as files write it."""
    for unit, name in _UNITS:
        if ms and ms % unit == 0:
            return name if ms == unit else f"{ms // unit:,} {name}s"
    return format_duration(ms)


def listen_words(on: On) -> str:
    """Return the changes that start a job, in words."""
    scope = "any scope" if on.is_prefix else scope_of(on.namespace)
    key = on.key.decode("utf-8", "backslashreplace")
    kinds = " or ".join(sorted(kind.value for kind in on.kinds))
    what = "any key" if key == "*" else key
    allowed = f", if {on.when}() allows it" if on.when else ""
    return f"{what} of {scope} is {kinds}{allowed}"


def tie(after: After, job: JobId, spec: JobSpec | None) -> Tie:
    """Return the tie that `after` makes with this job, which comes before or after."""
    outcomes = [outcome for outcome in Outcome if outcome in after.outcomes]
    return Tie(job=job, name=spec.name if spec else job, outcomes=outcomes, is_there=spec is not None)


def detail_of(
    row: OverviewRow, spec: JobSpec, others: Iterable[JobSpec], timezone: str, settings: Sequence[ResolvedSetting]
) -> JobDetail:
    """Return what the settings of a job say about it; the jobs before and after it are among the others."""
    specs = {each.id: each for each in others}
    return JobDetail(
        row=row,
        schedule=schedule_words(spec, timezone),
        follows=[tie(after, after.job, specs.get(after.job)) for after in spec.after],
        followed_by=[
            tie(after, each.id, each) for each in specs.values() for after in each.after if after.job == spec.id
        ],
        listens=list(map(listen_words, spec.on)),
        settings=settings,
        pages=spec.monitor.urls if spec.monitor else (),
        is_elsewhere=isinstance(spec.schedule, Pings),
        namespace=job_namespace(spec.id),
    )


def last_error(run: Run, frames: Sequence[TraceFrame], source: SourceView | None, reasons: Sequence[str]) -> LastError:
    is_same = all(reason == run.reason for reason in reasons) if len(reasons) > 1 else None
    at_ms = moment_of(run) or 0  # a run that has ended has one
    return copied(LastError, run, run=run.id, at_ms=at_ms, frames=frames, source=source, is_same=is_same)


MOST_JOBS = 10_000  # of a page


JobSort = Literal[
    "id", "name", "state", "next", "last", "duration", "-id", "-name", "-state", "-next", "-last", "-duration"
]
SORTED = (
    "the order: with `next`, the ones due first come first, with `last` the latest to end, with `duration` those of "
    "the longest last runs, and those without one last; with `-`, the other way round"
)


class JobsQuery(Struct, frozen=True, kw_only=True):
    """Which jobs, in which order."""

    state: JobState | None = None
    tag: str = ""
    failing: Annotated[bool | None, Meta(description="whether the last run failed or was lost")] = None
    q: Annotated[str, Meta(description="a text in the id, the name, the description or a tag")] = ""
    sort: Annotated[JobSort, Meta(description=SORTED)] = "id"
    limit: Annotated[int, Meta(ge=0, le=MOST_JOBS, description="0: all")] = 0
    after: Annotated[str, Meta(description="the id of the last job of the page before")] = ""


Key = tuple[object, ...]
_KEYS: Mapping[str, Callable[[JobView], Key]] = {
    "id": lambda view: (view.id,),
    "name": lambda view: (view.name.casefold(),),
    "state": lambda view: (view.state.value,),
    "next": lambda view: (view.next_due_ms is None, view.next_due_ms or 0),
    "last": lambda view: (view.last is None, -((view.last and view.last.ended_ms) or 0)),
    "duration": lambda view: (view.last is None, -((view.last and view.last.duration_ms) or 0)),
}


def pick_jobs(views: Iterable[JobView], wanted: JobsQuery) -> tuple[Sequence[JobView], JobId | None]:
    """Return a page of the jobs that match, and the value of `after` for the next page.

    Where the last job of the page before was removed, the list starts at the beginning.
    """
    text = wanted.q.casefold()
    chosen = [
        view
        for view in views
        if wanted.state in (None, view.state)
        and (not wanted.tag or wanted.tag in view.tags)
        and wanted.failing in (None, is_failing(view))
        and (not text or any(text in each.casefold() for each in (view.id, view.name, view.description, *view.tags)))
    ]
    chosen.sort(key=lambda view: view.id)
    if wanted.sort != "id":
        chosen.sort(key=_KEYS[wanted.sort.removeprefix("-")])
        if wanted.sort.startswith("-"):
            chosen.reverse()
    start = next((place + 1 for place, view in enumerate(chosen) if view.id == wanted.after), 0) if wanted.after else 0
    page = chosen[start : start + wanted.limit] if wanted.limit else chosen[start:]
    return page, page[-1].id if page and start + len(page) < len(chosen) else None
