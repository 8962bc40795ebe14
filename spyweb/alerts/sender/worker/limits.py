"""Bound what the process may take, before it imports what takes it."""

from __future__ import annotations

import resource
import threading

MIB = 1 << 20
HELPER_MEMORY = 192 * MIB  # of data: stacks and arenas of eight threads would exceed as much of addresses
RENDERING_MEMORY = 96 * MIB
HELPER_CPU_S = 120
RENDERING_CPU_S = 2


def limit_process(memory: int, cpu_s: int) -> None:
    """Set the limits; what is started from here on has them as well."""
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
