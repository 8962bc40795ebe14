"""While a program is being imported, which takes a second on a busy machine, there is nothing to take down yet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C ends the process as it ends programs that are not Python's: whose import it struck is nobody's concern."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # whoever started this one wants it to live on, as `nohup` and `&` do
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
