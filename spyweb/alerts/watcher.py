"""Turn the ends of runs and other signs into incidents, and plan the notifications of their channels.

A run's end is judged before it is recorded, so that its effect on incidents is committed with it.  A healthy job has no
row, so its successes cost one lookup among the subjects with a row.  Each change of an incident wakes the planner,
which writes the missing messages; planning again writes none twice.

In a cluster each node notes what happens to its own jobs, its own parts, and the channels that it sends to.  The chief
alone plans, and ends the incidents of nodes that have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import structlog
from msgspec.structs import replace

from spyweb.alerts.channels import ADDRESS, TEMPLATE, ChannelHealth, channel_now
from spyweb.alerts.delivery import Attempt
from spyweb.alerts.measures import IncidentHooks, JobMeasures
from spyweb.clock import Clock, Handle
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import STORE_REFUSED
from spyweb.incidents.policy import AlertPolicy, Level, QuietHours, quiet_until
from spyweb.incidents.truth import (
    CHANNEL,
    DAEMON,
    DRIFT,
    EMPTY,
    JOB,
    STORAGE,
    Edited,
    Event,
    Failed,
    Removed,
    SignGone,
    SignSeen,
    Succeeded,
    TimePassed,
    signs_ended_by,
    signs_seen_in,
)
from spyweb.logs.output import tell_refusal
from spyweb.model import Failure, JobId, Outcome, Run, RunId
from spyweb.outbox.sender import slot_of_target
from spyweb.ownership import LABEL_POOL, NODE_POOL
from spyweb.runs.followups import tries
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import NOTHING_YET, is_finding, shortfall_in
from spyweb.settings.alerts import AlertSettings
from spyweb.specs.maintenance import MaintenanceCalendar
from spyweb.store.model.incidents import AlertChannelNow, SubjectChange, SubjectEvent, SubjectNow
from spyweb.store.model.messages import Channel, Target
from spyweb.store.model.runs import End
from spyweb.store.sqlite.incidents import Incidents
from spyweb.words import counted

log = structlog.get_logger()

SUCCESS = Succeeded()
OF_POOLS = (f"{DAEMON}{NODE_POOL}", f"{DAEMON}{LABEL_POOL}")  # what subjects that are pools of slots begin with
LONGEST_TEXT = 500  # characters of what is wrong
NOTED_TOGETHER = 200  # signs: more in one commit would block the store
LEAST_S = 1.0  # between two plans
LONGEST_S = 60.0  # then the local time is read again: it may have been set
PATIENCE_S = 5.0  # after the store refused


def subject_of(job: JobId) -> str:
    return f"{JOB}{job}"


@dataclass(kw_only=True, eq=False)
class AlertWatcher:
    """Judges the ends of runs, and plans notifications."""

    incidents: Incidents
    live: LiveJobs
    settings: Callable[[], AlertSettings]
    maintenance: Callable[[], MaintenanceCalendar] = MaintenanceCalendar
    measures: JobMeasures
    clock: Clock
    without_file: Callable[[JobId], AlertPolicy] | None = None  # in a daemon: of jobs whose files are unreadable
    hooks: IncidentHooks | None = None  # in a daemon: runs the hooks of jobs

    def __post_init__(self) -> None:
        self._known: dict[str, int] = {}  # subjects that have a row, or will have: their pending events
        self._wakes: dict[str, int] = {}  # when to check a subject again, if nothing happens before
        self._checked_ms = 0  # when these times were last checked
        self._digests: dict[str, str] = {}  # of the failed code, to notice an edit
        self.health = ChannelHealth()
        self._seen: list[SubjectEvent] = []  # signs other than a run's end, until they are recorded
        self._ignored: dict[tuple[str, str], SignSeen] = {}  # signs seen in maintenance, by subject and sign
        self._changed = asyncio.Event()
        self._is_linked = False  # specs have changed since the last plan
        self.planning = asyncio.Lock()  # while it is held, the chief may not give its slot
        self._nodes: frozenset[str] | None = None  # that lived when the chief last ended those of others
        self._alarm: Handle | None = None
        self.incidents.on_committed(self._take)
        self.live.on_linked(self._link)

    async def load(self) -> None:
        """Read which subjects have problems, before any run ends; again where jobs come from another node."""
        known = await self.incidents.known()
        on_their_way = {subject: count for subject, count in self._known.items() if count}
        self._known = {**dict.fromkeys(known, 0), **on_their_way}
        noted = [*known, *(event.subject for event in self._seen)]
        self.health.know([each.removeprefix(CHANNEL) for each in noted if each.startswith(CHANNEL)])
        self._wakes = {subject: wake_ms for subject, wake_ms in known.items() if wake_ms is not None}
        self._checked_ms = max(self._wakes.values(), default=0)  # as if the clock had been set back: it may have been
        self.measures.load(await self.incidents.pausing())

    def attempted(self, channel: str, attempt: Attempt, added_ms: int | None) -> None:
        """Record the result of a delivery attempt; the other channels are notified of a channel that is down."""
        is_taken = attempt.failure is None
        if self.is_mine(f"{CHANNEL}{channel}") and (is_taken or added_ms is not None):
            now_ms = self.clock.now_ms()
            reason = attempt.failure.reason if attempt.failure else None
            self._see(channel, self.health.judge(channel, reason, now_ms - (added_ms or now_ms)))
        for sign, problem in ((ADDRESS, attempt.address_problem), (TEMPLATE, attempt.template_problem)):
            if problem or is_taken:
                self.found_in_channel(channel, sign, problem)

    def found_in_channel(self, channel: str, sign: str, problem: str) -> None:
        """Record a problem of a channel, if this node sends to it; an empty text ends it."""
        if self.is_mine(f"{CHANNEL}{channel}"):
            self._see(channel, self.health.note(channel, sign, problem))

    def _see(self, channel: str, event: SignSeen | SignGone | None) -> None:
        if event is not None:
            self._seen.append(self._event(f"{CHANNEL}{channel}", event))
            self._changed.set()

    def saw(self, subject: str, event: SignSeen | SignGone) -> bool:
        """Record soon that a sign began or ended; its caller can check at any time whether the sign is there.

        Returns False for a sign that begins in maintenance: its caller reports it again if it outlasts that.
        """
        if isinstance(event, SignSeen) and self._maintenance_of(subject, self.clock.now_ms()) is not None:
            return False
        self._seen.append(self._event(subject, event))
        self._changed.set()
        return True

    def wake(self) -> None:
        """Plan notifications soon."""
        self._changed.set()

    def judge(self, job: LiveJob, run: Run, end: End) -> SubjectEvent | None:
        """Return the event that the end of a run, which is not retried, means for the incidents of its job."""
        subject = subject_of(job.id)
        is_known = subject in self._known
        if end.outcome is Outcome.SUCCESS and not (is_known or self._ignored or end.note or end.storage_errors):
            return None
        event = event_of(run, end)
        if event is None:
            return None
        if not is_known and event == SUCCESS:
            self._remember(subject, event, in_maintenance=False)
            return None
        self._known[subject] = self._known.get(subject, 0) + 1
        self._digests.setdefault(subject, job.digest)
        return self._dated(subject, event, job.spec.alerts, end.ended_ms, run.id)

    async def keep_up(self) -> None:
        """Plan after each change and at each due time, until cancelled."""
        self._is_linked = True
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.clock.sleep(await self._plan_safely())

    async def _plan_safely(self) -> float:
        """Plan, and return the seconds before the next plan."""
        try:
            await self._note_what_is_due()
            await self._plan()
            while paused := await self.measures.pause():
                await self._note([self._event(subject, event) for subject, event in paused])
                self.measures.noted(subject for subject, _ in paused)
            await self.measures.run_parents()
        except STORE_REFUSED as error:
            tell_refusal("notifications of incidents could not be planned", error, again_in_s=PATIENCE_S)
        except Exception:  # an internal error must not end the planning
            log.exception("internal error while planning notifications of incidents")
        else:
            return LEAST_S
        self._changed.set()
        return PATIENCE_S

    async def _note_what_is_due(self) -> None:
        is_linked, self._is_linked = self._is_linked, False
        ignored = dict(self._ignored)
        gone = self.health.forget(self.settings().channels)
        self._seen += [self._event(f"{CHANNEL}{channel}", Removed()) for channel in gone]
        now_ms = self.clock.now_ms()
        was_set_back, self._checked_ms = now_ms < self._checked_ms, now_ms
        late = [subject for subject, wake_ms in self._my_wakes().items() if wake_ms <= now_ms or was_set_back]
        overdue = [self._event(subject, TimePassed()) for subject in late]
        try:
            await self._note([*overdue, *self._after_maintenance(), *(self._after_a_reload() if is_linked else ())])
        except STORE_REFUSED:
            self._is_linked |= is_linked
            self._ignored = {**ignored, **self._ignored}
            raise
        while some := self._seen[:NOTED_TOGETHER]:
            await self._note(some)
            del self._seen[: len(some)]

    async def _note(self, events: Sequence[SubjectEvent]) -> None:
        if not events:
            return
        for each in events:
            self._known[each.subject] = self._known.get(each.subject, 0) + 1
        await self.incidents.note(events)

    def _after_maintenance(self) -> Iterator[SubjectEvent]:
        """Yield the signs that were seen in maintenance and have outlasted it."""
        for (subject, sign), seen in list(self._ignored.items()):
            if self._maintenance_of(subject, self.clock.now_ms()) is not None:
                continue
            job = self.live.of_subject(subject)
            if subject.startswith(JOB) and not (job and job.mine and job.spec.enabled):
                del self._ignored[subject, sign]
            else:
                yield self._event(subject, seen)

    def _after_a_reload(self) -> Iterator[SubjectEvent]:
        """Yield the events that changes of files mean for jobs with problems."""
        for subject in [each for each in self._known if each.startswith(JOB) and self.is_mine(each)]:
            job = self.live.of_subject(subject)
            if job is None and self.live.unloadable:
                continue  # an unreadable file may be this job's
            if job is None or not job.spec.enabled:
                yield self._event(subject, Removed())
            elif self._digests.setdefault(subject, job.digest) != job.digest:
                self._digests[subject] = job.digest
                yield self._event(subject, Edited())

    def _event(self, subject: str, event: Event) -> SubjectEvent:
        policy = self._policy(subject)
        if isinstance(event, SignSeen) and event.sign == TEMPLATE:  # its messages still arrive
            policy = replace(policy, level=Level.INFO)
        return self._dated(subject, event, policy, self.clock.now_ms())

    def _dated(
        self, subject: str, event: Event, policy: AlertPolicy, at_ms: int, run: RunId | None = None
    ) -> SubjectEvent:
        """Return an event with the policy that decides about it, and remember a sign that does not count yet."""
        in_maintenance = self._maintenance_of(subject, at_ms) is not None
        self._remember(subject, event, in_maintenance=in_maintenance)
        return SubjectEvent(
            subject=subject, event=event, policy=policy, at_ms=at_ms, in_maintenance=in_maintenance, run=run
        )

    def _remember(self, subject: str, event: Event, *, in_maintenance: bool) -> None:
        if self._ignored:
            gone = signs_ended_by(event)
            for each in [key for key in self._ignored if key[0] == subject and (gone is None or key[1] in gone)]:
                del self._ignored[each]
        for seen in signs_seen_in(event):
            if in_maintenance:
                self._ignored[subject, seen.sign] = seen
                self._changed.set()  # plan again at the end of the maintenance
            else:
                self._ignored.pop((subject, seen.sign), None)

    def _maintenance_of(self, subject: str, at_ms: int) -> int | None:
        """Return the end of the maintenance that covers a subject; rules without `jobs` cover all of spyweb."""
        job = subject.removeprefix(JOB) if subject.startswith(JOB) else None
        return self.maintenance().until(job, at_ms)

    def is_mine(self, subject: str) -> bool:
        """Return whether this node notes what happens to a subject."""
        ownership = self.live.ownership
        if ownership.owned is None:
            return True
        if subject.startswith(JOB):
            return self.live.is_mine(JobId(subject.removeprefix(JOB)))
        if subject.startswith(CHANNEL):
            return ownership.has(slot_of_target(Target(Channel.ALERT, subject.removeprefix(CHANNEL))))
        return subject.startswith(f"{DAEMON}{ownership.node}/")

    def _my_wakes(self) -> Mapping[str, int]:
        return {subject: wake_ms for subject, wake_ms in self._wakes.items() if self.is_mine(subject)}

    async def _end_those_of_gone_nodes(self) -> None:
        """End the incidents of the parts of nodes that are not there any more."""
        ownership, nodes = self.live.ownership, self.live.ownership.nodes
        if ownership.node in nodes and nodes != self._nodes:
            known = [each for each in await self.incidents.known() if each.startswith(DAEMON)]
            parts = [each for each in known if not each.startswith(OF_POOLS)]  # a pool has no node
            gone = [each for each in parts if each.removeprefix(DAEMON).partition("/")[0] not in nodes]
            await self._note([self._event(subject, Removed()) for subject in gone])
            self._nodes = nodes

    def _policy(self, subject: str) -> AlertPolicy:
        if subject.startswith(CHANNEL):  # a channel can't be notified that it is down
            policy = self.settings().policy
            return replace(policy, to=tuple(each for each in policy.to if each != subject.removeprefix(CHANNEL)))
        if job := self.live.of_subject(subject):
            return job.spec.alerts
        if subject.startswith(JOB) and self.without_file:
            return self.without_file(JobId(subject.removeprefix(JOB)))
        return self.settings().policy

    def subjects_now(self, names: Iterable[str]) -> Steps[dict[str, SubjectNow]]:
        """Return the current policy, maintenance and quiet hours of subjects."""
        quiet_end, found = self._quiet_ends(), {}
        for name in names:
            policy = self._policy(name)
            found[name] = SubjectNow(
                policy=policy,
                maintenance_until_ms=self._maintenance_of(name, self.clock.now_ms()),
                quiet_until_ms=policy.quiet and quiet_end(policy.quiet),
                has_hooks=self.hooks is not None and self.hooks.has(name),
            )
            yield
        return found

    def channels_now(self) -> list[AlertChannelNow]:
        """Return the channels of the settings, with their current quiet hours."""
        quiet_end = self._quiet_ends()
        return [channel_now(each, each.quiet and quiet_end(each.quiet)) for each in self.settings().channels.values()]

    def _quiet_ends(self) -> Callable[[QuietHours], int | None]:
        """Return a function that finds the end of quiet hours, which is slow, once for each kind of hours."""
        return cache(partial(quiet_until, now_ms=self.clock.now_ms()))

    async def _plan(self) -> None:
        """Write the missing messages."""
        names = await self.incidents.unsettled()
        if self.hooks and await self.hooks.hand_out(names):
            self._changed.set()  # there may be more hooks to run, or the incident may be settled now
        plan_ms = await self._plan_messages(names) if self.live.ownership.is_chief else None
        wakes = [*self._my_wakes().values(), *([] if plan_ms is None else [plan_ms])]
        now_ms = self.clock.now_ms()
        wakes += [self._maintenance_of(subject, now_ms) or now_ms for subject, _ in self._ignored]
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if wakes:
            wait_s = min(max(min(wakes) - now_ms, 0) / 1000, LONGEST_S)
            self._alarm = self.clock.call_later(wait_s, self._changed.set)

    async def _plan_messages(self, names: Sequence[str]) -> int | None:
        """Write the missing messages, and return when to plan again."""
        async with self.planning:
            await self._end_those_of_gone_nodes()
            subjects = await run_in_slices(self.clock, self.subjects_now(names))
            planned = await self.incidents.plan(self.channels_now(), subjects)
        if planned.unknown:  # an incident has opened meanwhile
            self._changed.set()
        return planned.wake_ms

    def _take(self, changes: Sequence[SubjectChange]) -> None:
        """Take committed changes."""
        for change in changes:
            on_their_way = max(self._known.get(change.subject, 0) - 1, 0)
            self._wakes.pop(change.subject, None)
            if self.measures.take(change):
                self._changed.set()
            if change.wake_ms is not None:
                self._wakes[change.subject] = change.wake_ms
            if change.is_known or on_their_way:
                self._known[change.subject] = on_their_way
            else:
                self._known.pop(change.subject, None)
                self._digests.pop(change.subject, None)
            if change.opened or change.closed or change.wake_ms is not None:
                self._changed.set()

    def _link(self) -> None:
        self._is_linked = True
        self._changed.set()


def event_of(run: Run, end: End) -> Event | None:
    """Return the event of a run's end; None where it neither counts nor resets anything."""
    if run.trigger.is_aside or end.failure is Failure.CANCELLED:
        return None
    if is_finding(run):
        return SignGone(DRIFT) if end.outcome is Outcome.SUCCESS else SignSeen(DRIFT, end.reason[:LONGEST_TEXT])
    if end.outcome is Outcome.SUCCESS:
        return Succeeded(shown_by(end))
    if end.outcome in (Outcome.FAILED, Outcome.LOST):
        return Failed((end.reason or end.outcome.value)[:LONGEST_TEXT], shown_by(end))
    if end.outcome is Outcome.SKIPPED and tries(run) > 1:  # the failure that it was to retry stands
        return Failed(f"attempt {run.attempt - 1} failed, the next was skipped: {end.reason}"[:LONGEST_TEXT])
    return None


def shown_by(end: End) -> Mapping[str, str]:
    """Return the signs of a run's end beside its outcome."""
    signs = {}
    if (short := shortfall_in(end.note)) and NOTHING_YET not in end.note:
        signs[EMPTY] = short[:LONGEST_TEXT]
    if end.storage_errors:
        signs[STORAGE] = counted(end.storage_errors, "storage error")
    return signs
