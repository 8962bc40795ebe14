"""The page of live events, one event a line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from spyweb.events.happenings import (
    EventType,
    Happening,
    HealthHappened,
    IncidentHappened,
    JobHappened,
    OutboxHappened,
    RunHappened,
    StateHappened,
)
from spyweb.events.hub import EventHub, Wish
from spyweb.model import ChangeKind, JobId, Outcome
from spyweb.runs.live import JobChange
from spyweb.store.model.access import NewAuditLine
from spyweb.subjects.runs.words import mark_of_outcome
from spyweb.views.runs import new_and_changed
from spyweb.web.access.principal import Right
from spyweb.web.api.query import ListQuery
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown
from spyweb.web.pages.words import show_count, show_counted, show_duration

LONGEST_KEY = 80  # characters

TYPE_WORDS: Mapping[EventType, str] = {
    EventType.RUN: "Runs",
    EventType.JOB: "Jobs",
    EventType.STATE: "State",
    EventType.OUTBOX: "Outbox",
    EventType.HEALTH: "Health",
    EventType.INCIDENT: "Incidents",
    EventType.AUDIT: "Actions",
}
JOB_WORDS: Mapping[JobChange, tuple[str, str]] = {
    JobChange.LOADED: ("ok", "loaded"),
    JobChange.RELOADED: ("ok", "new version"),
    JobChange.SETTINGS: ("ok", "new settings"),
    JobChange.PAUSED: ("off", "paused"),
    JobChange.RESUMED: ("ok", "resumed"),
    JobChange.REMOVED: ("none", "removed"),
    JobChange.BROKEN: ("bad", "saved with an error"),
    JobChange.MENDED: ("ok", "loads again"),
}
STATE_WORDS: Mapping[ChangeKind, str] = {ChangeKind.DELETED: "deleted", ChangeKind.EXPIRED: "expired"}


class EventLine(Struct, frozen=True, kw_only=True):
    """An event in words."""

    mark: str
    words: str
    more: str = ""  # a reason or an error, quoted
    run: int | None = None
    key: str = ""  # of a stored value


def describe(happening: Happening) -> EventLine:
    """Describe an event, without its job and moment, which stand beside it."""
    match happening:
        case RunHappened():
            return _run(happening)
        case JobHappened():
            mark, words = JOB_WORDS[happening.what]
            return EventLine(mark=mark, words=words, more=happening.error)
        case StateHappened():
            words = STATE_WORDS.get(happening.what, "written")
            key = happening.key if isinstance(happening.key, str) else str(happening.key)
            return EventLine(mark="none", words=words, key=key[:LONGEST_KEY], more=happening.namespace)
        case HealthHappened():
            began = happening.what == "began"
            mark = ("bad" if happening.kind == "problem" else "warn") if began else "ok"
            return EventLine(mark=mark, words="began" if began else "ended", more=happening.text)
        case OutboxHappened():
            mark = {"sent": "ok", "put off": "warn", "given up": "bad"}.get(happening.what, "none")
            return EventLine(mark=mark, words=f"message {happening.message} {happening.what}", more=happening.reason)
        case IncidentHappened():
            return _incident(happening)
        case NewAuditLine():
            times = f" {happening.times} times" if happening.times > 1 else ""
            mark = "none" if happening.status < 400 else "warn"
            return EventLine(mark=mark, words=f"{happening.who}: {happening.action}{times}", more=happening.target)
        case _:  # a task, or a line of a log
            raise AssertionError("the page lists no such event")


def _incident(happening: IncidentHappened) -> EventLine:
    named = f"incident {happening.incident}" + ("" if happening.job else f" of {happening.subject}")
    match happening.what:
        case "opened":
            mark = "bad" if happening.level != "info" else "warn"
            return EventLine(mark=mark, words=f"{named} began: {happening.reason}", more=happening.text)
        case "closed":
            return EventLine(mark="ok", words=f"{named} ended")
        case "unacked":
            return EventLine(mark="warn", words=f"{named}: acknowledgement withdrawn by {happening.by}")
        case _:
            return EventLine(mark="none", words=f"{named} was acknowledged by {happening.by}")


def _run(run: RunHappened) -> EventLine:
    number = show_count(run.run)
    match run.what:
        case "began":
            late = f", {show_duration(run.late_ms)} late" if run.late_ms and run.late_ms > 1000 else ""
            return EventLine(mark="run", words=f"run {number} began{late}", run=run.run)
        case "waits":
            return EventLine(mark="wait", words=f"run {number} waits", run=run.run)
        case "skipped":
            word = run.outcome.value if run.outcome else "skipped"
            return EventLine(
                mark=mark_of_outcome(run.outcome),
                words=f"{show_counted(run.count, 'due time')} {word}",
                more=run.reason,
            )
        case _:
            took = f" after {show_duration(run.took_ms)}" if run.took_ms is not None else ""
            found = "".join(f", {count}" for count in new_and_changed(run.items_new, run.items_changed))
            ending = "ended" if run.outcome is None else run.outcome.value
            if run.outcome is Outcome.SUCCESS:
                ending = "succeeded"
            return EventLine(
                mark=mark_of_outcome(run.outcome),
                words=f"run {number} {ending}{took}{found}",
                more=run.reason,
                run=run.run,
            )


EVENTS = 50
PROPOSED = 200  # jobs in the field for one
SHOWN_TYPES = frozenset(TYPE_WORDS)  # neither tasks nor lines of logs: the pages of runs and jobs show them
OF_ADMIN = frozenset({EventType.AUDIT})


class EventsPageQuery(ListQuery, frozen=True):
    """The filter of the page."""

    type: str = ""

    @property
    def types(self) -> frozenset[EventType]:
        return frozenset({EventType(self.type)}) & SHOWN_TYPES if self.type in set(EventType) else SHOWN_TYPES


def types_for(asked: Asked) -> frozenset[EventType]:
    """Return the types of events that the viewer may see: actions of others are for admins."""
    principal = asked.principal
    return SHOWN_TYPES if Right.ADMIN in principal.rights and not principal.jobs else SHOWN_TYPES - OF_ADMIN


def parts_of(asked: Asked) -> Mapping[str, PagePart]:
    query = asked.query(EventsPageQuery)
    asked.job_of_list(query.job)
    of_job = f"job:{query.job or '*'}"
    subjects = {EventType.RUN: of_job, EventType.JOB: of_job, EventType.STATE: "state:*"}
    wanted = {subjects.get(kind, kind.value) for kind in query.types & types_for(asked)}
    return {"event-list": PagePart("event_list.html", tuple(sorted(wanted)))}


@DashboardPage("events", "events.html", place="events", of_job=True, parts=parts_of)
async def show_events(asked: Asked) -> Shown:
    """Show events, from the moment on at which the page was first opened."""
    query, may = asked.query(EventsPageQuery), types_for(asked)
    may_see = asked.principal.may_see if asked.principal.jobs else None
    wish = Wish(types=query.types & may, job=JobId(query.job) if query.job else None, may_see=may_see)
    found = asked.services[EventHub].newest(wish, limit=EVENTS + 1, before=query.before or None)
    events = found[:EVENTS]
    values = {
        "events": [(event, describe(event.happening)) for event in events],
        "name_of": asked.name_of,
        "query": query,
        **asked.places(query, events[-1].number if len(found) > EVENTS else 0),
        "chips": asked.chips(
            query, "type", [("", "All"), *((kind.value, words) for kind, words in TYPE_WORDS.items() if kind in may)]
        ),
        "jobs": sorted(islice(filter(asked.principal.may_see, asked.services.catalogue.names()), PROPOSED)),
    }
    return Shown(title="Events", values=values, is_live=not query.before)
