"""Do to jobs what incidents call for: pause them, run those that one depends on, and tell their own files."""

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
from spyweb.model import JobId, Trigger, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.runner import Runner, RunRequest
from spyweb.specs.linting.lua_file import words_of
from spyweb.store.model.incidents import Incident, ScriptTold, SubjectChange
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.incidents import Incidents

PAUSED_TOGETHER = 200  # jobs: more in one commit would hold up the store

log = structlog.get_logger()


@dataclass(eq=False)
class JobMeasures:
    """Knows what is still to be done about jobs, and has it done."""

    live: LiveJobs
    pause_all: Callable[[Mapping[JobId, str], Sequence[LiveJob]], Awaitable[None]]
    start: Callable[[LiveJob, RunRequest], Awaitable[object]]
    # Subjects whose jobs are to be paused: their failures in a row, and when the last was; None: before we began.
    _pausing: dict[str, tuple[int, int | None]] = field(init=False, default_factory=dict)
    _opened: list[SubjectChange] = field(init=False, default_factory=list)  # whose jobs may depend on others

    def load(self, pausing: Mapping[str, int]) -> None:
        """Take over what an earlier daemon knew, and had no time to do."""
        self._pausing.update({subject: (failures, None) for subject, failures in pausing.items()})

    def take(self, change: SubjectChange) -> bool:
        """Note what is committed; return whether something is to be done."""
        self._pausing.pop(change.subject, None)
        if not change.subject.startswith(JOB):
            return False
        if change.opened:
            self._opened.append(change)
        if change.pauses:
            self._pausing[change.subject] = change.pauses, change.at_ms
        return change.opened or change.pauses > 0

    async def pause(self) -> list[tuple[str, Paused]]:
        """Pause jobs that have failed too often, so many at a time; return what is then to be noted.

        One that was resumed after its last failure goes on: whoever resumed it knew of that.
        """
        found = [
            (job, f"{failures} failures in a row", failed_ms)
            for subject, (failures, failed_ms) in self._pausing.items()
            if (job := self.live.of_subject(subject)) and not (job.gone or job.is_new)
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
            except Refused:  # one has gone meanwhile: what comes of that wakes us again
                return []
            for job in running:
                log.warning("job paused", job=job.id, why=whys[job.id])
        return [(f"{JOB}{job.id}", Paused(why if job.cursor.paused_for == why else "")) for job, why, _ in found]

    def noted(self, subjects: Iterable[str]) -> None:
        """Note that it is on record of these that their jobs are paused."""
        for subject in subjects:
            self._pausing.pop(subject, None)

    async def run_parents(self) -> None:
        """Run the jobs at once that those depend on of which an incident has opened: theirs may be the cause.

        Once for each incident, and not where that tells nothing new: see `tells_nothing`.
        """
        opened, self._opened = self._opened, []
        for change in opened:
            job = change.subject.removeprefix(JOB)
            trigger = Trigger(type=TriggerType.DEPENDS, job=job, incident_id=change.incident)
            child = self.live.of_subject(change.subject)
            for parent in find_parents(self.live, child) if child else ():
                if tells_nothing(parent, first_sign(change.signs)[1].since_ms):
                    continue
                try:
                    await self.start(parent, RunRequest(trigger=trigger))
                except Refused:  # it has begun meanwhile, or the daemon stops
                    continue
                except STORE_REFUSED as error:
                    tell_refusal("a job that others depend on could not be run", error, job=parent.id)


def find_parents(live: LiveJobs, child: LiveJob) -> Iterator[LiveJob]:
    """Yield the jobs that a job says it depends on, without those that it comes after.

    They have succeeded right before it ran; and once more would be once more of all that comes after them.
    """
    before = {f"{JOB}{after.job}" for after in child.spec.after}
    for subject in child.spec.alerts.depends_on:
        parent = live.of_subject(subject)
        if parent is not None and subject not in before:
            yield parent


def tells_nothing(parent: LiveJob, since_ms: int) -> bool:
    """Tell whether a job may not be run, is about to, or has been since another began to fail."""
    is_off = parent.gone or not parent.mine or not parent.spec.enabled or parent.cursor.paused
    has_begun = parent.started_ms or (parent.last.started_ms if parent.last else None) or 0
    return is_off or parent.queue.is_busy or parent.queue.waiting_count > 0 or has_begun >= since_ms


Start = tuple[LiveJob, RunRequest]


class IncidentHooks:
    """Tells the files of jobs of their incidents: `on_down` and `on_up`, a run each.

    What a file knows of an incident is a row, written in the transaction that claims the run: nothing that holds a
    message to people back holds this one, and after a crash each run is on record once.  A run that a crash has cut
    short begins again.
    """

    def __init__(self, incidents: Incidents, live: LiveJobs, runner: Runner, clock: Clock) -> None:
        self._incidents = incidents
        self._live = live
        self._runner = runner
        self._clock = clock

    def has(self, subject: str) -> bool:
        """Return whether the file of a subject is told; also where it can't be loaded, and so nobody knows."""
        job = self._live.of_subject(subject)
        return _is_told(job) if job else subject.startswith(JOB) and bool(self._live.unloadable)

    async def hand_out(self, subjects: Sequence[str]) -> bool:
        """Start what is missing for these subjects; return whether there was anything."""
        found = dict[str, LiveJob]()

        def find_told() -> Steps[None]:
            for subject in subjects:
                job = self._live.of_subject(subject)
                if job and _is_told(job):
                    found[subject] = job
                yield

        await run_in_slices(self._clock, find_told())
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


def _is_told(job: LiveJob) -> bool:
    return job.spec.enabled and bool(functions_in(job.code))


@lru_cache(maxsize=64)  # a plan asks again of each job with an incident
def functions_in(code: Code) -> frozenset[str]:
    """Return those of the two functions that a job's own files mention, outside of comments and texts."""
    sources = [source for _, source in code.files if any(name.encode() in source for name in ALERT_HOOKS)]
    mentioned = {word for source in sources for word, _ in words_of(source)}
    return frozenset(name for name in ALERT_HOOKS if name.encode() in mentioned)


def trigger_of(hook: str, incident: Incident) -> Trigger:
    """Return the trigger of a run that tells a function of an incident: as its script sees it, times in seconds."""
    told = {
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
    shown = {name: value for name, value in told.items() if value is not None}
    return Trigger(type=TriggerType.ALERT, hook=hook, incident=shown)
