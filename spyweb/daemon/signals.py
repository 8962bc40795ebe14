"""What signals mean to the daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from spyweb.daemon.loading import has_terminal


def catch_signals(stop: asyncio.Event, look_again: Callable[[], None]) -> None:
    """SIGTERM and Ctrl-C stop; a second one ends at once.

    SIGHUP looks at the files again, unless it says that the terminal is gone which the daemon was started on: that
    stops it too.
    """
    loop = asyncio.get_running_loop()
    lives_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup

    def ask(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    def hang_up() -> None:
        if lives_with_terminal and not has_terminal():
            stop.set()
        else:
            look_again()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    loop.add_signal_handler(signal.SIGHUP, hang_up)
