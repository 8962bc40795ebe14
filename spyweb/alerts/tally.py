"""Count what alert channels took and refused since the daemon has started, with the last reason."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from spyweb.clock import Clock

LONGEST_REASON = 300


class ChannelTally(Struct):
    """How the attempts to send to one channel went."""

    sent: int = 0
    failed: int = 0
    sent_ms: int | None = None  # the last one that it took
    failed_ms: int | None = None  # the last one that it did not take ...
    error: str = ""  # ... and why not


class AttemptTallies:
    """Keeps the tally of each channel that was sent anything; names come from the settings, so they are few."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.of: dict[str, ChannelTally] = {}

    def among(self, channels: Iterable[str]) -> dict[str, ChannelTally]:
        """Return the tallies of these channels; of one that was sent nothing an empty one."""
        return {name: self.of.get(name) or ChannelTally() for name in channels}

    def attempted(self, channel: str, failure: str | None) -> None:
        """Count an attempt; `failure` is None where the message was taken."""
        tally = self.of.setdefault(channel, ChannelTally())
        if failure is None:
            tally.sent += 1
            tally.sent_ms = self._clock.now_ms()
        else:
            tally.failed += 1
            tally.failed_ms, tally.error = self._clock.now_ms(), failure[:LONGEST_REASON]
