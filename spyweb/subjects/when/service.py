"""Answer clients about the due times of the day ahead, missed ones, and maintenance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice, pairwise
from typing import Final

from msgspec import Struct

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import Refused
from spyweb.logs.output import note_refused
from spyweb.model import At, Cron, Every, JobId, Never, Outcome, Pings, Run, RunId
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.schedules.cron import cron_after, cron_count
from spyweb.settings.reading import Names, nearest
from spyweb.settings.units import DAY_MS, MINUTE_MS
from spyweb.specs.maintenance import (
    MaintenanceCalendar,
    MaintenanceRule,
    Once,
    Recurring,
    job_pattern,
    missing_job,
    planned_windows,
)
from spyweb.store.model.incidents import BegunMaintenance
from spyweb.store.model.runs import RunFilter
from spyweb.store.sqlite.incidents import Incidents
from spyweb.store.sqlite.uptime import Uptimes
from spyweb.subjects.runs.service import PastRunsService
from spyweb.subjects.runs.views import RunBrief, brief
from spyweb.views.jobs import MaySee, anything
from spyweb.views.runs import copied
from spyweb.words import counted

NOT_COUNTED = "the uptime of jobs up to a change of their maintenance was not stored"
NOT_RUN: Final = (Outcome.MISSED, Outcome.SKIPPED, Outcome.PAUSED, Outcome.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarService:
    past: PastRunsService

    async def day_ahead(self, may_see: MaySee = anything) -> DayAhead:
        """Count the due times of the next 24 hours of all jobs that the client may see."""
        jobs = (job for job in self.past.live if job.scheduled and may_see(job.id))
        return await run_in_slices(self.past.clock, day_ahead(jobs, self.past.clock.now_ms()))

    async def gaps(
        self,
        job: JobId | None = None,
        *,
        since_ms: int | None = None,
        limit: int = 50,
        before: RunId | None = None,
        may_see: MaySee = anything,
    ) -> GapPage:
        """Return due times that did not run, and lost runs, newest first, of the jobs that the client may see."""
        wanted = RunFilter(job=job, outcomes=NOT_RUN, began_skipped=False, since_ms=since_ms)
        page = await self.past.search(wanted, limit=limit, before=before)
        gaps = []
        for run in page.runs:
            if may_see(run.job):
                job_now = self.past.live.find(run.job)
                _, after = await self.past.store.past_runs.neighbours(run.job, run.id)
                following = await self.past.find(after) if after is not None else None
                name = job_now.spec.name if job_now else run.job
                gaps.append(view_gap(run, name, brief(following) if following else None))
        return GapPage(gaps=gaps, count=sum(gap.count for gap in gaps), before=page.before)


SLOT_MS = 15 * MINUTE_MS
SLOTS = DAY_MS // SLOT_MS + 1  # the first has begun, the last ends with the day


class DayRow(Struct, frozen=True, kw_only=True):
    """The runs of one job that are due in a day."""

    job: JobId
    name: str
    counts: Sequence[int]  # for each quarter of an hour
    total: int


class BusiestMinute(Struct, frozen=True, kw_only=True):
    """The minute in which most jobs start."""

    at_ms: int
    jobs: int
    words: str  # "14 jobs start within a minute"


class DayAhead(Struct, frozen=True, kw_only=True):
    """The due times of the next 24 hours, without what jitter adds to them."""

    from_ms: int
    slot_ms: int
    rows: Sequence[DayRow]  # the jobs with the fewest runs first: they are easily missed
    sums: Sequence[int]
    total: int
    busiest: BusiestMinute | None  # None: nothing is due


class Gap(Struct, frozen=True, kw_only=True):
    """Due times that did not run, or a run that was lost."""

    run: RunId
    job: JobId
    name: str
    outcome: Outcome
    from_ms: int
    until_ms: int
    count: int
    reason: str
    followed_by: RunBrief | None  # the next run of the job; None: there was none


class GapPage(Struct, frozen=True, kw_only=True):
    """Gaps, newest first, and where the next page begins."""

    gaps: Sequence[Gap]
    count: int  # due times in all of them
    before: RunId | None


Day = tuple[Sequence[int], Sequence[int]]  # the counts of a job's day, and its minutes, as a tuple or a range


def day_ahead(jobs: Iterable[LiveJob], now_ms: int) -> Steps[DayAhead]:
    """Count the due times of the next 24 hours, from the quarter of an hour that has begun.

    Each cron expression is computed once for all its jobs; the due times of frequent jobs are counted by arithmetic.
    """
    from_ms = now_ms - now_ms % SLOT_MS
    known: dict[Cron, Day] = {}
    rows, sums, alike, starts = [], [0] * SLOTS, Counter[Sequence[int]](), Counter[int]()
    for job in jobs:
        counts, minutes = yield from _day_of(job, from_ms, now_ms, known)
        total = sum(counts)
        if total:
            rows.append(DayRow(job=job.id, name=job.spec.name, counts=counts, total=total))
            sums = [before + more for before, more in zip(sums, counts, strict=True)]
            alike[minutes] += 1
        yield
    for minutes, jobs_alike in alike.items():  # most jobs start in the same minutes as many others
        starts.update(dict.fromkeys(minutes, jobs_alike))
        yield
    rows.sort(key=lambda row: (row.total, row.name.casefold(), row.job))
    most = max(starts.values(), default=0)
    minute = min((minute for minute, count in starts.items() if count == most), default=0)
    words = f"{counted(most, 'job starts', 'jobs start')} within a minute"
    busiest = BusiestMinute(at_ms=from_ms + minute * MINUTE_MS, jobs=most, words=words)
    return DayAhead(
        from_ms=from_ms, slot_ms=SLOT_MS, rows=rows, sums=sums, total=sum(sums), busiest=busiest if most else None
    )


def _day_of(job: LiveJob, from_ms: int, now_ms: int, known: dict[Cron, Day]) -> Steps[Day]:
    match job.spec.schedule:
        case Every(period_ms=period_ms):
            return _day_of_period(period_ms, job.cursor.due_ms, from_ms, now_ms)
        case Cron():
            if job.cursor.due_ms > now_ms:  # it was just resumed or edited
                return (yield from _day_of_cron(job.spec.schedule, from_ms, job.cursor.due_ms, now_ms))
            if job.spec.schedule not in known:
                known[job.spec.schedule] = yield from _day_of_cron(job.spec.schedule, from_ms, now_ms, now_ms)
            return known[job.spec.schedule]
        case At(at_ms=at_ms) if now_ms < at_ms <= now_ms + DAY_MS and at_ms > job.cursor.due_ms:
            counts = [0] * SLOTS
            counts[(at_ms - from_ms) // SLOT_MS] = 1
            return counts, ((at_ms - from_ms) // MINUTE_MS,)
        case At() | Never() | Pings():
            return (0,) * SLOTS, ()


def _day_of_period(period_ms: int, cursor_ms: int, from_ms: int, now_ms: int) -> Day:
    # The first due time that is still to come: later than the cursor, and than now.
    first_ms = cursor_ms + period_ms * max(1, -(-(now_ms + 1 - cursor_ms) // period_ms))
    end_ms = now_ms + DAY_MS
    moments = (min(from_ms + slot * SLOT_MS, end_ms + 1) for slot in range(SLOTS + 1))
    passed = [max(0, -(-(moment_ms - first_ms) // period_ms)) for moment_ms in moments]
    counts = [after - before for before, after in pairwise(passed)]
    if period_ms <= MINUTE_MS:  # each minute from the first due time to the last
        last_ms = first_ms + (sum(counts) - 1) * period_ms
        first, last = ((due_ms - from_ms) // MINUTE_MS for due_ms in (first_ms, last_ms))
        return counts, range(first, last + 1) if last_ms >= first_ms else ()
    return counts, tuple((due_ms - from_ms) // MINUTE_MS for due_ms in range(first_ms, end_ms + 1, period_ms))


def _day_of_cron(schedule: Cron, from_ms: int, after_ms: int, now_ms: int) -> Steps[Day]:
    expression, zone, end_ms = schedule.expression, schedule.timezone, now_ms + DAY_MS
    counts = []
    for slot in range(SLOTS):
        begin_ms = from_ms + slot * SLOT_MS
        since_ms = max(begin_ms - 1, after_ms)
        until_ms = min(begin_ms + SLOT_MS - 1, end_ms)
        counts.append(cron_count(expression, zone, since_ms, until_ms) if since_ms < until_ms else 0)
        yield
    minutes, due_ms = list[int](), cron_after(expression, zone, after_ms)
    while due_ms is not None and due_ms <= end_ms:
        minutes.append((due_ms - from_ms) // MINUTE_MS)
        due_ms = cron_after(
            expression, zone, from_ms + (minutes[-1] + 1) * MINUTE_MS - 1
        )  # the next that is in another
        yield
    return counts, tuple(minutes)


def view_gap(run: Run, name: str, followed_by: RunBrief | None) -> Gap:
    moments = [moment for moment in (run.due_ms, run.started_ms, run.ended_ms) if moment is not None]
    from_ms = moments[0] if moments else 0
    return copied(
        Gap,
        run,
        run=run.id,
        name=name,
        outcome=run.outcome or Outcome.SKIPPED,
        from_ms=from_ms,
        until_ms=from_ms if run.last_due_ms is None else run.last_due_ms,
        followed_by=followed_by,
    )


USUAL_DAYS, MOST_DAYS = 7, 366  # of the maintenance that is shown
MOST_WINDOWS = 200


MOST_BEGUN, MOST_NAMED, LONGEST_NAMED = 50, 20, 200  # windows at a time; jobs and tags of one; characters of each


@dataclass(slots=True, kw_only=True)
class MaintenanceService:
    """Knows the windows of config.toml, and begins others, which a restart keeps."""

    live: LiveJobs
    planned: Callable[[], MaintenanceCalendar]  # of config.toml
    store: Incidents
    uptime: Uptimes
    clock: Clock
    _begun: dict[int, BegunMaintenance] = field(init=False, default_factory=dict)
    _all: MaintenanceCalendar = field(init=False, default_factory=MaintenanceCalendar)

    def __post_init__(self) -> None:
        self.live.on_linked(self._join)  # jobs may have other tags, and config.toml other windows

    async def load(self) -> None:
        """Read the windows that an earlier daemon, or another node, has begun or ended."""
        begun = {each.id: each for each in await self.store.maintenance()}
        if begun != self._begun:
            self._begun = begun
            self.live.link()

    def windows(self) -> MaintenanceCalendar:
        """Return all windows: those of config.toml, and the ones begun manually."""
        return self._all

    def _join(self) -> None:
        tagged = defaultdict[str, set[str]](set)
        for job in self.live if any(each.tags for each in self._begun.values()) else ():
            for tag in job.spec.tags:
                tagged[tag].add(job.id)
        rules = list(self.planned().rules)
        for each in self._begun.values():
            window, ids = Once(each.start_ms, each.end_ms), frozenset[str]().union(*(tagged[tag] for tag in each.tags))
            rules.append(MaintenanceRule(window, each.jobs, each.text, each.tags, ids, each.id, each.by))
        before, self._all = self._all, MaintenanceCalendar(rules)
        self.uptime.excused = self._all.excused
        gone = {*before.rules} - {*rules}  # what they have excused stays so
        jobs = [job.id for job in self.live if job.mine and any(rule.covers(job.id) for rule in gone)]
        if jobs:
            counted = self.uptime.count(dict.fromkeys(jobs, self.clock.now_ms()), before.excused)
            counted.add_done_callback(partial(note_refused, NOT_COUNTED))

    async def begin(self, for_ms: int, by: str, *, jobs: Sequence[str], tags: Sequence[str], text: str) -> int:
        """Begin a window; return its id.  Raises Refused where no job is called so, and of too many windows."""
        now_ms, named = self.clock.now_ms(), (*jobs, *tags)
        self._begun = {number: each for number, each in self._begun.items() if now_ms < each.end_ms}
        if len(self._begun) >= MOST_BEGUN or len(named) > MOST_NAMED or max(map(len, named), default=0) > LONGEST_NAMED:
            limits = f"{MOST_NAMED} jobs and tags of {LONGEST_NAMED} characters"
            raise Refused(f"at most {MOST_BEGUN} windows at a time, each of at most {limits}: use a pattern")
        try:
            chosen = tuple(dict.fromkeys(job_pattern(each) for each in jobs))
        except ValueError as error:
            raise Refused(str(error)) from error
        ids, known = [job.id for job in self.live], {tag for job in self.live for tag in job.spec.tags}
        names = Names(ids)
        unknown = [missing_job(each, ids, names) for each in chosen]
        unknown += [f'no job has the tag "{each}"{nearest(each, Names(known))}' for each in tags if each not in known]
        if problem := next(filter(None, unknown), ""):
            raise Refused(problem)
        new = BegunMaintenance(
            id=0, start_ms=now_ms, end_ms=now_ms + for_ms, jobs=chosen, tags=tuple(tags), text=text, by=by
        )
        begun = await self.store.begin_maintenance(new)
        self._begun[begun.id] = begun
        self.live.link()  # incidents are planned again, and open pages change
        return begun.id

    async def end(self, window: int) -> None:
        """End a window that was begun.  Raises Refused where there is none."""
        if not await self.store.end_maintenance(window):
            raise Refused(f"no maintenance {window} was begun: windows of config.toml end by themselves")
        self._begun.pop(window, None)
        self.live.link()

    def until(self, job: JobId) -> int | None:
        """Return the end of the maintenance that covers a job now; None where none does."""
        return self.windows().until(job, self.clock.now_ms())

    async def view(self, days: int = USUAL_DAYS, may_see: MaySee = anything) -> MaintenanceView:
        """Return current windows, and the windows that begin in so many days, as far as the client may see them."""
        now_ms = self.clock.now_ms()
        jobs = [job.id for job in self.live]
        steps = view_maintenance(self.windows().rules, jobs, now_ms, now_ms + days * DAY_MS, may_see)
        return await run_in_slices(self.clock, steps)


class MaintenanceWindow(Struct, frozen=True, kw_only=True):
    """A time in which failures of jobs neither count nor notify anybody."""

    start_ms: int
    end_ms: int
    id: int | None = None  # of a window that was begun at runtime: it can be ended
    jobs: Sequence[str]  # ids or patterns; with no tags either: all jobs, and spyweb itself
    tags: Sequence[str] = ()
    by: str = ""  # the client that began it
    job_count: int  # how many jobs they match now
    text: str
    cron: str  # "" for a window that comes once
    timezone: str


class MaintenanceView(Struct, frozen=True, kw_only=True):
    """The current windows, and the windows of the next days, the earliest first."""

    now: list[MaintenanceWindow]
    next: list[MaintenanceWindow]
    until_ms: int  # the end of the period that was searched
    is_cut: bool  # there are more windows


class MaintenanceChanged(Struct, frozen=True, kw_only=True):
    """The window that was begun, or ended."""

    window: int


def view_maintenance(
    rules: Sequence[MaintenanceRule], jobs: Collection[str], now_ms: int, until_ms: int, may_see: Callable[[str], bool]
) -> Steps[MaintenanceView]:
    """Return the windows that cover a job that the client may see."""
    sees_all = may_see("")
    known = []
    for rule in rules:
        seen = []
        for job in jobs:
            if rule.covers(job) and may_see(job):
                seen.append(job)
            yield
        if seen or sees_all:
            if not sees_all and (rule.jobs or rule.tags):  # without patterns that name no visible job, and without tags
                patterns = (each for each in rule.jobs if any(fnmatchcase(job, each) for job in seen))
                rule = rule._replace(jobs=tuple(patterns) or tuple(seen[:MOST_NAMED]), tags=())
            known.append((rule, len(seen)))
    found: list[MaintenanceWindow] = []
    planned = planned_windows([rule for rule, _ in known], now_ms, until_ms)
    for start_ms, end_ms, place in islice(planned, MOST_WINDOWS + 1):
        rule, job_count = known[place]
        recurring = rule.window if isinstance(rule.window, Recurring) else None
        found.append(
            copied(
                MaintenanceWindow,
                rule,
                start_ms=start_ms,
                end_ms=end_ms,
                job_count=job_count,
                cron=recurring.cron if recurring else "",
                timezone=recurring.timezone if recurring else "",
            )
        )
        yield
    return MaintenanceView(
        now=[each for each in found[:MOST_WINDOWS] if each.start_ms <= now_ms],
        next=[each for each in found[:MOST_WINDOWS] if each.start_ms > now_ms],
        until_ms=until_ms,
        is_cut=len(found) > MOST_WINDOWS,
    )
