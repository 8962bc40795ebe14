"""Report events of the parts of a daemon to the hub, while somebody listens.

Each part has a place for one listener, which costs one comparison while it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, assert_never

from spyweb.clock import Clock, Handle
from spyweb.errors import Problem
from spyweb.events.happenings import (
    EventType,
    HealthHappened,
    JobHappened,
    OutboxHappened,
    RunHappened,
    TaskHappened,
    line_logged,
    run_happened,
    state_changed,
    were_skipped,
)
from spyweb.events.hub import EventHub, Topic
from spyweb.logs.job import JobLogs
from spyweb.model import ChangeKind, JobId, Run, RunId, RunMark, TaskRow
from spyweb.outbox.sender import OutboxSender
from spyweb.runs.live import JobChange, LiveJob, LiveJobs
from spyweb.store.model.entries import ChangeEvent, Watch, job_namespace
from spyweb.store.model.runs import SkippedRange
from spyweb.store.sqlite.events import Events
from spyweb.subjects.health.views import HealthProblem
from spyweb.subjects.incidents.service import IncidentService
from spyweb.subjects.jobs.overview import is_doubtful
from spyweb.views.jobs import join_problems
from spyweb.views.runs import mark_of
from spyweb.web.access.audit import AuditService

TASKS_S = 0.5  # between two events of the tasks of a run
LOOK_S = 5.0  # between two checks of the health, which announces no changes
OF_A_JOB = job_namespace(JobId(""))

Kind = Literal["problem", "warning"]
FindTroubles = Callable[[], tuple[Sequence[HealthProblem], Sequence[HealthProblem]]]  # the problems and the warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSources:
    """Starts and ends the source of a topic."""

    clock: Clock
    live: LiveJobs
    changes: Events
    outbox_sender: OutboxSender
    job_logs: JobLogs
    trail: AuditService
    incidents: IncidentService
    troubles: FindTroubles

    def begin(self, hub: EventHub, topic: Topic) -> Callable[[], None]:
        """Report events of this topic to the hub; return a function that ends that."""
        match topic.type:
            case EventType.RUN | EventType.JOB | EventType.TASK:
                self.live.listener = JobTeller(hub, self.clock)
                return partial(self._end_jobs, hub)
            case EventType.STATE:
                everything = Watch(namespace="", is_prefix=True, kinds=frozenset(ChangeKind))
                return self.changes.follow(everything, partial(tell_of_state, hub))
            case EventType.HEALTH:
                return HealthWatch(hub, self.clock, self.troubles).stop
            case EventType.OUTBOX:
                return _listen(
                    self.outbox_sender,
                    lambda job, message, what, reason: hub.publish(
                        EventType.OUTBOX, job, OutboxHappened(what=what, message=message, job=job, reason=reason)
                    ),
                )
            case EventType.AUDIT:
                return _listen(
                    self.trail, lambda line: hub.publish(EventType.AUDIT, JobId(line.job) if line.job else None, line)
                )
            case EventType.INCIDENT:
                return _listen(self.incidents, lambda happened: hub.publish(EventType.INCIDENT, happened.job, happened))
            case EventType.LOG:
                return self._begin_log(hub, topic.job or JobId(""))
            case _:
                assert_never(topic.type)

    def _end_jobs(self, hub: EventHub) -> None:
        if not any(hub.wants(Topic(each)) for each in (EventType.RUN, EventType.JOB, EventType.TASK)):
            self.live.listener = None

    def _begin_log(self, hub: EventHub, job: JobId) -> Callable[[], None]:
        def tell(at_ms: int, level: str, text: bytes | str, run: int | None) -> None:
            hub.publish(EventType.LOG, job, line_logged(job, level, text, at_ms, None if run is None else RunId(run)))

        return self.job_logs.listen(self._folder(job), tell)

    def _folder(self, job: JobId) -> str:
        found = self.live.find(job)
        return found.spec.folder if found else f"jobs/{job}"  # its file does not load yet

    async def last_lines(self, job: JobId, count: int, note_place: Callable[[], None]) -> list[str]:
        """Return the last lines of a job's log up to the moment at which `note_place` is called."""
        return await self.job_logs.last_lines(self._folder(job), count, note_place)


