"""Set the limit on file descriptors, and share them out."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from spyweb.web.connections import ConnectionLimits

MOST = 16_384  # as many as the systemd unit gives; what the system allows beyond is of no use
TCP, PRIVATE = 1_024, 256  # connections
PAGING_S = 3_600.0


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


def left() -> int:
    """Return roughly how many can still be opened: a new one gets the lowest free number."""
    try:
        lowest = os.dup(0)
    except OSError:
        return 0
    os.close(lowest)
    return allowed() - lowest


def tcp_limits() -> ConnectionLimits:
    """Give TCP a quarter of all descriptors: scripts' own requests may take half (ops/network), the rest is spare."""
    total = max(min(allowed() // 4, TCP), 8)
    return ConnectionLimits(total, total // 2)


def private_limits() -> ConnectionLimits:
    """Give the private socket an eighth: its clients are commands, which may read an export page by page."""
    total = max(min(allowed() // 8, PRIVATE), 8)
    return ConnectionLimits(total, total, unread_s=PAGING_S)
