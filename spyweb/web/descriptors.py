"""Share out file descriptors to the connections of the HTTP server."""

from __future__ import annotations

from spyweb.descriptors import allowed
from spyweb.web.connections import ConnectionLimits

TCP, PRIVATE = 1_024, 256  # connections
PAGING_S = 3_600.0


def tcp_limits() -> ConnectionLimits:
    """Give TCP a quarter of all descriptors: scripts' own requests may take half (ops/network), the rest is spare."""
    total = max(min(allowed() // 4, TCP), 8)
    return ConnectionLimits(total, total // 2)


def private_limits() -> ConnectionLimits:
    """Give the private socket an eighth: its clients are commands, which may read an export page by page."""
    total = max(min(allowed() // 8, PRIVATE), 8)
    return ConnectionLimits(total, total, unread_s=PAGING_S)
