"""Decide the signs of a subject: `advance` returns its next state after an event.

It is called in the transaction that records the event, such as the end of a run, so that neither is ever on record
without the other.  A subject is a job (`job:ID`), a notification channel (`channel:NAME`) or a part of the daemon
(`daemon:PART`, in a cluster `daemon:NODE/PART`).  One that has been healthy for a while is blank, and has no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from spyweb.incidents.policy import AlertPolicy, Flapping

JOB: Final = "job:"  # the beginnings of subjects: before the id of a job ...
CHANNEL: Final = "channel:"  # ... the name of a notification channel ...
DAEMON: Final = "daemon:"  # ... a part of the daemon
REMOVED: Final = "removed or disabled"  # a note: why it closed
REMOVED_NOTES: Final = (REMOVED, "gone, or was switched off")  # the second: by older versions
FAILING, LATE, SILENT = "failing", "late", "silent"
EMPTY, STORAGE, DRIFT = "empty", "storage", "drift"
ENDED_BY_SUCCESS: Final = frozenset({SILENT, EMPTY, STORAGE, DRIFT})  # except signs that this success itself shows

# The words after the name of a subject, by the sign that opened an incident.
WORDS = {
    "late": "is late",
    "silent": "has had no success for too long",
    "empty": "finds nothing",
    "storage": "could not store everything",
    "drift": "has drifted",
    "quarantined": "is in quarantine",
    "held_back": "no longer runs",
    "broken": "can't be loaded",
    "down": "does not deliver",
    "address": "has an invalid address",
    "template": "has a template that fails",
    "behind": "is behind",
    "refusing": "refuses writes",
    "stuck": "does not answer",
    "missing": "has no worker",
    "unserved": "has no node",
    "unmade": "could not be made",
}
PARTS = {
    "scheduler": "spyweb's scheduler",
    "store": "spyweb's store",
    "disk": "spyweb's disk",
    "workers": "spyweb's worker pool",
    "backup": "spyweb's backup",
}


class Sign(NamedTuple):
    """One thing that is wrong."""

    since_ms: int
    text: str


class SubjectState(Struct, frozen=True, kw_only=True):
    """The state of a subject.  `opened_ms` and `is_flapping` belong to its open incident."""

    name: str
    failures: int = 0  # in a row
    successes: int = 0  # in a row, since the incident opened
    first_failure_ms: int | None = None  # of the row of failures
    signs: Mapping[str, Sign] = {}
    openings: tuple[int, ...] = ()  # times of the last ones, where flapping counts
    bad_ms: int | None = None  # the time of the last bad event, where flapping counts
    opened_ms: int | None = None
    is_flapping: bool = False
    is_pausing: bool = False  # its job has failed too often and will be paused

    @property
    def is_blank(self) -> bool:
        return self == SubjectState(name=self.name)


class Failed(Struct, frozen=True, tag=True):
    """A run that counts has failed."""

    text: str
    signs: Mapping[str, str] = {}  # other signs of its end


class Succeeded(Struct, frozen=True, tag=True):
    """A run has succeeded, though its end may show signs."""

    signs: Mapping[str, str] = {}


class SignSeen(Struct, frozen=True, tag=True):
    sign: str
    text: str
    since_ms: int | None = None  # None: since now


class SignGone(Struct, frozen=True, tag=True):
    sign: str


class Paused(Struct, frozen=True, tag=True):
    """The job was paused for this reason; "": it was paused before."""

    text: str = ""


class Edited(Struct, frozen=True, tag=True):
    """The job's own file was edited: the count of failures begins again."""


class Removed(Struct, frozen=True, tag=True):
    """The subject was removed or disabled."""


class TimePassed(Struct, frozen=True, tag=True):
    """Nothing but time has passed."""


Event = Failed | Succeeded | SignSeen | SignGone | Paused | Edited | Removed | TimePassed


class Decision(Struct, frozen=True, kw_only=True):
    """The consequences of an event for a subject."""

    subject: SubjectState
    opens: bool = False
    closes: bool = False
    notes: tuple[str, ...] = ()  # for the history of the incident
    wake_ms: int | None = None  # when to check again, if only time must pass


def advance(subject: SubjectState, event: Event, policy: AlertPolicy, now_ms: int, *, in_maintenance: bool) -> Decision:
    """Decide what an event changes.  In maintenance, failures are ignored and recoveries count."""
    if isinstance(event, Removed):
        is_open = subject.opened_ms is not None
        return Decision(subject=SubjectState(name=subject.name), closes=is_open, notes=(REMOVED,) if is_open else ())
    if in_maintenance and isinstance(event, Failed | SignSeen):
        event = TimePassed()
    after = _noted(subject, event, policy, now_ms, in_maintenance=in_maintenance)
    decision = _opened_or_closed(after, policy.flapping, now_ms)
    notes = tuple(_changes(subject.signs, after.signs, is_new=decision.opens)) if after.signs else ()
    if isinstance(event, Paused) and event.text:
        notes = (*notes, f"paused: {event.text}")
    return replace(decision, notes=notes)


def first_sign(signs: Mapping[str, Sign]) -> tuple[str, Sign]:
    """Return the earliest sign, after which an incident with several signs is named."""
    return min(signs.items(), key=lambda each: each[1].since_ms)


def _changes(before: Mapping[str, Sign], after: Mapping[str, Sign], *, is_new: bool) -> Iterator[str]:
    """Yield lines for the history of an open incident: signs that were added and that ended."""
    named = first_sign(after)[0] if is_new else None
    yield from (f"{sign}: {each.text}" for sign, each in after.items() if sign not in before and sign != named)
    yield from (f"{sign}: ended" for sign in before if sign not in after)


