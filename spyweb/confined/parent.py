"""Tie a confined process to its parent, and wait for that and for signals at once."""

from __future__ import annotations

import ctypes
import os
import select
import signal
from collections.abc import Sequence

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_FOR_THE_DAEMON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for it, though the whole group gets them


_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # on Linux only


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Make this process get a signal when its parent thread ends; on Linux only, elsewhere a closed socket must do."""
    if _prctl:
        _prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0)


def adopt_orphans() -> bool:
    """Make this process the parent of every descendant whose own parent has ended; return whether that is in force."""
    return _prctl is not None and not _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def close_to_others() -> bool:
    """Hide this process's memory and environment from others of its user, not of root; return whether they are."""
    return _prctl is not None and not _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def leave_signals_to_parent() -> None:
    for number in _FOR_THE_DAEMON:
        signal.signal(number, signal.SIG_IGN)


def stand_behind_parent(levels: int) -> str:
    """Lower this process's priority, before it has a second thread, and return a description of the result."""
    try:
        os.nice(levels)
    except OSError as error:
        return f"lower priority: not in force ({error.strerror})"
    return "lower priority"


def wake_on(*signals: signal.Signals) -> int:
    """Return a pipe from which the numbers of these signals can be read as they come."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if before >= 0:  # of the process that has forked this one
        os.close(before)
    return reader


def ready(descriptors: Sequence[int], timeout: float | None = None) -> list[int]:
    """Wait until there is something to read; unlike `select`, also from descriptors above 1023."""
    events = select.poll()
    for descriptor in descriptors:
        events.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in events.poll(None if timeout is None else timeout * 1000)]
