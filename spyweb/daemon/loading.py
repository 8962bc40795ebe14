"""While a program is being imported, which takes a second on a busy machine, there is nothing to take down yet."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
