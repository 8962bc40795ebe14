"""Ends a broken worker at once, with a traceback, so that it is replaced.

A system without a thread left is no reason to end: the worker makes do with those it has.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

BROKEN = 70  # exit code


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
