"""Delete what is old, by a clock that ignores short leaps."""

from __future__ import annotations

from spyweb.clock import Clock
from spyweb.outbox.sender import OutboxSender
from spyweb.settings import Settings
from spyweb.settings.units import DAY_MS, HOUR_MS
from spyweb.store.protocol import Store

LEAP_MS = HOUR_MS  # forward; less is a clock that is set right
BELIEVED_AFTER_MS = DAY_MS
DEAD_KEPT_MS = 7 * DAY_MS  # messages that were given up, for whoever looks for them


class SteadyTime:
    """Returns the clock's time, but counts a leap forward only once it has lasted for a day.

    A machine whose clock is months ahead for a while, after a start without a battery or with a wrong time server,
    would otherwise delete a history that can't be had back.
    """

    def __init__(self, clock: Clock, known_ms: int | None = None) -> None:
        """Take `known_ms` for the newest time on record, by the clock of an earlier daemon."""
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


async def prune(store: Store, outbox_sender: OutboxSender, settings: Settings, now_ms: int) -> None:
    """Delete the history, the records and the given-up messages that are over their limits."""
    await store.runs.prune(keep=settings.runs.keep, older_than_ms=now_ms - settings.runs.keep_for_ms)
    kept_for_ms = settings.records.keep_for_ms
    await store.records.prune(
        keep=settings.records.keep,
        older_than_ms=None if kept_for_ms is None else now_ms - kept_for_ms,
        unseen_since_ms=now_ms - settings.records.seen_for_ms,
    )
    await outbox_sender.prune(now_ms - DEAD_KEPT_MS)
