"""Limit the process's resources, before it imports large modules."""

from __future__ import annotations

import resource
import threading

MIB = 1 << 20


def limit_process(memory: int, cpu_s: int) -> None:
    """Set the limits, for data and not addresses; later threads and processes inherit them."""
    limits = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: MIB,
    }
    for limit, value in limits.items():
        _, most = resource.getrlimit(limit)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (value, value))
    threading.stack_size(MIB)
