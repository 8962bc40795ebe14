"""While a program is being imported, which takes a second on a busy machine, there is nothing to take down yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINAL = "/dev/tty"  # for each process its own; whoever has none, or has lost it, can't open it
FIRST = 1  # the process id of a container's program: the kernel drops what it has no handler for


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process as it ends programs that are not Python's: whose import it struck is nobody's concern."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # whoever started this one wants it to live on, as `nohup` and `&` do
        yield
        return
    signal.signal(signal.SIGINT, _end if os.getpid() == FIRST else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_at_sigterm() -> None:
    """As any process does that does not catch it: a container's too, from now on."""
    if os.getpid() == FIRST and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def outlive_hang_up() -> None:
    """SIGHUP asks a daemon to look at its files, which one that is loading does anyway: it ends only where the terminal
    is gone on which it was started."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        had_terminal = has_terminal()

        def hang_up(number: int, frame: FrameType | None) -> None:
            if had_terminal and not has_terminal():
                _end(number, frame)

        signal.signal(signal.SIGHUP, hang_up)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def put_hang_up_off() -> None:
    """Until the program that takes the place of this one calls `outlive_hang_up`: none of its own handlers lasts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
