"""Describe incidents in words: what each is about, who was notified, and who acknowledged it.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from spyweb.incidents.truth import JOB, WORDS, name_of
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.model.incidents import OpenIncident
from spyweb.subjects.incidents.views import IncidentChannel, IncidentNote, IncidentView, delivery_words
from spyweb.web.pages.words import show_counted
from spyweb.words import first_line

NAMED = 3  # jobs that the one line of all pages names
LEVEL_MARKS: Mapping[str, str] = {"critical": "bad", "warning": "warn", "info": "wait"}
LEVEL_TONES: Mapping[str, str] = {"critical": "bad", "warning": "warn"}

# How long a job can be silenced: the value of the form, and the words of the button.
SILENCES: Mapping[str, tuple[int, str]] = {
    "1h": (HOUR_MS, "1 hour"),
    "8h": (8 * HOUR_MS, "8 hours"),
    "1d": (DAY_MS, "1 day"),
    "1w": (7 * DAY_MS, "1 week"),
}


class ShownIncident(Struct, frozen=True, kw_only=True):
    """An incident as pages show it."""

    view: IncidentView
    name: str  # of its subject
    mark: str
    tone: str
    wrong: str  # "failing, 7 runs in a row"
    line: str  # the first line of the reason
    lasted_ms: int | None  # None: it is open


class ShownTelling(Struct, frozen=True, kw_only=True):
    """A notification channel beside an incident, with its last notification."""

    name: str
    mark: str
    words: str
    held: str = ""  # what holds messages back, up to `until_ms` where that is known
    until_ms: int | None = None
    from_ms: int | None = None  # when it is notified, unless the incident is acknowledged before


class OpenLine(Struct, frozen=True, kw_only=True):
    """All open incidents in one line."""

    count: int
    oldest: OpenIncident
    named: Sequence[tuple[OpenIncident, str]]  # with the names of their subjects
    unnamed: int
    left_alone: int  # those that are not acknowledged


def subject_name(subject: str, name_of_job: str = "") -> str:
    """Return the name of a subject, as it begins a line."""
    if name_of_job and subject.startswith(JOB):
        return name_of_job
    name = name_of(subject)
    return "C" + name.removeprefix("the c") if name.startswith("the channel") else name


def sign_words(sign: str) -> str:
    """Return a sign in words that follow the name of a subject: `late`, `finds nothing`; else the sign's own name."""
    return WORDS.get(sign, sign).removeprefix("is ")


def show_incident(view: IncidentView, name: str) -> ShownIncident:
    """Return an incident as pages show it; `name` is that of its job, where it has one."""
    is_open = view.closed_ms is None
    signs = list(view.signs) or [view.reason]
    wrong = ", ".join(map(sign_words, signs))
    if "failing" in signs and view.failures > 1:
        wrong = f"{wrong}, {show_counted(view.failures, 'run')} in a row"
    return ShownIncident(
        view=view,
        name=subject_name(view.subject, name),
        mark=LEVEL_MARKS.get(view.level, "warn") if is_open else "ok",
        tone=LEVEL_TONES.get(view.level, "") if is_open else "",
        wrong=wrong,
        line=first_line(view.text),
        lasted_ms=None if view.closed_ms is None else view.closed_ms - view.since_ms,
    )


def tellings_of(view: IncidentView, now_ms: int) -> list[ShownTelling]:
    """Return the notifications of each channel: those of the current settings first, then former channels."""
    named = {each.name for each in view.channels}
    rest = [ShownTelling(name=name, mark=_mark(view, name), words=delivery_words(view, name)) for name in view.told]
    return [_telling(each, view, now_ms) for each in view.channels] + [each for each in rest if each.name not in named]


def _telling(channel: IncidentChannel, view: IncidentView, now_ms: int) -> ShownTelling:
    mark, words, held, from_ms = "wait", "not notified yet:" if channel.held else "being notified", channel.held, None
    if channel.told:
        mark, words = _mark(view, channel.name), delivery_words(view, channel.name)
        words = f"{words}; now" if held else words
    elif view.closed_ms is not None:
        words, held = "not notified of the end yet", ""
    elif view.acked_ms is not None:
        mark, words, held = "none", "not notified: acknowledged", ""
    elif channel.from_ms > now_ms:
        words, held, from_ms = "notified unless acknowledged before", "", channel.from_ms
    until_ms = channel.held_until_ms if held else None
    return ShownTelling(
        name=channel.name, mark=mark, words=words, held=held_words(held), until_ms=until_ms, from_ms=from_ms
    )


def held_words(held: str) -> str:
    """Return what holds messages back, without the time: a browser shows that in its own zone."""
    return held.partition(" until ")[0]


def _mark(view: IncidentView, channel: str) -> str:
    if channel in view.undelivered:
        return "wait"
    return "ok" if view.told[channel] in ("open", "closed") else "none"


def history_of(view: IncidentView) -> list[IncidentNote]:
    """Return the history, oldest first: the notes, with the beginning and the end."""
    notes = [IncidentNote(at_ms=view.opened_ms, text=f"opened: {sign_words(view.reason)}"), *view.notes]
    if view.since_ms < view.opened_ms:
        notes.append(IncidentNote(at_ms=view.since_ms, text="first failure"))
    if view.closed_ms is not None:
        notes.append(IncidentNote(at_ms=view.closed_ms, text="closed"))
    return sorted(notes, key=lambda note: note.at_ms)


def reason_of(view: IncidentView) -> str:
    """Return the reason, where there is one; several signs are listed one by one."""
    if len(view.signs) > 1:
        return ""
    return next((seen.text for seen in view.signs.values()), view.text)


def open_line(incidents: Sequence[OpenIncident], name_of: Callable[[str], str]) -> OpenLine | None:
    """Return all open incidents in one line; `name_of` gives the name of a subject's job."""
    if not incidents:
        return None
    oldest_first = sorted(incidents, key=lambda each: (each.since_ms, each.id))
    named = [(each, subject_name(each.subject, name_of(each.subject))) for each in oldest_first[:NAMED]]
    return OpenLine(
        count=len(incidents),
        oldest=oldest_first[0],
        named=named,
        unnamed=len(incidents) - len(named),
        left_alone=left_alone(incidents),
    )


def left_alone(incidents: Iterable[OpenIncident]) -> int:
    """Count the incidents that are not acknowledged."""
    return sum(each.acked_ms is None for each in incidents)
