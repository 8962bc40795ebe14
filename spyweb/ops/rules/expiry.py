"""Compute when an entry expires: scripts give seconds, entries have epoch milliseconds."""

from __future__ import annotations

import math

from spyweb.ops.rules.values import Unstorable
from spyweb.store.values_protocol import Entry

NO_EXPIRY, NO_KEY = -1, -2
_LONGEST_S = 1e12  # longer is for ever


def expiry_of(ttl: int | float | None, now_ms: int) -> int | None:
    """Return the expiry, None for never: no ttl, or one beyond any calendar.  Raises Unstorable."""
    if ttl is None:
        return None
    if math.isnan(ttl):
        raise Unstorable("the ttl is NaN")
    return now_ms + math.ceil(max(ttl, 0) * 1000) if ttl < _LONGEST_S else None


def remaining(entry: Entry | None, now_ms: int) -> int:
    """Return the remaining seconds, rounded up so that a live entry never has none."""
    if entry is None:
        return NO_KEY
    if entry.expires_ms is None:
        return NO_EXPIRY
    return max(1, math.ceil((entry.expires_ms - now_ms) / 1000))
