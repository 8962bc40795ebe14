"""Act on jobs with incidents: pause them, run the jobs that they depend on, and call their own hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import structlog

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import STORE_REFUSED, Refused
from spyweb.incidents.telling import SCRIPTS, Told
from spyweb.incidents.truth import JOB, Paused, first_sign
from spyweb.logs.output import tell_refusal
from spyweb.lua.hooks import ALERT_HOOKS, ON_DOWN, ON_UP
from spyweb.lua.session import Code
from spyweb.model import JobId, RunState, Trigger, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.runner import Runner, RunRequest
from spyweb.specs.linting.lua_file import words_of
from spyweb.store.model.incidents import Incident, ScriptTold, SubjectChange
from spyweb.store.model.runs import Change, NewRun
from spyweb.store.sqlite.incidents import Incidents
from spyweb.store.sqlite.runs import Runs

PAUSED_TOGETHER = 200  # jobs: more in one commit would hold up the store

log = structlog.get_logger()


@dataclass(eq=False)
class JobMeasures:
    """Pauses jobs that keep failing, and runs the jobs that a failed one depends on."""

    live: LiveJobs
    pause_all: Callable[[Mapping[JobId, str], Sequence[LiveJob]], Awaitable[None]]
    start: Callable[[LiveJob, RunRequest], Awaitable[object]]
    runs: Runs
    # Subjects whose jobs are to be paused: failures in a row, and the time of the last; None: before this daemon.
    _pausing: dict[str, tuple[int, int | None]] = field(init=False, default_factory=dict)
    # Incidents of jobs that may depend on others.
    _opened: list[SubjectChange] = field(init=False, default_factory=list)

    def load(self, pausing: Mapping[str, int]) -> None:
        """Take over the pauses that an earlier daemon, or another node, had no time for."""
        known = {name: last for name, last in self._pausing.items() if last[0] == pausing.get(name)}
        self._pausing = {name: (failures, None) for name, failures in pausing.items()} | known

    def take(self, change: SubjectChange) -> bool:
        """Take a committed change; return whether it needs an action."""
        self._pausing.pop(change.subject, None)
        if not change.subject.startswith(JOB):
            return False
        if change.opened:
            self._opened.append(change)
        if change.pauses:
            self._pausing[change.subject] = change.pauses, change.at_ms
        return change.opened or change.pauses > 0

    async def pause(self) -> list[tuple[str, Paused]]:
        """Pause jobs that have failed too often, a limited number at a time; return the events to record.

        A job that was resumed after its last failure is not paused: the user who resumed it knew of that failure.
        """
        found = [
            (job, f"{failures} failures in a row", failed_ms)
            for subject, (failures, failed_ms) in self._pausing.items()
            if (job := self.live.of_subject(subject)) and job.mine and not (job.gone or job.is_new)
        ][:PAUSED_TOGETHER]
        whys = {job.id: why for job, why, _ in found}
        running = [
            job
            for job, _, failed_ms in found
            if not job.cursor.paused and (failed_ms is None or (job.cursor.active_since_ms or 0) <= failed_ms)
        ]
        if running:
            try:
                await self.pause_all(whys, running)
            except Refused:  # a job was removed meanwhile; that change wakes this again
                return []
            for job in running:
                log.warning("job paused", job=job.id, why=whys[job.id])
        return [(f"{JOB}{job.id}", Paused(why if job.cursor.paused_for == why else "")) for job, why, _ in found]

    def noted(self, subjects: Iterable[str]) -> None:
        """Forget pauses that are on record now."""
        for subject in subjects:
            self._pausing.pop(subject, None)

    async def run_parents(self) -> None:
        """Run the jobs on which failed jobs depend, at once: they may be the cause.

        Once for each incident, and not where a run would show nothing new: see `shows_nothing_new`.
        """
        opened, self._opened = self._opened, []
        for change in opened:
            job = change.subject.removeprefix(JOB)
            trigger = Trigger(type=TriggerType.DEPENDS, job=job, incident_id=change.incident)
            child = self.live.of_subject(change.subject)
            for parent in find_parents(self.live, child) if child else ():
                try:
                    await self._run_parent(parent, trigger, first_sign(change.signs)[1].since_ms)
                except Refused:  # it has begun meanwhile, or the daemon stops
                    continue
                except STORE_REFUSED as error:
                    tell_refusal("a job that others depend on could not be run", error, job=parent.id)

    async def _run_parent(self, parent: LiveJob, trigger: Trigger, since_ms: int) -> None:
        """Run it, unless that shows nothing new; one of another node is left to that by the record."""
        if parent.mine:
            if not shows_nothing_new(parent, since_ms):
                await self.start(parent, RunRequest(trigger=trigger))
            return
        newest = await self.runs.list(parent.id, limit=1)  # before all cursors: many may depend on the same job
        if not parent.spec.enabled or any(run.ended_ms is None or (run.started_ms or 0) >= since_ms for run in newest):
            return
        cursor = (await self.runs.cursors()).get(parent.id)
        if cursor and not cursor.paused:
            new = NewRun(job=parent.id, state=RunState.WAITING, trigger=trigger)
            await self.runs.record(Change(new=[new]))
            self.runs.ring()


def find_parents(live: LiveJobs, child: LiveJob) -> Iterator[LiveJob]:
    """Yield the jobs that a job depends on, without those whose runs start it.

    Those have just succeeded, and another run of theirs would start all their followers again.
    """
    before = {f"{JOB}{after.job}" for after in child.spec.after}
    for subject in child.spec.alerts.depends_on:
        parent = live.of_subject(subject)
        if parent is not None and subject not in before:
            yield parent


def shows_nothing_new(parent: LiveJob, since_ms: int) -> bool:
    """Return whether a run of a job is impossible, already waiting, or newer than the other job's first failure."""
    is_off = parent.gone or not parent.spec.enabled or parent.cursor.paused
    has_begun = parent.started_ms or (parent.last.started_ms if parent.last else None) or 0
    return is_off or parent.queue.is_busy or parent.queue.waiting_count > 0 or has_begun >= since_ms


