"""Slow down whoever guesses at keys: by the address of the connection, and all addresses together, in bounded memory.

The address is never one that a header names: anybody may send any.  An address from which the right key has come
waits for its own guesses alone.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from msgspec import Struct

from spyweb.clock import Clock

FREE = 10  # wrong keys that cost no waiting: somebody has mistyped his, or configured an older one
FREE_OF_ALL = 100  # of all addresses together
LONGEST_S = 60.0
FORGOTTEN_S = 900.0  # after the last wrong one
ADDRESSES = 4_096  # that are known; of more, those are forgotten that have failed longest ago


class WrongKeys(Struct):
    count: int = 0
    last: float = 0.0
    until: float = 0.0


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: OrderedDict[str, WrongKeys] = OrderedDict()
        self._of_all = WrongKeys()
        self._right: OrderedDict[str, None] = OrderedDict()  # addresses from which the right key has come

    def wait_s(self, address: str) -> int:
        """Return for how many seconds nothing that comes from there is tried; 0: it is."""
        until = self._known[address].until if address in self._known else 0.0
        if address not in self._right:
            until = max(until, self._of_all.until)
        return max(0, math.ceil(until - self._clock.monotonic()))

    def succeed(self, address: str) -> None:
        self._right[address] = None
        self._right.move_to_end(address)
        _keep_newest(self._right)

    def fail(self, address: str) -> None:
        """Count a wrong key: each further one has to wait for twice as long."""
        self._known[address] = self._one_more(self._known.pop(address, WrongKeys()), FREE)
        self._of_all = self._one_more(self._of_all, FREE_OF_ALL)
        _keep_newest(self._known)

    def _one_more(self, known: WrongKeys, free: int) -> WrongKeys:
        now = self._clock.monotonic()
        if now - known.last > FORGOTTEN_S:
            known = WrongKeys()
        known.count, known.last = known.count + 1, now
        if known.count > free:
            known.until = now + min(2.0 ** min(known.count - free - 1, 10), LONGEST_S)
        return known


def _keep_newest(addresses: OrderedDict[str, Any]) -> None:
    while len(addresses) > ADDRESSES:
        addresses.popitem(last=False)
