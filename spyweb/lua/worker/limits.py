"""Interrupts runs: arms a coroutine's hook from another thread, and reads other threads' CPU clocks.

The hook is registered on each run's coroutine but off, since one that is on slows all Lua down, however seldom it
fires.  `arm` makes it fire at the next instruction.  It must be called while that coroutine is being stepped or
is anchored in its VM.  Where lupa's library does not export what this needs, every coroutine counts (MAIN_COUNT).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress

from spyweb.lua.worker.vm import LIBRARY, new_runtime

FOLLOW = 0.010  # seconds between two checks by the follower
TAKE_OVER = 0.020  # seconds; a longer step and the follower takes over
HEAVY = 0.005  # seconds; a VM with a longer step is heavy, and is stepped by helpers ...
LIGHT = 0.001  # seconds; ... until it has had LIGHT_STEPS shorter ones in a row
LIGHT_STEPS = 20
CLOSING = 2.0  # seconds of CPU for closing a VM of any size ...
CLOSING_RATE = 32 << 20  # ... and a second more for so many bytes: generous for the slowest kind of VM
LARGE = 1 << 20  # bytes; closing a larger VM would hold up the messages that wait
LATEST = 0.002  # seconds that an answer waits for others to leave with
FEW = 8  # answers that are sent together while more requests wait: a frame for each costs both ends
AFTERMATH = 0.5  # seconds for on_error, on_finally and deferred functions after a kill
PATIENCE = 1.0  # seconds between a limit and saying that the run is stuck

_COUNT_MASK = 8  # LUA_MASKCOUNT
_FALLBACK_COUNT = 10_000  # instructions


def _find_hook() -> Callable[[int], None]:
    """Return what sets the C function of `debug.sethook` by lua_sethook, both from the library that lupa loads."""
    library = ctypes.CDLL(LIBRARY)
    set_hook, get_hook = library.lua_sethook, library.lua_gethook
    set_hook.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    set_hook.restype = None
    get_hook.argtypes, get_hook.restype = [ctypes.c_void_p], ctypes.c_void_p
    runtime = new_runtime()
    state: bytes = runtime.execute("debug.sethook(print, '', 1000000) return string.format('%p', coroutine.running())")
    function = get_hook(int(state, 16))
    runtime.execute("debug.sethook()")
    return lambda address: set_hook(address, function, _COUNT_MASK, 1)


_set_hook: Callable[[int], None] | None = None
with suppress(OSError, AttributeError):
    _set_hook = _find_hook()
CAN_ARM = _set_hook is not None
MAIN_COUNT = 0 if CAN_ARM else _FALLBACK_COUNT


def arm(address: int) -> None:
    """Make the hook of the coroutine at this address fire now."""
    if _set_hook and address:
        _set_hook(address)


def cpu_since(thread: int, base: float = 0.0, started: float = 0.0) -> float:
    """Return the CPU seconds that a living thread has used since its clock showed `base`, at `started`."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS: as if it had the CPU to itself
        return time.monotonic() - started
    return time.clock_gettime(time.pthread_getcpuclockid(thread)) - base
