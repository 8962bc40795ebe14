"""Interrupts runs: arms a coroutine's hook from another thread, and reads other threads' CPU clocks.

The hook is registered on each run's coroutine but off, since one that is on slows all Lua down, however seldom it
fires.  `arm` makes it fire at the next instruction.  It must be called while that coroutine is being stepped or
is anchored in its VM.  Where lupa's library does not export what this needs, every coroutine counts (MAIN_COUNT).
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress

from spyweb.lua.worker.vm import LIBRARY, new_runtime

FOLLOW = 0.010  # seconds between two looks of the follower
TAKE_OVER = 0.020  # seconds; a longer step and the follower takes over
HEAVY = 0.005  # seconds; a VM with a longer step is heavy, and is stepped by helpers ...
LIGHT = 0.001  # seconds; ... until it has had LIGHT_STEPS shorter ones in a row
LIGHT_STEPS = 20
CLOSING = 2.0  # seconds of CPU for closing a VM, whatever its size ...
CLOSING_RATE = 32 << 20  # ... and a second more for so many bytes: generous for the slowest kind of VM
LARGE = 1 << 20  # bytes; closing a larger VM would hold up the messages that wait
LATEST = 0.002  # seconds that an answer waits for others to leave with
FEW = 8  # answers that are sent together while more requests wait: a frame for each costs both ends
AFTERMATH = 0.5  # seconds for on_error, on_finally and deferred functions after a kill
PATIENCE = 1.0  # seconds between a limit and saying that the run is stuck

_COUNT_MASK = 8  # LUA_MASKCOUNT
_FALLBACK_COUNT = 10_000  # instructions


class _Hook:
    """Sets a hook with lua_sethook and the C function of `debug.sethook`, both from the library that lupa loads."""

    def __init__(self) -> None:
        library = ctypes.CDLL(LIBRARY)
        self._set = library.lua_sethook
        self._set.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        self._set.restype = None
        get = library.lua_gethook
        get.argtypes, get.restype = [ctypes.c_void_p], ctypes.c_void_p
        runtime = new_runtime()
        state: bytes = runtime.execute(
            "debug.sethook(print, '', 1000000) return string.format('%p', coroutine.running())"
        )
        self._function = get(int(state, 16))
        runtime.execute("debug.sethook()")

    def arm(self, address: int) -> None:
        self._set(address, self._function, _COUNT_MASK, 1)


_hook: _Hook | None = None
with suppress(OSError, AttributeError):
    _hook = _Hook()
CAN_ARM = _hook is not None
MAIN_COUNT = 0 if CAN_ARM else _FALLBACK_COUNT


def arm(address: int) -> None:
    """Make the hook of the coroutine at this address fire now."""
    if _hook and address:
        _hook.arm(address)


def cpu_of(thread: int) -> float:
    """Return the CPU seconds that a living thread of this process has used, or the time where the system can't tell."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS: as if it had the CPU to itself
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


def cpu_since(thread: int, base: float, started: float) -> float:
    """Return the CPU seconds that a living thread has used since its clock showed `base`, at `started`."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS: as if it had the CPU to itself
        return time.monotonic() - started
    return time.clock_gettime(time.pthread_getcpuclockid(thread)) - base
