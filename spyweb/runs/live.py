"""The live jobs: each with its settings, its code, the cursor of its schedule, and its runs.

Only the event loop touches these; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from spyweb.clock import RealClock
from spyweb.errors import Problem, Refused
from spyweb.incidents.truth import JOB
from spyweb.lua.session import Code, variable_rules
from spyweb.model import Cursor, JobId, JobSpec, Never, Outcome, Pings, Run, RunId, RunState, TaskBegun, TaskRow
from spyweb.ownership import EVERY_NODE, Ownership, Slot, place_of, pool_of, slot_at, slot_of
from spyweb.runs.records import is_finding
from spyweb.runs.run_queue import RunQueue
from spyweb.schedules.due import expected_ping, jittered
from spyweb.settings.tables import TomlTable
from spyweb.specs.parse import JobFile
from spyweb.store.model.runs import SkippedRange


class LiveJob(Struct, eq=False):
    """One job, and its runs that have not ended."""

    spec: JobSpec
    code: Code
    digest: str  # of the source that `code` was made from
    cursor: Cursor
    recorded: Cursor | None = None  # the cursor as the store has it, where that is known
    queue: RunQueue = field(default_factory=RunQueue)
    mine: bool = True  # this daemon is the one that starts its runs: it owns its slot, whose work is taken up
    elsewhere: Sequence[Run] = ()  # open runs of another node, as on record when somebody looked (runs/elsewhere.py)
    problems: Sequence[Problem] = ()  # of the file now on disk, when it is not the version that runs
    warnings: Sequence[Problem] = ()  # about the file now on disk
    sources: Sequence[TomlTable] = ()  # of its settings: from the file, and from config.toml
    not_before_ms: int = 0  # catching up after a start, or after the store refused, is put off until then
    kept_since_ms: int = 0  # when this daemon took over its schedule
    reached_ms: int = 0  # its cursor before the clock was set back
    last: Run | None = None  # the newest that ran and ended; one that was skipped only where there is no other
    started_ms: int = 0  # when this daemon last started a run; debug runs, dry runs and drift checks do not count
    succeeded_ms: int = 0  # when such a run last succeeded
    gone: bool = False
    place: int = 0  # of its id, which takes long to find

    def __post_init__(self) -> None:
        self.place = place_of(self.spec.id)

    @property
    def id(self) -> JobId:
        return self.spec.id

    @property
    def under_way(self) -> list[Run]:
        """Return its runs that have begun and not ended, in whichever node."""
        if self.mine:
            return list(self.queue.in_flight.values())
        return [run for run in self.elsewhere if run.state is RunState.RUNNING]

    @property
    def waiting_count(self) -> int:
        return self.queue.waiting_count if self.mine else len(self.elsewhere) - len(self.under_way)

    @property
    def is_new(self) -> bool:
        """Return whether the cursor of this job is still to be set (schedules/due.py)."""
        return not self.cursor.schedule

    @property
    def pool(self) -> str:
        """Return the pool that its settings ask for."""
        return pool_of(self.spec.node, self.spec.labels)

    @property
    def slot(self) -> Slot:
        """Return the slot in which it lies, by the record; of a new one, the slot that its settings ask for."""
        return slot_at(self.place, self.recorded.pool if self.recorded else self.pool)

    @property
    def is_astray(self) -> bool:
        """Return whether its settings ask for another pool than the one in which it lies."""
        return self.recorded is not None and self.recorded.pool != self.pool

    @property
    def scheduled(self) -> bool:
        """Return whether the job is started at its due times now; not one that no node has begun yet."""
        is_on = self.spec.enabled and not self.cursor.paused and (self.mine or not self.is_new)
        return is_on and not isinstance(self.spec.schedule, Never | Pings)

    @property
    def expected_ms(self) -> int | None:
        """Return when the next ping of a job that runs elsewhere is expected; None where none is."""
        schedule = self.spec.schedule
        if not isinstance(schedule, Pings) or not self.spec.enabled or self.cursor.paused:
            return None
        return expected_ping(schedule, self.cursor.due_ms)

    def hear(self, at_ms: int) -> None:
        """Move the cursor to a ping that has been recorded."""
        self.cursor = replace(self.cursor, due_ms=at_ms)
        self.recorded = self.recorded and replace(self.recorded, due_ms=at_ms)

    def note_end(self, ended: Run) -> None:
        if ended.trigger.is_aside:
            return
        if ended.outcome is not Outcome.SKIPPED or self.last is None or self.last.outcome is Outcome.SKIPPED:
            self.last = ended
        if ended.outcome is Outcome.SUCCESS and not is_finding(ended):
            self.succeeded_ms = ended.ended_ms or 0

    def late_ms(self, run: Run) -> int | None:
        """Return how long after its due time and jitter a run has started; None where it had no due time."""
        if run.due_ms is None or run.attempt > 1 or run.started_ms is None:
            return None
        return run.started_ms - jittered(self.spec, run.due_ms)


class JobChange(StrEnum):
    """The changes of a job that a listener hears of."""

    LOADED = "loaded"
    RELOADED = "reloaded"
    SETTINGS = "settings"  # other settings, with the same code
    BROKEN = "broken"  # its file does not load; an earlier version stays in use
    MENDED = "mended"  # its file loads again
    REMOVED = "removed"
    PAUSED = "paused"
    RESUMED = "resumed"


class JobListener(Protocol):
    """Hears of every change of a job and its runs; implemented on a floor above."""

    def run_waits(self, run: Run) -> None: ...

    def run_began(self, run: Run, late_ms: int | None) -> None: ...

    def run_ended(self, run: Run, late_ms: int | None) -> None:
        """Take a run whose end is committed, as recorded; `late_ms` is how late it began."""

    def task_ended(self, job: JobId, run: RunId, row: TaskRow) -> None: ...

    def skipped(self, skipped: SkippedRange) -> None: ...

    def changed(self, job: LiveJob, change: JobChange) -> None: ...

    def broken(self, job: JobId, problems: Sequence[Problem]) -> None:
        """Take the problems of a file that does not load, when they are new or differ from the previous ones."""


def code_of(file: JobFile, generation: int) -> Code:
    spec = file.spec
    (chunk, source), *more = file.lua or [(spec.path, b"")]
    return Code(
        job=spec.id,
        generation=generation,
        chunk=chunk,
        source=source,
        more=tuple(more),
        memory_limit=spec.memory_limit,
        isolation=spec.isolation,
        variables=variable_rules(spec.policy, spec.id),
    )


class LiveJobs:
    """Finds live jobs: by id, and by the job that they start after."""

    def __init__(self, ownership: Ownership | None = None) -> None:
        self.ownership = ownership or Ownership(RealClock())
        self._jobs: dict[JobId, LiveJob] = {}
        self._leaving: list[LiveJob] = []  # removed while they were busy
        self._dependents: dict[JobId, list[JobId]] = {}
        self._listeners: list[Callable[[], None]] = []
        self.pools: dict[JobId, str] = {}  # by the record, of jobs without a file here; other than every node's
        self.unloadable: frozenset[str] = frozenset()  # see `set_unloadable`
        self.listener: JobListener | None = None  # none: nothing consumes changes
        self.ran_elsewhere: Callable[[Sequence[JobId]], None] | None = None  # gets jobs that ran elsewhere

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(list(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, job_id: JobId) -> LiveJob | None:
        return self._jobs.get(job_id)

    def get(self, job_id: JobId) -> LiveJob:
        """Return a job that is live.  Raises Refused where it is not."""
        found = self.find(job_id)
        if found is None:
            raise Refused(f"{job_id} was removed")
        return found

    def of_subject(self, subject: str) -> LiveJob | None:
        """Return the job that is this subject of incidents."""
        return self.find(JobId(subject.removeprefix(JOB))) if subject.startswith(JOB) else None

    def is_mine(self, job_id: JobId) -> bool:
        """Return whether this daemon acts for a job, also for one that has no file here."""
        found = self.find(job_id)
        return found.mine if found else self.ownership.has(self.slot_of(job_id))

    def slot_of(self, job_id: JobId) -> Slot:
        found = self.find(job_id)
        return found.slot if found else slot_of(job_id, self.pools.get(job_id, EVERY_NODE))

    def add(self, job: LiveJob) -> None:
        """Add a job; one with the id of a removed job that is still busy takes over the runs of that job.

        In a cluster it is taken up later (scheduler/slots.py), by what is on record.
        """
        job.mine &= self.ownership.owned is None
        self._jobs[job.id] = job
        for earlier in [each for each in self._leaving if each.id == job.id]:
            job.queue = earlier.queue
            self._leaving.remove(earlier)

    def remove(self, job_id: JobId) -> LiveJob | None:
        job = self._jobs.pop(job_id, None)
        if job and job.slot.pool != EVERY_NODE:
            self.pools[job_id] = job.slot.pool
        self._leaving = [each for each in (*self._leaving, job) if each and each.queue.is_busy]
        return job

    def current(self, job: LiveJob) -> LiveJob:
        """Return the live job with this id, or `job` itself if it was deleted."""
        return self._jobs.get(job.id, job)

    def tell_task(
        self, job: JobId, run: RunId, observe: Callable[[TaskBegun | TaskRow], None], event: TaskBegun | TaskRow
    ) -> None:
        """Report a task of a run to its observer, and its end to the listener."""
        observe(event)
        if self.listener and isinstance(event, TaskRow):
            self.listener.task_ended(job, run, event)

    def tell_skipped(self, skipped: Sequence[SkippedRange]) -> None:
        if self.listener:
            for each in skipped:
                self.listener.skipped(each)

    def link(self) -> None:
        """Find again which jobs start after which; call this when specs have changed."""
        self._dependents = {}
        for job in self._jobs.values():
            for after in job.spec.after:
                self._dependents.setdefault(after.job, []).append(job.id)
        for listener in self._listeners:
            listener()

    def set_unloadable(self, jobs: frozenset[str]) -> None:
        """Set which jobs, and files of unknown jobs, can't be loaded: their settings are unknown."""
        if jobs != self.unloadable:
            self.unloadable = jobs
            self.link()

    def on_linked(self, listener: Callable[[], None]) -> None:
        """Register a function that is called whenever specs, or other facts about the jobs, have changed."""
        self._listeners.append(listener)

    def after(self, job_id: JobId) -> list[LiveJob]:
        """Return the enabled jobs that name this one in their `after`, paused ones too."""
        jobs = (self._jobs.get(name) for name in self._dependents.get(job_id, ()))
        return [job for job in jobs if job and job.spec.enabled]

    def running(self) -> list[Run]:
        """Return every run in flight, also of deleted jobs."""
        return [run for job in self.with_runs() for run in job.queue.in_flight.values()]

    def is_busy(self) -> bool:
        return any(job.queue.is_busy for job in self.with_runs())

    def with_runs(self) -> Iterator[LiveJob]:
        """Yield every job that may have runs: the live ones, and removed ones that were busy."""
        return chain(self._jobs.values(), self._leaving)
