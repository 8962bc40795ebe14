"""Format numbers and moments for pages: a unit does not break from its number, and there are at most two of them.

Pure: the moment of the page and the zone of the daemon are parameters.  A browser shows moments in its own zone
(static/times.js), in the same words.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from spyweb.settings.units import SECOND_MS
from spyweb.words import counted, round_duration, round_size

NBSP = "\N{NO-BREAK SPACE}"
ABSENT = "\N{EN DASH}"

AGO = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))  # units with their seconds
FIRST_MS, LAST_MS = -62_000_000_000_000, 253_370_000_000_000  # in the years 5 and 9998


def show_duration(ms: float | None) -> str:
    """Return a duration in at most two units: `340 ms`, `1.2 s`, `1 m 53 s`, `6 d 14 h`."""
    return ABSENT if ms is None else round_duration(ms, NBSP)


def show_count(number: int | None) -> str:
    return ABSENT if number is None else f"{number:,}"


def show_counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 job`, `1,000 jobs`, `no jobs`."""
    return counted(number, noun, plural).replace(" ", NBSP, 1) if number else f"no {plural or f'{noun}s'}"


def show_size(size: int | None) -> str:
    """Return a number of bytes in the largest unit that fits: `74 MB`, `1.2 GB`."""
    return ABSENT if size is None else round_size(size, NBSP)


def show_share(share: float | None) -> str:
    """Return a share as a percentage: 100 % only for all, 0 % only for none."""
    if share is None:
        return ABSENT
    tenths = round(share * 1000)
    if 0 < share < 1:
        tenths = min(max(tenths, 1), 999)
    return f"{tenths / 10:.1f}".removesuffix(".0") + f"{NBSP}%"


class Moments(Struct, frozen=True):
    """Formats moments relative to the one at which a page is made."""

    now_ms: int
    zone: ZoneInfo

    def show(self, ms: int) -> str:
        """Return `14:02:11` today, `yesterday 03:00`, `tomorrow 03:00`, else `9 Nov 03:00` or `9 Nov 2025`."""
        moment, now = self._local(ms), self._local(self.now_ms)
        days = (moment.date() - now.date()).days
        if days == 0:
            return f"{moment:%H:%M:%S}"
        if abs(days) == 1:
            return f"{'tomorrow' if days > 0 else 'yesterday'} {moment:%H:%M}"
        day = f"{moment.day}{NBSP}{moment:%b}"
        return f"{day} {moment:%H:%M}" if moment.year == now.year else f"{day}{NBSP}{moment.year}"

    def show_exactly(self, ms: int) -> str:
        """Return the time of day with milliseconds, as a log line has it."""
        return f"{self._local(ms):%H:%M:%S}.{ms % 1000:03d}"

    def show_clock(self, ms: int) -> str:
        return f"{self._local(ms):%H:%M}"

    def show_day(self, ms: int) -> str:
        moment = self._local(ms)
        return f"{moment.day}{NBSP}{moment:%b}"

    def until(self, ms: int) -> str:
        """Return how long it is until a moment: `1 m 53 s`, or `now` when it has passed."""
        return show_duration((ms - self.now_ms) // SECOND_MS * SECOND_MS) if ms - self.now_ms >= SECOND_MS else "now"

    def since(self, ms: int) -> str:
        return show_duration(max(0, self.now_ms - ms))

    def ago(self, ms: int) -> str:
        """Return how long ago a moment was, in its largest unit: `2 min ago`."""
        seconds = max(0, self.now_ms - ms) // SECOND_MS
        unit, size = next((each for each in AGO if seconds >= each[1]), AGO[-1])
        return f"{seconds // size}{NBSP}{unit} ago" if seconds else "just now"

    def _local(self, ms: int) -> datetime:
        return _moment(ms).astimezone(self.zone)


def _moment(ms: int) -> datetime:
    """Return a moment of the years that a date can have in every zone; the last or first one for any other."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(ms, FIRST_MS), LAST_MS))


def iso_moment(ms: int) -> str:
    """Return a moment for a `datetime` attribute."""
    return f"{_moment(ms):%Y-%m-%dT%H:%M:%S}" + (f".{ms % 1000:03d}Z" if ms % 1000 else "Z")


def pieces_of(text: str) -> list[tuple[bool, str]]:
    """Return the pieces of a text, each with whether it is code between backticks."""
    return [(place % 2 == 1, piece) for place, piece in enumerate(text.split("`")) if piece]
