"""Starts threads, and lowers priorities: of workers behind their daemon, of threads with long steps behind the others.

At equal priority a worker that is woken takes the processor from the daemon that woke it, which is in the middle of
writing and has other workers' ops still to read.

Likewise a thread with long steps would hold a processor for a whole slice, and the thread that steps short VMs, or the
daemon, would wait for it at every wake-up.
A thread can lower its own priority only, which is all that the sandbox allows.  This works on Linux only: elsewhere a
priority belongs to the whole process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

BEHIND = 3  # levels of niceness between the daemon and its workers
LEVELS = 10  # of niceness; with more, an honest long step would hardly move on a busy machine
_LOWEST = 19
BROKEN = 70  # exit code

_PER_THREAD = sys.platform == "linux"
_first = os.getpriority(os.PRIO_PROCESS, 0) if _PER_THREAD else 0


def give_way() -> None:
    """Lower the priority of this thread."""
    if _PER_THREAD:
        with contextlib.suppress(OSError):  # then it is as it was
            os.setpriority(os.PRIO_PROCESS, 0, min(max(_first + BEHIND + LEVELS, 1), _LOWEST))


def let_others_ask() -> None:
    """Install the signal handler that `make_give_way` needs.

    The handler of the signal is the C library's own `nice`, called with the number of the signal, which is 10: it runs
    in the thread that gets the signal, in the middle of Lua, and needs no interpreter lock.
    """
    if _can_ask():
        library = ctypes.CDLL(None)
        library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        library.signal(signal.SIGUSR1, ctypes.cast(library.nice, ctypes.c_void_p))


def make_give_way(thread: int) -> None:
    """Lower the priority of another thread, which must not end meanwhile."""
    if _can_ask():
        signal.pthread_kill(thread, signal.SIGUSR1)


def _can_ask() -> bool:
    return _PER_THREAD and signal.SIGUSR1 == LEVELS


# Threads, and the end of a broken worker, so that it is replaced


def die() -> NoReturn:
    """Show the exception being handled, and end the process."""
    try:
        sys.stderr.write(f"worker {os.getpid()}: ")
        sys.__excepthook__(*sys.exc_info())  # `traceback` would import more modules
    finally:
        os._exit(BROKEN)


def start_thread(name: str, work: Callable[[], object]) -> None:
    def guarded() -> None:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a thread that fails unseen would hang the worker
            die()

    threading.Thread(target=guarded, name=name, daemon=True).start()


def could_start_thread(name: str, work: Callable[[], object]) -> bool:
    """Start a thread like `start_thread`, or return False where the system has none left."""
    try:
        start_thread(name, work)
    except RuntimeError:
        return False
    return True
