"""Tell the files of jobs of their incidents: `on_down` and `on_up`, a run each.

What a file knows of an incident is a row, written in the transaction that claims the run: nothing that holds a message
to people back holds this one, and after a crash each run is on record once.  A run that a crash has cut short begins
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.incidents.telling import SCRIPTS, Told
from spyweb.incidents.truth import JOB
from spyweb.lua.hooks import ALERT_HOOKS, ON_DOWN, ON_UP
from spyweb.lua.session import Code
from spyweb.model import Trigger, TriggerType
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.runner import Runner, RunRequest
from spyweb.specs.linting.lua_file import words_of
from spyweb.store.model.incidents import Incident, ScriptTold
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.incidents import Incidents

Start = tuple[LiveJob, RunRequest]


class IncidentHooks:
    """Starts the runs that tell the files of live jobs of incidents."""

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
