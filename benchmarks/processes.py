"""Read what processes take from /proc: memory, processor time, descriptors."""

from __future__ import annotations

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    found = [pid]
    for parent in found:
        for task in (PROC / str(parent) / "task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def pss_bytes(pid: int) -> int:
    """Return its share of memory: a page that several processes map counts in parts."""
    return _rollup(pid)["Pss"]


def rss_bytes(pid: int) -> int:
    return _rollup(pid)["Rss"]


def private_bytes(pid: int) -> int:
    """Return what would be free without it."""
    rollup = _rollup(pid)
    return rollup["Private_Clean"] + rollup["Private_Dirty"]


def _rollup(pid: int) -> dict[str, int]:
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def descriptors(pid: int) -> int:
    return len(list((PROC / str(pid) / "fd").iterdir()))


def command_line(pid: int) -> str:
    try:
        line = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return ""
    return line.replace(b"\0", b" ").decode()
