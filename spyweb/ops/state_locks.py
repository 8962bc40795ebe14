"""The ops state.lock and its relatives: named locks between runs.

A lock becomes free when its run ends, however it ends; its lease only limits how long it outlasts a crash of the
daemon.  There are two forms.  With only a timeout the holder is the run, and `lock` waits; with a named holder nothing
waits.
"""

from __future__ import annotations

import math

from spyweb.errors import OpError
from spyweb.lua.session import Results
from spyweb.ops.arguments import Mismatch, Text, Value, parse_number, read_number
from spyweb.ops.locks import LockRequest
from spyweb.ops.op import OpEffect, OpFamily
from spyweb.ops.positional import CallRefused, StateCall, positional, writing
from spyweb.ops.rules.values import shown
from spyweb.ops.world import Call
from spyweb.store.model.entries import Held

FAMILY = OpFamily(name="locks", errors="A lock that is taken returns false and a text that names its holder.")

DEFAULT_TIMEOUT = 30
LONGEST_TIMEOUT = 366 * 86_400.0  # seconds: longer than any run; timers can't take infinity


@writing(
    "state.try_lock",
    failure=False,
    effect=OpEffect.WRITES,
    types="(name: string, holder?: string, ttl?: number): boolean ok, string? message",
    overloads=("fun(name: string, ttl?: number): boolean, string?",),
)
async def try_lock(state: StateCall, name: Text, holder: Value = None, ttl: Value = None) -> Results:
    """Acquire a lock if it is free: true, or false and its holder.  It outlasts a crash by `ttl` seconds."""
    request = _request(state, name, *terms_of(state.function, holder, ttl))
    held = await state.call.world.locks.take(request)
    return (True,) if held is None else (False, _refusal(state, held))


@writing(
    "state.lock",
    failure=False,
    effect=OpEffect.WRITES,
    types="(name: string, holder?: string, timeout?: number): boolean ok, string? message",
    overloads=("fun(name: string, timeout?: number): boolean, string?",),
)
async def lock(state: StateCall, name: Text, holder: Value = None, timeout: Value = None) -> Results:
    """Acquire a lock: true, or false and its holder.

    Without a holder it waits for the lock, up to `timeout` seconds.  With a holder it doesn't wait, and a lock that is
    taken is logged as well.
    """
    named, seconds = terms_of(state.function, holder, timeout)
    locks, request = state.call.world.locks, _request(state, name, named, seconds)
    held = await (locks.wait(request, seconds) if named is None else locks.take(request))
    if held is None:
        return (True,)
    reason = _refusal(state, held)
    if named is not None:  # its results may go unchecked
        if state.call.world.state.strict_locks:
            raise OpError(reason)
        state.call.log("warn", reason.encode())
    return False, reason


@writing(
    "state.unlock",
    failure=False,
    effect=OpEffect.WRITES,
    types="(name: string, holder?: string): boolean ok, string? message",
)
async def unlock(state: StateCall, name: Text, holder: Text | None = None) -> Results:
    """Release a lock: true, or false and a text when another holder has it, or it is free."""
    own = _own_name(state.call) if holder is None else holder
    held = await state.call.world.store.locks.release(name, own)
    if held is not None and held.holder == own:
        return (True,)
    by = "not held" if held is None else f"held by '{shown(held.holder)}', not by '{shown(own)}'"
    return False, f"{state.function}: lock '{shown(name)}' is {by}"


@positional("state.is_locked", failure=False, types="(name: string): boolean is_locked, string? holder")
async def is_locked(state: StateCall, name: Text) -> Results:
    """Return whether a lock is held, and its holder."""
    held = await state.call.world.store.locks.holder(name)
    return (False, None) if held is None else (True, held.holder)


def terms_of(function: str, holder: object, timeout: object) -> tuple[bytes | None, float]:
    """Return the holder, None for the run itself, and the timeout in seconds, which may be NaN.

    A number, or only a numeric text, is a timeout, another text a holder.

    Raises OpError.
    """
    is_holder = isinstance(holder, bytes) and (timeout is not None or parse_number(holder) is None)
    position, given = (3, timeout) if holder is None or is_holder else (2, holder)
    try:
        seconds = DEFAULT_TIMEOUT if given is None else read_number(given)
    except Mismatch as mismatch:
        raise OpError(f"bad argument #{position} to '{function}' ({mismatch})") from None
    if not math.isnan(seconds):
        seconds = min(max(float(seconds), 0.0), LONGEST_TIMEOUT)
    return holder if isinstance(holder, bytes) and is_holder else None, seconds


def _request(state: StateCall, name: bytes, holder: bytes | None, timeout: float) -> LockRequest:
    """Build the request for a lock.  Raises CallRefused for names that are too long, and for NaN as the timeout."""
    if math.isnan(timeout):
        raise CallRefused(f"lock '{shown(name)}': the timeout is NaN")
    state.short("lock", name)
    holder = _own_name(state.call) if holder is None else state.short("lock", holder)
    call, lease_ms = state.call, math.ceil(timeout * 1000)
    return LockRequest(name=name, holder=holder, run=call.run, lease_ms=lease_ms, lineage=call.lineage)


def _own_name(call: Call) -> bytes:
    branch = f".{call.lineage[0]}" if call.lineage else ""
    return f"{call.job}#{call.run}{branch}".encode()


def _refusal(state: StateCall, held: Held) -> str:
    is_own = state.call.world.locks.is_own(held, state.call.run, state.call.lineage)
    holder = f"this run already, as '{shown(held.holder)}'" if is_own else f"'{shown(held.holder)}'"
    return f"{state.function}: lock '{shown(held.name)}' is held by {holder}"