Start = tuple[LiveJob, RunRequest]


class IncidentHooks:
    """Runs the hooks `on_down` and `on_up` of jobs with incidents, a run each.

    A row, written in the transaction that claims the run, records which hooks of an incident have run: after a crash
    each run is on record once, and a run that was cut short begins again.  Nothing that holds notifications back holds
    hooks back.
    """

    def __init__(self, incidents: Incidents, live: LiveJobs, runner: Runner, clock: Clock) -> None:
        self._incidents = incidents
        self._live = live
        self._runner = runner
        self._clock = clock

    def has(self, subject: str) -> bool:
        """Return whether a subject has hooks; True also where its file can't be loaded, since that is unknown then."""
        job = self._live.of_subject(subject)
        return _has_hooks(job) if job else subject.startswith(JOB) and bool(self._live.unloadable)

    async def hand_out(self, subjects: Sequence[str]) -> bool:
        """Start the missing hook runs of these subjects; return whether there were any."""
        found = dict[str, LiveJob]()

        def find_hooked() -> Steps[None]:
            for subject in subjects:
                job = self._live.of_subject(subject)
                if job and job.mine and _has_hooks(job):
                    found[subject] = job
                yield

        await run_in_slices(self._clock, find_hooked())
        incidents = await self._incidents.for_scripts(list(found)) if found else ()
        starts, told = list[Start](), list[ScriptTold]()
        for incident in incidents:
            job = found[incident.subject]
            starts += [
                (job, RunRequest(trigger=trigger_of(hook, incident)))
                for hook, is_missing in (
                    (ON_DOWN, SCRIPTS not in incident.told),
                    (ON_UP, incident.closed_ms is not None),
                )
                if is_missing and hook in functions_in(job.code)
            ]
            told.append(ScriptTold(incident.id, Told.OPEN if incident.closed_ms is None else Told.CLOSED))
        if told:
            await self._runner.start_all(starts, Change(told=told))
        return bool(told)


def _has_hooks(job: LiveJob) -> bool:
    return job.spec.enabled and bool(functions_in(job.code))


@lru_cache(maxsize=64)  # each plan asks again for each job with an incident
def functions_in(code: Code) -> frozenset[str]:
    """Return the hooks that a job's own files mention, outside of comments and strings."""
    sources = [source for _, source in code.files if any(name.encode() in source for name in ALERT_HOOKS)]
    mentioned = {word for source in sources for word, _ in words_of(source)}
    return frozenset(name for name in ALERT_HOOKS if name.encode() in mentioned)


def trigger_of(hook: str, incident: Incident) -> Trigger:
    """Return the trigger of a hook's run: the incident as its script sees it, times in seconds."""
    known = {
        "id": incident.id,
        "job": incident.subject.removeprefix(JOB),
        "subject": incident.subject,
        "reason": incident.reason,
        "text": incident.text,
        "level": incident.level.value,
        "since": incident.since_ms / 1000,
        "opened": incident.opened_ms / 1000,
        "closed": None if incident.closed_ms is None else incident.closed_ms / 1000,
        "failures": incident.failures or None,
        "run": incident.run,
    }
    shown = {name: value for name, value in known.items() if value is not None}
    return Trigger(type=TriggerType.ALERT, hook=hook, incident=shown)
