"""Give up root's rights for a while."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

HEADER = struct.pack("=Ii", 0x20080522, 0)  # of capget and capset: their version, this thread
FILE_RIGHTS = 0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells these rights apart")


@contextmanager
def bound_by_file_modes() -> Iterator[None]:
    """Take from this thread, and those it starts, root's right to enter every folder."""
    libc, rights = ctypes.CDLL(None), ctypes.create_string_buffer(24)
    libc.capget(HEADER, rights)
    effective, *others = struct.unpack("=6I", rights)
    assert libc.capset(HEADER, struct.pack("=6I", effective & ~FILE_RIGHTS, *others)) == 0
    try:
        yield
    finally:
        libc.capset(HEADER, rights)
