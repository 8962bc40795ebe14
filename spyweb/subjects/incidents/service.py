"""Answer clients about incidents: signs, times, notified channels, and why messages are held back.

The planner's own rule (incidents/telling.py) says which channels are notified, so the answer matches what is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from spyweb.alerts.channels import ADDRESS, DOWN, TEMPLATE, ChannelTally, shown
from spyweb.alerts.delivery import Attempt
from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.errors import Absent, Refused
from spyweb.events.happenings import IncidentHappened, incident_acked, incident_changed
from spyweb.incidents.policy import quiet_until
from spyweb.incidents.telling import ChannelState, Hold, HoldReason, KnownIncident, hold_of
from spyweb.incidents.truth import CHANNEL, JOB
from spyweb.model import JobId
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings, show_quiet
from spyweb.store.model.incidents import AlertChannelNow, Incident, OpenIncident, Silence, SubjectChange, SubjectNow
from spyweb.store.model.messages import Channel, TargetBacklog
from spyweb.store.sqlite.incidents import Incidents
from spyweb.store.sqlite.store import Store
from spyweb.subjects.incidents.views import (
    WAITS_FOR,
    ChannelTried,
    ChannelView,
    IncidentChannel,
    IncidentView,
    view_incident,
)
from spyweb.views.runs import copied

if TYPE_CHECKING:
    from spyweb.alerts.watcher import AlertWatcher  # a command without a daemon does without it


LONGEST_NOTE = 1_000
MOST_OPEN = 10_000  # the newest; each job has one at most


def in_words(hold: Hold, failing: Sequence[str], zone: ZoneInfo, now_ms: int) -> str:
    """Return what holds messages back, and until when, in words."""
    if hold.reason is HoldReason.ANOTHER:
        return f"{WAITS_FOR} {' and '.join(each.replace(JOB, 'job ', 1) for each in failing)}"
    word = "silenced" if hold.reason is HoldReason.SILENCE else hold.reason.value
    if hold.until_ms is None:
        return word
    at, now = (datetime.fromtimestamp(each / 1000, zone) for each in (hold.until_ms, now_ms))
    return f"{word} until {at:%H:%M}" if at - now < timedelta(days=1) else f"{word} until {at:%Y-%m-%d %H:%M}"


@dataclass(slots=True)
class IncidentService:
    """Answers for the incidents of a store; without a watcher no daemon runs, and nobody is notified."""

    incidents: Incidents
    clock: Clock
    watcher: AlertWatcher | None = None
    timezone: str = "UTC"
    listener: Callable[[IncidentHappened], None] | None = None  # set while clients follow events

    def __post_init__(self) -> None:
        self.incidents.on_committed(self._tell)

    async def list(
        self, *, is_open: bool | None, job: JobId | None, before: int | None, limit: int, since_ms: int | None = None
    ) -> list[IncidentView]:
        """Return the incidents that were open at `since_ms` or later, newest first."""
        subjects, ask = None if job is None else [f"{JOB}{job}"], self.incidents.list
        found = await ask(is_open=is_open, subjects=subjects, since_ms=since_ms, before=before, limit=limit)
        return [*await self._view(found)]

    async def all_open(self) -> Sequence[OpenIncident]:
        """Return the open incidents, newest first, in a line each."""
        return await self.incidents.all_open(MOST_OPEN)

    async def get(self, incident: int) -> IncidentView:
        """Return one incident.  Raises Absent."""
        (view,) = await self._view([await self._find(incident)])
        return view

    async def acknowledge(self, incident: int, by: str, *, undo: bool = False) -> None:
        """Acknowledge an incident, or withdraw that.  Raises Refused where it is closed, or was not acknowledged."""
        if not await self.incidents.acknowledge(incident, by, undo=undo):
            found = await self._find(incident)
            raise Refused(f"incident {incident} is {'not acknowledged' if found.closed_ms is None else 'closed'}")
        if self.watcher:
            self.watcher.wake()
        if self.listener:
            self.listener(incident_acked(await self._find(incident), by, self.clock.now_ms()))

    async def add_note(self, incident: int, text: str, by: str, *, is_public: bool) -> None:
        """Add to the history of an incident what a person has written.  Raises Absent, and Refused for its length."""
        text = text.replace("\r\n", "\n").strip()
        if not 0 < len(text) <= LONGEST_NOTE:
            raise Refused(f"expected a note of at most {LONGEST_NOTE:,} characters")
        text = "".join(each if each == "\n" or each.isprintable() else " " for each in text)
        if not await self.incidents.add_note(incident, text, by, is_public):
            raise Absent(f"there is no incident {incident}")

    async def silence(self, job: JobId, for_ms: int | None, by: str) -> None:
        """Silence a job for so long; None ends its silence."""
        await self.incidents.silence(f"{JOB}{job}", for_ms, by)
        if self.watcher:
            self.watcher.wake()

    def _tell(self, changes: Sequence[SubjectChange]) -> None:
        """Pass incidents that have opened or closed to the listener."""
        if self.listener is None:
            return
        for happened in filter(None, map(incident_changed, changes)):
            self.listener(happened)

    async def silence_of(self, job: JobId) -> Silence | None:
        """Return the silence that a job is in now."""
        found = await self.incidents.silence_of(f"{JOB}{job}")
        return found if found is not None and found.holds(self.clock.now_ms()) else None

    async def _view(self, incidents: Sequence[Incident]) -> Sequence[IncidentView]:
        """Return the views of incidents, with the channels that the settings name for each."""
        watcher = self.watcher
        undelivered = await self.incidents.undelivered([each.id for each in incidents])
        if watcher is None:
            return [view_incident(each, self.clock.now_ms(), [], undelivered.get(each.id, {})) for each in incidents]
        subjects = await run_in_slices(self.clock, watcher.subjects_now({each.subject for each in incidents}))
        parents = {parent for subject in subjects.values() for parent in subject.policy.depends_on}
        failing = await self.incidents.open_among(parents) if parents else {}

        def view_all() -> Steps[Sequence[IncidentView]]:
            channels, views = watcher.channels_now(), []
            for each in incidents:
                notified = self._notified(each, subjects[each.subject], channels, failing)
                views.append(view_incident(each, self.clock.now_ms(), notified, undelivered.get(each.id, {})))
                yield
            return views

        return await run_in_slices(self.clock, view_all())

    def _notified(
        self, incident: Incident, subject: SubjectNow, channels: Iterable[AlertChannelNow], failing: Iterable[str]
    ) -> Sequence[IncidentChannel]:
        """Return the channels that an incident notifies, by the current settings."""
        failing = [parent for parent in subject.policy.depends_on if parent in failing]
        now_ms, silence = self.clock.now_ms(), incident.silence
        known = KnownIncident(
            id=incident.id,
            opened_ms=incident.opened_ms,
            policy=subject.policy,
            level=incident.level,
            maintenance_until_ms=subject.maintenance_until_ms,
            silent_until_ms=silence.until_ms if silence and silence.holds(now_ms) else None,
            is_under_another=bool(failing),
        )
        found = list[IncidentChannel]()
        for channel in channels:
            wait_ms = subject.policy.notifies(channel.name)
            if wait_ms is None or incident.level.rank < channel.level.rank:
                continue
            hold = None
            if incident.closed_ms is None:
                quiet_ms = channel.quiet_until_ms if channel.has_own_quiet else subject.quiet_until_ms
                hold = hold_of(ChannelState(name=channel.name, quiet_until_ms=quiet_ms), known)
            found.append(
                IncidentChannel(
                    name=channel.name,
                    told=incident.told.get(channel.name, ""),
                    from_ms=incident.opened_ms + wait_ms,
                    held=in_words(hold, failing, ZoneInfo(self.timezone), now_ms) if hold else "",
                    held_until_ms=hold.until_ms if hold else None,
                )
            )
        return found

    async def _find(self, incident: int) -> Incident:
        found = await self.incidents.get(incident)
        if found is None:
            raise Absent(f"there is no incident {incident}")
        return found


@dataclass(slots=True, kw_only=True)
class ChannelService:
    """Shows the channels of the settings."""

    send_test: Callable[[str, int], Awaitable[Attempt]]
    store: Store
    settings: Callable[[], AlertSettings]
    tallies: Mapping[str, ChannelTally]
    clock: Clock
    _tests: dict[str, tuple[int, ChannelTried]] = field(default_factory=dict)  # the last of each channel

    async def list(self) -> list[ChannelView]:
        """Return the channels in the order of the settings."""
        settings = self.settings()
        backlogs = await self.store.outbox.backlogs(Channel.ALERT)
        return [await self._view(each, settings, backlogs.get(each.name)) for each in settings.channels.values()]

    async def _view(
        self, channel: AlertChannelSettings, settings: AlertSettings, backlog: TargetBacklog | None
    ) -> ChannelView:
        subject = f"{CHANNEL}{channel.name}"
        wrong = next(iter(await self.store.incidents.list(is_open=True, subjects=[subject], limit=1)), None)
        signs = wrong.signs if wrong else {}
        tally = self.tallies.get(channel.name, ChannelTally())
        address, quiet = shown(channel), channel.quiet if channel.has_own_quiet else settings.policy.quiet
        tested_ms, test = self._tests.get(channel.name, (None, None))
        return copied(
            ChannelView,
            tally,
            name=channel.name,
            kind=address.kind,
            service=address.service,
            host=address.host,
            level=channel.level.value,
            quiet=show_quiet(quiet),
            quiet_until_ms=quiet and quiet_until(quiet, self.clock.now_ms()),
            waiting=backlog.waiting if backlog else 0,
            oldest_ms=backlog and backlog.oldest_ms,
            error=tally.error or (backlog.error if backlog else ""),
            down_since_ms=signs[DOWN].since_ms if DOWN in signs else None,
            incident=wrong.id if wrong else None,
            unusable=signs[ADDRESS].text if ADDRESS in signs else "",
            template_problem=signs[TEMPLATE].text if TEMPLATE in signs else "",
            tested_ms=tested_ms,
            test=test,
        )

    async def try_out(self, channel: str) -> ChannelTried:
        """Send a test notification without the outbox.  Raises Absent where there is no such channel."""
        attempt = await self.send_test(channel, self.clock.now_ms())
        failed = attempt.failure.reason if attempt.failure else ""
        problem = attempt.template_problem
        fallback = problem and f"its template fails, the built-in text was sent: {problem}"
        tried = ChannelTried(channel=channel, is_sent=attempt.failure is None, reason=failed or fallback)
        self._tests[channel] = self.clock.now_ms(), tried
        return tried
