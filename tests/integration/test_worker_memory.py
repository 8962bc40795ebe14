"""What a worker keeps of the memory that it has freed, tried in a process that allocates as workers do."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from spyweb.confined.child import bare_environment
from spyweb.lua.spawner import MALLOC as VARIABLES

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other mallocs know no such settings")

MALLOC = """
import ctypes, threading

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
libc.malloc_info.argtypes, libc.fflush.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]

def use(pieces, sizes):
    taken = [libc.malloc(size) for size in sizes for _ in range(pieces)]
    for piece in taken:
        libc.free(piece)
"""

KEPT = """
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e used free top".split()]

libc.mallinfo2.restype = Info
use(1, [100])
before = libc.mallinfo2().used
use(1000, range(24, 1033, 16))
print(libc.mallinfo2().used - before)
"""

HEAPS = """
threads = [threading.Thread(target=use, args=(1000, [100, 1000])) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = libc.fdopen(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


def told(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", MALLOC + program],
        env=bare_environment() | VARIABLES,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_thread_keeps_a_megabyte_of_what_was_freed_at_hand_whatever_the_sizes_were() -> None:
    kept = int(told(KEPT))

    assert 500_000 < kept < 1_200_000


def test_threads_share_one_heap_so_that_a_new_leader_uses_what_the_old_one_freed() -> None:
    assert told(HEAPS).count("<heap nr=") == 1