def _listen(part: OutboxSender | AuditService | IncidentService, listener: Any) -> Callable[[], None]:
    """Set the one listener of a part; return a function that ends that."""
    part.listener = listener
    return partial(setattr, part, "listener", None)


class JobTeller:
    """Reports events of jobs and their runs."""

    def __init__(self, hub: EventHub, clock: Clock) -> None:
        self._hub, self._clock = hub, clock
        self._tasks: dict[RunId, TaskHappened] = {}  # the newest of each run, until it is reported
        self._ends: dict[JobId, tuple[RunMark, bool]] = {}  # the end of each job's last run

    def run_waits(self, run: Run) -> None:
        self._tell(run_happened("waits", run))

    def run_began(self, run: Run, late_ms: int | None) -> None:
        self._tell(run_happened("began", run, late_ms))

    def run_ended(self, run: Run, late_ms: int | None) -> None:
        end = mark_of(run), is_doubtful(run)
        changes_standing = end[1] or self._ends.get(run.job) != end
        self._ends[run.job] = end
        happened = run_happened("ended", run, late_ms)
        self._hub.publish(EventType.RUN, run.job, happened, changes_standing=changes_standing)

    def task_ended(self, job: JobId, run: RunId, row: TaskRow) -> None:
        if run not in self._tasks:
            self._clock.call_later(TASKS_S, lambda: self._hub.publish(EventType.TASK, job, self._tasks.pop(run)))
        self._tasks[run] = TaskHappened(job=job, run=run, task=row.name, workflow=row.workflow, status=row.status)

    def skipped(self, skipped: SkippedRange) -> None:
        self._tell(were_skipped(skipped))

    def _tell(self, happened: RunHappened) -> None:
        self._hub.publish(EventType.RUN, happened.job, happened)

    def changed(self, job: LiveJob, change: JobChange) -> None:
        self._tell_of_job(job.id, change, job.code.generation, join_problems(job.problems))

    def broken(self, job: JobId, problems: Sequence[Problem]) -> None:
        self._tell_of_job(job, JobChange.BROKEN, 0, join_problems(problems))

    def _tell_of_job(self, job: JobId, change: JobChange, generation: int, error: str) -> None:
        self._hub.publish(EventType.JOB, job, JobHappened(what=change, job=job, generation=generation, error=error))


def tell_of_state(hub: EventHub, event: ChangeEvent) -> None:
    """Report a change of a value: for the job that the value belongs to, else for the job whose run changed it."""
    own = event.namespace.removeprefix(OF_A_JOB) if event.namespace.startswith(OF_A_JOB) else None
    hub.publish(EventType.STATE, event.origin.job if own is None else JobId(own), state_changed(event))


class HealthWatch:
    """Checks the daemon's health every few seconds, and reports new and ended problems."""

    def __init__(self, hub: EventHub, clock: Clock, troubles: FindTroubles) -> None:
        self._hub, self._clock, self._troubles = hub, clock, troubles
        self._known = self._read()
        self._timer: Handle = clock.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _read(self) -> Mapping[tuple[Kind, str, str], str]:
        kinds: tuple[Kind, Kind] = ("problem", "warning")
        troubles = zip(kinds, self._troubles(), strict=True)
        return {(kind, each.code, each.timeless): each.text for kind, found in troubles for each in found}

    def _look(self) -> None:
        self._timer = self._clock.call_later(LOOK_S, self._look)
        known, self._known = self._known, self._read()
        for which in known.keys() - self._known.keys():
            self._tell("ended", which[0], known[which])
        for which in self._known.keys() - known.keys():
            self._tell("began", which[0], self._known[which])

    def _tell(self, what: Literal["began", "ended"], kind: Kind, text: str) -> None:
        self._hub.publish(EventType.HEALTH, None, HealthHappened(what=what, kind=kind, text=text))
