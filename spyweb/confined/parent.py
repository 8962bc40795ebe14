"""Tie a confined process to its parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_FOR_THE_DAEMON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for it, though the whole group gets them


def die_with_parent() -> None:
    """Make this process die with its parent thread; on Linux only, elsewhere a closed socket must do."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def leave_signals_to_parent() -> None:
    for number in _FOR_THE_DAEMON:
        signal.signal(number, signal.SIG_IGN)


def stand_behind_parent(levels: int) -> str:
    """Lower this process's priority by so many levels; call it once, before there is a second thread.

    Return a description of the result.
    """
    try:
        os.nice(levels)
    except OSError as error:
        return f"giving way to the daemon: not in force ({error.strerror})"
    return "giving way to the daemon"
