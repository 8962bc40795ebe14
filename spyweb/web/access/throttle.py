"""Slow down whoever guesses at keys: by the address of the connection, in bounded memory.

The address is never one that a header names: anybody may send any.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from spyweb.clock import Clock

FREE = 10  # wrong keys that cost no waiting: somebody has mistyped his, or configured an older one
LONGEST_S = 60.0
FORGOTTEN_S = 900.0  # after the last wrong one
ADDRESSES = 4_096  # that are known; of more, those are forgotten that have failed longest ago


@dataclass(slots=True)
class WrongKeys:
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, WrongKeys] = OrderedDict()

    def wait_s(self, address: str) -> int:
        """Return for how many seconds nothing that comes from there is tried; 0: it is."""
        known = self._known.get(address)
        return 0 if known is None else max(0, math.ceil(known.until - self._clock.monotonic()))

    def fail(self, address: str) -> None:
        """Count a wrong key: each further one has to wait for twice as long."""
        now = self._clock.monotonic()
        known = self._known.pop(address, None)
        if known is None or now - known.last > FORGOTTEN_S:
            known = WrongKeys()
        known.count, known.last = known.count + 1, now
        if known.count > FREE:
            known.until = now + min(2.0 ** min(known.count - FREE - 1, 10), LONGEST_S)
        self._known[address] = known
        while len(self._known) > ADDRESSES:
            self._known.popitem(last=False)
