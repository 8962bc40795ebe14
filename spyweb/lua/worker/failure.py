"""How a worker ends when something in it is broken: loudly and at once, so that it is replaced."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

BROKEN = 70  # exit code


def die() -> NoReturn:
    """Shows the exception being handled, and ends the process."""
    try:
        sys.__excepthook__(*sys.exc_info())  # `traceback` would bring three modules along
    finally:
        os._exit(BROKEN)


def start_thread(name: str, work: Callable[[], object]) -> None:
    def guarded() -> None:
        try:
            work()
        except BaseException:  # noqa: BLE001 - a thread that fails unseen would hang the worker
            die()

    threading.Thread(target=guarded, name=name, daemon=True).start()
