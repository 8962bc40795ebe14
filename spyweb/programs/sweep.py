"""Find and end the processes below this one, however they have forked and detached themselves.

A process that adopts orphans has all of them below it for as long as it lives.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the children of a process; none if it is gone, or if the system does not tell."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def descendants_of(pids: Iterable[int]) -> list[int]:
    """Return these processes and all below them, parents first."""
    found = list(pids)
    for pid in found:  # it grows meanwhile
        found += children_of(pid)
    return found


def kill_left(folder: bytes) -> None:
    """Kill what has this folder for temporary files in its environment, and all below; nothing without /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or is another user's
            if b"TMPDIR=" + folder in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    kill_all(found)


def is_stopped(pid: int) -> bool:
    """Return whether a process has been stopped, by SIGSTOP or a debugger, and not continued."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] in ("T", "t")
    return False


def send(pids: Iterable[int], *signals: signal.Signals) -> None:
    for pid in pids:
        for each in signals:
            with suppress(OSError):  # it has ended, or is another user's
                os.kill(pid, each)


def kill_all(pids: Iterable[int]) -> None:
    """Kill these processes and all below them.

    They are stopped first, until there is no new one: a process that is being killed could fork meanwhile.
    """
    top = list(pids)
    stopped: dict[int, None] = {}
    while new := [pid for pid in descendants_of(top) if pid not in stopped]:
        send(new, signal.SIGSTOP)
        stopped.update(dict.fromkeys(new))
    send(stopped, signal.SIGKILL)
