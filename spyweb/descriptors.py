"""Set the limit on file descriptors, and know how many are left.

Each part of the daemon that opens many has a share of them; RESERVE belongs to none of these, so that the private
socket, the store and the settings still work when all shares are used.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

MOST = 16_384  # as in the systemd unit; more would not be used
RESERVE = 32


def raise_limit() -> None:
    """Allow this process as many descriptors as the system lets it have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def share(part: int, each: int) -> int:
    """Return how many items of `each` descriptors may be open at once in one of `parts` equal shares."""
    return max(allowed() // part // each, 1)


def left() -> int:
    """Return roughly how many can still be opened: a new one gets the lowest free number."""
    try:
        lowest = os.dup(0)
    except OSError:
        return 0
    os.close(lowest)
    return allowed() - lowest
