"""Tell what is wrong with alert channels, by how the attempts to send to them went, and by checking them.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spyweb.incidents.truth import SignGone, SignSeen

DOWN = "down"
ADDRESS = "address"  # it can't be used
TEMPLATE = "template"  # it fails, and the built-in text is sent
SIGNS = (DOWN, ADDRESS, TEMPLATE)
MISSES = 3  # attempts in a row that failed ...
PATIENCE_MS = 5 * 60_000  # ... while a message has waited so long
LONGEST_REASON = 300


class ChannelHealth:
    """Remembers the signs of each channel; an earlier daemon may have seen any of those that are known."""

    def __init__(self, known: Collection[str] = ()) -> None:
        self._signs: dict[str, dict[str, str]] = {channel: dict.fromkeys(SIGNS, "") for channel in known}
        self._misses: dict[str, int] = {}

    @property
    def troubled(self) -> Sequence[str]:
        """Return the channels of which it is known that something is wrong."""
        return [channel for channel, signs in self._signs.items() if any(signs.values())]

    def judge(self, channel: str, failure: str | None, waited_ms: int) -> SignSeen | SignGone | None:
        """Return what an attempt says about its channel; `failure` is None where the message was taken."""
        if failure is None:
            self._misses.pop(channel, None)
            return self.note(channel, DOWN, "")
        self._misses[channel] = self._misses.get(channel, 0) + 1
        is_down = self._misses[channel] >= MISSES and waited_ms >= PATIENCE_MS
        return self.note(channel, DOWN, failure) if is_down or self._has(channel, DOWN) else None

    def note(self, channel: str, sign: str, problem: str) -> SignSeen | SignGone | None:
        """Return the event where a sign comes or goes; `problem` is empty where there is none."""
        had = self._has(channel, sign)
        if problem:
            problem = problem[:LONGEST_REASON]
            self._signs.setdefault(channel, {})[sign] = problem
            return None if had else SignSeen(sign, problem)
        if not had:
            return None
        del self._signs[channel][sign]
        if not self._signs[channel]:
            del self._signs[channel]
        return SignGone(sign)

    def forget(self, channels: Collection[str]) -> list[str]:
        """Return the channels with signs that are among the settings no more: nobody waits for them."""
        gone = [name for name in self._signs if name not in channels]
        for name in gone:
            del self._signs[name]
        return gone

    def _has(self, channel: str, sign: str) -> bool:
        return sign in self._signs.get(channel, ())
