"""Events of the daemon, in JSON and as frames of a stream.

An event has a type and, mostly, a job; it never has the values that a script has stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from spyweb.model import ChangeKind, Failure, JobId, Outcome, Run, RunId, TaskStatus
from spyweb.runs.live import JobChange
from spyweb.store.interchange.value_json import to_plain
from spyweb.store.model.access import NewAuditLine
from spyweb.store.model.entries import ChangeEvent
from spyweb.store.model.incidents import Incident, SubjectChange, job_of
from spyweb.store.model.runs import SkippedRange
from spyweb.views.runs import copied, duration_ms

LONGEST_REASON = 300  # characters of a run's reason: the run itself has all of it
LONGEST_LINE = 16_384  # characters of a log line: hooks.log has all of it
LONGEST_KEY = 1_024  # characters of a key that is text


class EventType(StrEnum):
    RUN = "run"
    JOB = "job"
    STATE = "state"
    HEALTH = "health"
    OUTBOX = "outbox"
    AUDIT = "audit"
    INCIDENT = "incident"
    TASK = "task"
    LOG = "log"  # of one job, which the client names


class RunHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run waits, began or ended; or due times were skipped, without a run."""

    what: Literal["waits", "began", "ended", "skipped"]
    job: JobId
    run: RunId | None = None
    trigger: str = ""
    attempt: int = 1
    due_ms: int | None = None
    late_ms: int | None = None  # how long after its due time, and its jitter, it began
    started_ms: int | None = None
    ended_ms: int | None = None
    took_ms: int | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    reason: str = ""  # its beginning
    items_new: int | None = None
    items_changed: int | None = None
    count: int = 1  # how many due times were skipped
    last_due_ms: int | None = None


class JobHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job was loaded, changed or removed."""

    what: JobChange
    job: JobId
    generation: int = 0
    error: str = ""


class StateHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored value was written, deleted, or has expired."""

    what: ChangeKind
    namespace: str
    key: object  # as in the state API
    version: int
    at_ms: int
    job: JobId | None = None  # whose run has changed it
    run: RunId | None = None


class HealthHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem, or a warning, of the daemon has begun or ended."""

    what: Literal["began", "ended"]
    kind: Literal["problem", "warning"]
    text: str


class OutboxHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message has arrived, was put off after an attempt that failed, or was given up."""

    what: Literal["sent", "put off", "given up"]
    message: int
    job: JobId
    reason: str = ""


class IncidentHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An incident was opened, closed or acknowledged, or its acknowledgement was withdrawn."""

    what: Literal["opened", "closed", "acked", "unacked"]
    incident: int
    subject: str  # "job:ID", "channel:NAME", "daemon:PART", in a cluster "daemon:NODE/PART"
    at_ms: int
    job: JobId | None = None
    level: str = ""  # of an incident that has begun
    reason: str = ""  # the sign that it began with
    text: str = ""  # the beginning of the cause
    by: str = ""  # the person who has acknowledged it


class TaskHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks of a run have ended, and this one is the newest; at most one such event a run in half a second."""

    job: JobId
    run: RunId
    task: str
    workflow: str = ""
    status: TaskStatus


class LogHappened(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that a job's script has logged."""

    job: JobId
    level: str
    text: str
    at_ms: int
    run: RunId | None = None  # unknown of lines that were read from the file


# In the order of their types.
Happening = (
    RunHappened
    | JobHappened
    | StateHappened
    | HealthHappened
    | OutboxHappened
    | NewAuditLine
    | IncidentHappened
    | TaskHappened
    | LogHappened
)
KINDS: dict[EventType, type[Happening]] = dict(zip(EventType, get_args(Happening), strict=True))

_encode = msgspec.json.Encoder().encode


def frame_of(kind: EventType, mark: str, happening: Happening) -> bytes:
    """Return the event as it is sent; JSON has no line breaks."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.value.encode(), mark.encode(), _encode(happening))


def run_happened(what: Literal["waits", "began", "ended"], run: Run, late_ms: int | None = None) -> RunHappened:
    """Describe a run as it is on record."""
    words = {"trigger": run.trigger.type, "reason": run.reason[:LONGEST_REASON]}
    return copied(RunHappened, run, what=what, run=run.id, late_ms=late_ms, took_ms=duration_ms(run), **words)


def were_skipped(skipped: SkippedRange) -> RunHappened:
    times = {"due_ms": skipped.first_due_ms, "ended_ms": skipped.at_ms}
    reason = skipped.reason[:LONGEST_REASON]
    return copied(RunHappened, skipped, what="skipped", trigger=skipped.trigger.value, reason=reason, **times)


def state_changed(event: ChangeEvent) -> StateHappened:
    key = to_plain(event.key)
    key = key[:LONGEST_KEY] if isinstance(key, str) else key
    return copied(StateHappened, event, what=event.kind, key=key, job=event.origin.job, run=event.origin.run)


def incident_changed(change: SubjectChange) -> IncidentHappened | None:
    """Describe an incident that an event has opened or closed; None where it did neither."""
    if change.incident is None or not (change.opened or change.closed):
        return None
    what, level = ("opened", change.level.value) if change.opened else ("closed", "")
    job, text = job_of(change.subject), change.text[:LONGEST_REASON]
    return copied(IncidentHappened, change, what=what, job=job, level=level, text=text)


def incident_acked(incident: Incident, by: str, now_ms: int) -> IncidentHappened:
    """Describe an incident after an acknowledgement, or after its withdrawal by somebody."""
    return IncidentHappened(
        what="unacked" if incident.acked_ms is None else "acked",
        incident=incident.id,
        subject=incident.subject,
        at_ms=incident.acked_ms or now_ms,
        job=job_of(incident.subject),
        by=incident.acked_by or by,
    )


def line_logged(job: JobId, level: str, text: bytes | str, at_ms: int, run: RunId | None) -> LogHappened:
    if isinstance(text, bytes):
        text = text[: 4 * LONGEST_LINE].decode("utf-8", "replace")
    return LogHappened(job=job, level=level, text=text[:LONGEST_LINE], at_ms=at_ms, run=run)


_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z (DEBUG|INFO|WARN|ERROR) (.*)", re.DOTALL)
_FURTHER = "    "  # begins a further line of the same text


def lines_in_file(job: JobId, lines: Iterable[str]) -> list[LogHappened]:
    """Convert lines of hooks.log to the events that reported them."""
    found: list[LogHappened] = []
    for line in lines:
        match = _LINE.fullmatch(line)
        at_ms = moment_of(match[1]) if match else None
        if match and at_ms is not None:
            found.append(line_logged(job, match[2].lower(), match[3], at_ms, None))
        elif found and line.startswith(_FURTHER):
            last = found.pop()
            found.append(line_logged(job, last.level, f"{last.text}\n{line[len(_FURTHER) :]}", last.at_ms, None))
        else:  # the file was edited, or this is the rest of a line
            found.append(line_logged(job, "info", line, found[-1].at_ms if found else 0, None))
    return found


def moment_of(stamp: str) -> int | None:
    """Return a stamp of a log in milliseconds; None where it is no time."""
    try:
        return round(datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None
