"""The jobs that live: for each its settings, its code, how far its schedule has been dealt with, and what runs.

Only the event loop touches these; nothing here waits.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from spyweb.clock import Handle
from spyweb.errors import Problem
from spyweb.lua.session import Code
from spyweb.model import Cursor, JobId, JobSpec, Never, Run, RunId
from spyweb.specs.discover import JobFile


@dataclass(frozen=True, slots=True)
class Delay:
    """A retry, until its delay has passed."""

    run: Run
    timer: Handle


@dataclass(slots=True, eq=False)
class LiveJob:
    """One job and what happens to it now."""

    spec: JobSpec
    code: Code
    digest: str  # of the source that `code` was made from
    cursor: Cursor
    recorded: Cursor | None = None  # the cursor as the store has it, where that is known
    in_flight: dict[RunId, Run] = field(default_factory=dict)
    claiming: int = 0  # starts whose claim is not committed yet
    queueing: int = 0  # those that will wait, likewise; without what changes of state start
    moving: Future[list[RunId | None]] | None = None  # the commit that moves the cursor, until the store has answered
    waiting: list[Run] = field(default_factory=list)  # for the job to be idle; an empty deque takes 600 bytes more
    delayed: dict[RunId, Delay] = field(default_factory=dict)  # retries, until their delay has passed
    serving: bool = False  # a run that a change of state has started is about to start, or runs
    problems: Sequence[Problem] = ()  # of the file now on disk, when it is not the version that runs
    warnings: Sequence[Problem] = ()  # what is doubtful about the file now on disk
    not_before_ms: int = 0  # catching up after a start, or after the store refused, is put off until then
    kept_since_ms: int = 0  # its schedule, by this daemon
    reached_ms: int = 0  # up to where its schedule was dealt with before the clock was set back
    last: Run | None = None  # the newest that ran and ended
    gone: bool = False

    @property
    def id(self) -> JobId:
        return self.spec.id

    @property
    def busy(self) -> bool:
        return bool(self.in_flight or self.claiming)

    @property
    def is_new(self) -> bool:
        """Nobody has said yet where its schedule goes on (schedules/cursor.py)."""
        return not self.cursor.schedule

    @property
    def scheduled(self) -> bool:
        """Whether due times count at all now."""
        return self.spec.enabled and not self.cursor.paused and not isinstance(self.spec.schedule, Never)


def code_of(file: JobFile, generation: int) -> Code:
    spec = file.spec
    return Code(
        job=spec.id,
        generation=generation,
        chunk=file.chunk or spec.path,
        source=file.source,
        more=file.more,
        memory_limit=spec.memory_limit,
        isolation=spec.isolation,
    )


class LiveJobs:
    """Every live job by its id."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, LiveJob] = {}
        self._leaving: list[LiveJob] = []  # removed while they were busy
        self._dependents: dict[JobId, list[JobId]] = {}
        self._listeners: list[Callable[[], None]] = []
        self.unloadable: frozenset[str] = frozenset()  # see `set_unloadable`

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(list(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def find(self, job_id: JobId) -> LiveJob | None:
        return self._jobs.get(job_id)

    def add(self, job: LiveJob) -> None:
        """One that comes back under the name of a job whose runs are still in flight takes them over."""
        self._jobs[job.id] = job
        for earlier in [each for each in self._leaving if each.id == job.id]:
            job.in_flight, job.serving = earlier.in_flight, earlier.serving
            self._leaving.remove(earlier)

    def remove(self, job_id: JobId) -> LiveJob | None:
        job = self._jobs.pop(job_id, None)
        self._leaving = [each for each in (*self._leaving, job) if each and each.busy]
        return job

    def current(self, job: LiveJob) -> LiveJob:
        """Whoever has its name now; itself, where that is nobody."""
        return self._jobs.get(job.id, job)

    def link(self) -> None:
        """Find anew which jobs start after which; call it when specs have changed."""
        self._dependents = {}
        for job in self._jobs.values():
            for after in job.spec.after:
                self._dependents.setdefault(after.job, []).append(job.id)
        for listener in self._listeners:
            listener()

    def set_unloadable(self, jobs: frozenset[str]) -> None:
        """Jobs, or files that don't tell whose they are, that can't be loaded: nobody knows what they ask for."""
        if jobs != self.unloadable:
            self.unloadable = jobs
            self.link()

    def on_linked(self, listener: Callable[[], None]) -> None:
        """Call this each time that specs have changed, or what else there is to know of jobs."""
        self._listeners.append(listener)

    def after(self, job_id: JobId) -> list[LiveJob]:
        """Return the enabled jobs that name this one in their `after`, paused ones too."""
        jobs = (self._jobs.get(name) for name in self._dependents.get(job_id, ()))
        return [job for job in jobs if job and job.spec.enabled]

    def running(self) -> list[Run]:
        """Of jobs that are gone too."""
        return [run for job in self._all() for run in job.in_flight.values()]

    def is_busy(self) -> bool:
        return any(job.busy for job in self._all())

    def _all(self) -> Iterator[LiveJob]:
        return chain(self._jobs.values(), self._leaving)
