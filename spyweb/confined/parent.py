"""The tie of such a process to its parent."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_FOR_THE_DAEMON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for it, though the whole group is told


def die_with_parent() -> None:
    """Linux only; elsewhere a closed socket has to do.  The parent is the thread that started this process."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def leave_signals_to_parent() -> None:
    for number in _FOR_THE_DAEMON:
        signal.signal(number, signal.SIG_IGN)
