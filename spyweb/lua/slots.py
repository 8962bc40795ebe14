"""The memory that one worker shares with the daemon: which run each of its threads is stepping at this moment.

It outlives the worker, so that after a death the daemon can read who was being stepped.  Layout: wire.py.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import ExitStack

from spyweb.lua import wire


class Slots:
    def __init__(self) -> None:
        """Raises OSError, and then keeps nothing: whoever is out of descriptors tries again and again."""
        with ExitStack() as if_not:
            self.descriptor = _anonymous_file()
            if_not.callback(os.close, self.descriptor)
            os.ftruncate(self.descriptor, wire.SLOT_BYTES)
            self._memory = mmap.mmap(self.descriptor, wire.SLOT_BYTES)
            if_not.pop_all()

    def stepped(self) -> frozenset[int]:
        """The runs being stepped."""
        with memoryview(self._memory) as view, view.cast("Q") as numbers:
            return frozenset(numbers) - {0}

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("spyweb-slots")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
