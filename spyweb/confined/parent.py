"""Tie such a process to its parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_FOR_THE_DAEMON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for it, though the whole group is told


def die_with_parent() -> None:
    """Die with the parent, the thread that started this process; Linux only, elsewhere a closed socket has to do."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def leave_signals_to_parent() -> None:
    for number in _FOR_THE_DAEMON:
        signal.signal(number, signal.SIG_IGN)


def stand_behind_parent(levels: int) -> str:
    """Give way to it from now on, by so many levels of niceness: to be called once, before there is a second thread.

    What came of it, for people.
    """
    try:
        os.nice(levels)
    except OSError as error:
        return f"giving way to the daemon: not in force ({error.strerror})"
    return "giving way to the daemon"