def signs_seen_in(event: Event) -> list[SignSeen]:
    """Return the signs that an event shows."""
    match event:
        case SignSeen():
            return [event]
        case Failed(_, signs) | Succeeded(signs):
            return [SignSeen(sign, text) for sign, text in signs.items()]
        case _:
            return []


def signs_ended_by(event: Event) -> frozenset[str] | None:
    """Return the signs that an event ends in any state; None for all."""
    match event:
        case Removed():
            return None
        case SignGone(sign):
            return frozenset({sign})
        case Succeeded(signs):
            return ENDED_BY_SUCCESS - signs.keys()
        case _:
            return frozenset()


def _noted(
    subject: SubjectState, event: Event, policy: AlertPolicy, now_ms: int, *, in_maintenance: bool
) -> SubjectState:
    """Count the event, and change the signs."""
    bad_ms = now_ms if policy.flapping else None
    match event:
        case Failed(text, signs):
            failed = _failed(replace(subject, bad_ms=bad_ms), text, policy, now_ms)
            return _with_all(failed, signs, now_ms)
        case Succeeded(signs):
            healthy = _succeeded(subject, policy.after_successes, signs)
            if in_maintenance or not signs:
                return healthy
            return _with_all(replace(healthy, bad_ms=bad_ms), signs, now_ms)
        case SignSeen(sign, text, since_ms):
            seen = Sign(now_ms if since_ms is None else since_ms, text)
            return _with(replace(subject, bad_ms=bad_ms), sign, seen)
        case SignGone(sign):
            return _without(subject, {sign})
        case Paused():
            return replace(subject, is_pausing=False)
        case Edited():
            return replace(subject, failures=0, first_failure_ms=None, is_pausing=False)
        case _:
            return subject


def _failed(subject: SubjectState, text: str, policy: AlertPolicy, now_ms: int) -> SubjectState:
    failures = subject.failures + 1
    first_ms = now_ms if subject.first_failure_ms is None else subject.first_failure_ms
    is_pausing = policy.pause_after is not None and failures >= policy.pause_after
    failed = replace(
        subject, failures=failures, first_failure_ms=first_ms, successes=0, is_pausing=subject.is_pausing or is_pausing
    )
    return _with(failed, FAILING, Sign(first_ms, text)) if failures >= policy.after_failures else failed


def _succeeded(subject: SubjectState, after_successes: int, still: Mapping[str, str]) -> SubjectState:
    """Count a success, whose end still shows these signs."""
    successes = subject.successes + 1 if subject.signs else 0
    gone = ENDED_BY_SUCCESS | {FAILING} if successes >= after_successes else ENDED_BY_SUCCESS
    healthy = replace(subject, failures=0, first_failure_ms=None, successes=successes, is_pausing=False)
    return _without(healthy, gone - still.keys())


def _with(subject: SubjectState, sign: str, seen: Sign) -> SubjectState:
    """Add a sign; a sign that is there already keeps its beginning and gets the newest text."""
    since_ms = subject.signs[sign].since_ms if sign in subject.signs else seen.since_ms
    return replace(subject, signs={**subject.signs, sign: Sign(since_ms, seen.text)})


def _with_all(subject: SubjectState, signs: Mapping[str, str], now_ms: int) -> SubjectState:
    for sign, text in signs.items():
        subject = _with(subject, sign, Sign(now_ms, text))
    return subject


def _without(subject: SubjectState, gone: frozenset[str] | set[str]) -> SubjectState:
    return replace(subject, signs={sign: seen for sign, seen in subject.signs.items() if sign not in gone})


def _opened_or_closed(subject: SubjectState, flapping: Flapping | None, now_ms: int) -> Decision:
    if subject.opened_ms is None and subject.signs:
        lately = _lately((*subject.openings, now_ms), flapping, now_ms)
        is_flapping = flapping is not None and len(lately) >= flapping.openings
        opened = replace(subject, opened_ms=now_ms, openings=lately, is_flapping=is_flapping, successes=0)
        return Decision(subject=opened, opens=True)
    if subject.opened_ms is None:
        return Decision(subject=_forgotten(subject, flapping, now_ms))
    if subject.signs:
        return Decision(subject=subject)
    if subject.is_flapping and flapping and subject.bad_ms is not None:
        calm_ms = subject.bad_ms + flapping.within_ms
        # A clock that was set back must not hold it for longer than the window.
        if now_ms < calm_ms <= now_ms + flapping.within_ms:
            return Decision(subject=subject, wake_ms=calm_ms)
    closed = replace(subject, opened_ms=None, is_flapping=False, successes=0)
    return Decision(subject=_forgotten(closed, flapping, now_ms), closes=True)


def _forgotten(subject: SubjectState, flapping: Flapping | None, now_ms: int) -> SubjectState:
    """Forget openings that no longer count."""
    lately = _lately(subject.openings, flapping, now_ms)
    return replace(subject, openings=lately, bad_ms=subject.bad_ms if lately else None)


def _lately(openings: tuple[int, ...], flapping: Flapping | None, now_ms: int) -> tuple[int, ...]:
    if flapping is None:
        return ()
    within = (moment for moment in openings if now_ms - flapping.within_ms < moment <= now_ms)
    return tuple(within)[-flapping.openings :]


def name_of(subject: str) -> str:
    """Return the name of a subject."""
    kind, _, name = subject.partition(":")
    match kind:
        case "job":
            return name
        case "channel":
            return f"the channel {name}"
        case _:
            if name.startswith(("node:", "label:")):  # a pool of slots
                return f"the pool {name}"
            node, _, part = name.rpartition("/")
            named = PARTS.get(part, f"spyweb ({part})") if part else subject
            return f"{named} on {node}" if node else named
