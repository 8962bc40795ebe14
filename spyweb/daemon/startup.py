"""Set up a process before anything else is imported: its standard streams, and its handlers of SIGINT, SIGTERM, SIGHUP.

Imports take a second on a busy machine, in which there is nothing to shut down yet; `catch_signals` is for a running
daemon.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

TERMINAL = "/dev/tty"  # each process has its own; one that has none, or has lost it, can't open it
STANDARD = (0, 1, 2)
FIRST = 1  # the process id of a container's program: the kernel drops signals that it has no handler for


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process silently, as it ends programs that are not written in Python, and not as an exception
    in the middle of an import."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # the parent ignores it, as `&` does in scripts
        yield
        return
    signal.signal(signal.SIGINT, _end if os.getpid() == FIRST else signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_at_sigterm() -> None:
    """End at SIGTERM like a process without a handler, also as the first process of a container."""
    if os.getpid() == FIRST and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def outlive_hang_up() -> None:
    """Ignore SIGHUP, which asks a daemon to read its files again, unless the terminal of its start was closed."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        had_terminal = has_terminal()

        def hang_up(number: int, frame: FrameType | None) -> None:
            if had_terminal and not has_terminal():
                _end(number, frame)

        signal.signal(signal.SIGHUP, hang_up)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def put_hang_up_off() -> None:
    """Block SIGHUP until the program that replaces this one calls `outlive_hang_up`: no handler of this one outlasts
    it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def catch_signals(ask_to_stop: Callable[[], None], look_again: Callable[[], None]) -> None:
    """Have SIGTERM and Ctrl-C call `ask_to_stop` on the running loop; then another Ctrl-C ends the process at once.

    Not another SIGTERM: `spyweb stop` and a service manager may both send one.

    SIGHUP calls `look_again`; when the terminal on which the daemon was started was closed, it stops the daemon too.
    """
    import asyncio  # the daemon has imported it by now; other commands do not need it

    loop = asyncio.get_running_loop()
    lives_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup
    is_stopping = False

    def stop(number: int) -> None:
        nonlocal is_stopping
        if is_stopping and number == signal.SIGINT:
            os._exit(128 + number)
        is_stopping = True
        ask_to_stop()

    def hang_up() -> None:
        nonlocal is_stopping
        if lives_with_terminal and not has_terminal():
            is_stopping = True
            ask_to_stop()
        else:
            look_again()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, hang_up)


def has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def open_standard_streams() -> None:
    """Open /dev/null in place of each closed standard stream, also for the programs that this one starts or becomes.

    The next file that is opened would get its number: a socket would be taken for stdout, and libuv ends the process
    rather than close such a one.
    """
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, descriptor)
            os.set_inheritable(descriptor, True)
            if nothing != descriptor:
                os.close(nothing)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
