"""The time by which what is old is deleted: a clock that leaps does not count."""

from __future__ import annotations

from spyweb.clock import Clock
from spyweb.settings.units import DAY_MS, HOUR_MS

LEAP_MS = HOUR_MS  # forward; less is a clock that is set right
BELIEVED_AFTER_MS = DAY_MS


class SteadyTime:
    """The clock's time, but that a leap forward counts only once it has lasted for a day.

    A machine whose clock is months ahead for a while, after a start without a battery or with a wrong time server,
    would otherwise delete a history that can't be had back.
    """

    def __init__(self, clock: Clock, known_ms: int | None = None) -> None:
        """`known_ms`: the newest time on record, by the clock of an earlier daemon."""
        self._clock = clock
        self._base_ms = clock.now_ms() if known_ms is None else known_ms  # what it was when ...
        self._since = clock.monotonic()  # ... this was
        self._ahead_since: float | None = None

    def now_ms(self) -> int:
        now_ms, elapsed = self._clock.now_ms(), self._clock.monotonic()
        steady_ms = self._base_ms + round((elapsed - self._since) * 1000)
        if now_ms - steady_ms > LEAP_MS:
            if self._ahead_since is None:
                self._ahead_since = elapsed
            if (elapsed - self._ahead_since) * 1000 < BELIEVED_AFTER_MS:
                return steady_ms
        self._base_ms, self._since, self._ahead_since = now_ms, elapsed, None
        return now_ms
