"""Memory shared with a worker, in which the worker records the run that each of its threads is stepping.

It outlives the worker, so that after a death the daemon can read who was being stepped.  Layout: wire.py.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from contextlib import ExitStack, suppress

from spyweb.lua import wire


class Slots:
    def __init__(self) -> None:
        """Map the memory.  Raises OSError, and then leaves nothing open: without descriptors the caller tries often."""
        with ExitStack() as on_failure:
            self.descriptor = _anonymous_file()
            on_failure.callback(os.close, self.descriptor)
            os.ftruncate(self.descriptor, wire.SLOT_BYTES)
            _fix_size(self.descriptor)
            self._memory = mmap.mmap(self.descriptor, wire.SLOT_BYTES)
            on_failure.pop_all()

    def stepped(self) -> dict[int, int]:
        """Return the runs being stepped, and how many milliseconds of CPU each of them has used."""
        with memoryview(self._memory) as view, view.cast("Q") as numbers:
            runs, cpu = numbers[: wire.SLOTS], numbers[wire.SLOTS :]
            return {run: min(ms, wire.MOST_CPU_MS) for run, ms in zip(runs, cpu, strict=True) if run}

    def given(self) -> None:
        """Close the descriptor once the worker has it; the memory stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        self._memory.close()
        self.given()


def _fix_size(descriptor: int) -> None:
    """Keep the worker from shrinking the file: the daemon would end with a SIGBUS when it reads there."""
    if hasattr(fcntl, "F_ADD_SEALS"):
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("spyweb-slots", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
