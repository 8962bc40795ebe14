"""Tell which alert channels take no messages, by how the attempts to send them went.  Pure."""

from __future__ import annotations

from collections.abc import Collection

from spyweb.incidents.truth import SignGone, SignSeen

DOWN = "down"
MISSES = 3  # attempts in a row that failed ...
PATIENCE_MS = 5 * 60_000  # ... while a message has waited so long
LONGEST_REASON = 300


class ChannelHealth:
    """Counts the failures of each channel; an earlier daemon may have said that some are down."""

    def __init__(self, down: Collection[str] = ()) -> None:
        self._down = set(down)
        self._misses: dict[str, int] = {}

    def judge(self, channel: str, failure: str | None, waited_ms: int) -> SignSeen | SignGone | None:
        """Return what an attempt says about its channel; `failure` is None where the message was taken."""
        if failure is None:
            self._misses.pop(channel, None)
            if channel not in self._down:
                return None
            self._down.discard(channel)
            return SignGone(DOWN)
        self._misses[channel] = self._misses.get(channel, 0) + 1
        if channel in self._down or self._misses[channel] < MISSES or waited_ms < PATIENCE_MS:
            return None
        self._down.add(channel)
        return SignSeen(DOWN, failure[:LONGEST_REASON])

    def forget(self, channels: Collection[str]) -> list[str]:
        """Return the channels that were down and are among the settings no more: nobody waits for them."""
        gone = [name for name in self._down if name not in channels]
        self._down.difference_update(gone)
        return gone
