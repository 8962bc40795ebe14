"""The ops state.lock and its relatives: named locks between runs.

A lock becomes free when its run ends, however it ends; its lease only limits how long it outlasts a crash of the
daemon.  There are two forms.  With only a timeout the holder is the run, and `lock` waits; with a named holder nothing
waits.
"""

from __future__ import annotations

import math

from msgspec import Struct

from spyweb.errors import OpError
from spyweb.lua.session import Results
from spyweb.ops.arguments import Mismatch, Text, Value, parse_number, read_number
from spyweb.ops.locks import LockRequest
from spyweb.ops.op import WRITE_STATE, OpEffect, OpFamily
from spyweb.ops.positional import CallFailed, PositionalCall, positional
from spyweb.ops.rules.values import shown
from spyweb.ops.world import Call
from spyweb.store.model.entries import Held

FAMILY = OpFamily(name="locks", errors="A lock that is not to be had gives false and a text that names its holder.")

DEFAULT_TIMEOUT = 30
LONGEST_TIMEOUT = 366 * 86_400.0  # seconds: longer than any run; timers can't take infinity


class LockTerms(Struct, frozen=True):
    """The arguments after a lock's name, told apart."""

    holder: bytes | None  # None: the run itself
    timeout: float  # seconds; `_request`, which knows the lock, refuses NaN


@positional(
    "state.try_lock",
    failure=False,
    needs=WRITE_STATE,
    effect=OpEffect.WRITES,
    types="(name: string, holder?: string, ttl?: number): boolean ok, string? message",
    overloads=("fun(name: string, ttl?: number): boolean, string?",),
)
async def try_lock(state_call: PositionalCall, name: Text, holder: Value = None, ttl: Value = None) -> Results:
    """Take a lock if it is free: true, or false and who has it.  `ttl` seconds are how long it outlasts a crash."""
    request = _request(state_call, name, terms_of(state_call.function, holder, ttl))
    held = await state_call.call.world.locks.take(request)
    return (True,) if held is None else (False, _refusal(state_call, held))


@positional(
    "state.lock",
    failure=False,
    needs=WRITE_STATE,
    effect=OpEffect.WRITES,
    types="(name: string, holder?: string, timeout?: number): boolean ok, string? message",
    overloads=("fun(name: string, timeout?: number): boolean, string?",),
)
async def lock(state_call: PositionalCall, name: Text, holder: Value = None, timeout: Value = None) -> Results:
    """Take a lock: true, or false and who has it.

    Without a holder it waits for the lock, up to `timeout` seconds.  With one it doesn't wait, and a lock that is not
    to be had is logged as well.
    """
    terms, locks = terms_of(state_call.function, holder, timeout), state_call.call.world.locks
    request = _request(state_call, name, terms)
    held = await (locks.wait(request, terms.timeout) if terms.holder is None else locks.take(request))
    return (True,) if held is None else (False, _complain(state_call, terms, held))


@positional(
    "state.unlock",
    failure=False,
    needs=WRITE_STATE,
    effect=OpEffect.WRITES,
    types="(name: string, holder?: string): boolean ok, string? message",
)
async def unlock(state_call: PositionalCall, name: Text, holder: Text | None = None) -> Results:
    """Give a lock back: true, or false and a text when somebody else has it, or nobody."""
    own = _own_name(state_call.call) if holder is None else holder
    held = await state_call.call.world.store.locks.release(name, own)
    if held is None:
        return False, f"{state_call.function}: lock '{shown(name)}' is not held"
    if held.holder != own:
        return False, f"{_refusal(state_call, held)}, not by '{shown(own)}'"
    return (True,)


@positional("state.is_locked", failure=False, types="(name: string): boolean is_locked, string? holder")
async def is_locked(state_call: PositionalCall, name: Text) -> Results:
    """Whether somebody has a lock, and who."""
    held = await state_call.call.world.store.locks.holder(name)
    return (False, None) if held is None else (True, held.holder)


def terms_of(function: str, holder: object, timeout: object) -> LockTerms:
    """Tell the arguments apart: a number, or only a numeric text, is a timeout, another text a holder.

    Raises OpError.
    """
    if holder is None:
        return LockTerms(None, _seconds(function, 3, timeout))
    if isinstance(holder, bytes) and (timeout is not None or parse_number(holder) is None):
        return LockTerms(holder, _seconds(function, 3, timeout))
    return LockTerms(None, _seconds(function, 2, holder))


def _seconds(function: str, position: int, given: object) -> float:
    if given is None:
        return DEFAULT_TIMEOUT
    try:
        seconds = read_number(given)
    except Mismatch as mismatch:
        raise OpError(f"bad argument #{position} to '{function}' ({mismatch})") from None
    return seconds if math.isnan(seconds) else min(max(float(seconds), 0.0), LONGEST_TIMEOUT)


def _request(state_call: PositionalCall, name: bytes, terms: LockTerms) -> LockRequest:
    """Build the request for a lock.  Raises CallFailed for names that are too long, and for NaN as the timeout."""
    if math.isnan(terms.timeout):
        raise CallFailed((False, f"{state_call.function}: lock '{shown(name)}': the timeout is NaN"))
    holder = _own_name(state_call.call) if terms.holder is None else terms.holder
    limit = state_call.call.world.state.max_key_bytes
    for text in (name, terms.holder or b""):
        if len(text) > limit:
            reason = f"lock '{shown(text)}': {len(text)} bytes are over the limit of {limit}"
            raise CallFailed((False, f"{state_call.function}: {reason}"))
    call, lease_ms = state_call.call, math.ceil(terms.timeout * 1000)
    return LockRequest(name=name, holder=holder, run=call.run, lease_ms=lease_ms, lineage=call.lineage)


def _own_name(call: Call) -> bytes:
    branch = f".{call.lineage[0]}" if call.lineage else ""
    return f"{call.job}#{call.run}{branch}".encode()


def _complain(state_call: PositionalCall, terms: LockTerms, held: Held) -> str:
    """Return the text for a refused lock; with a named holder also log or raise it, since results may go unchecked."""
    reason = _refusal(state_call, held)
    if terms.holder is not None:
        if state_call.call.world.state.strict_locks:
            raise OpError(reason)
        state_call.call.log("warn", reason.encode())
    return reason


def _refusal(state_call: PositionalCall, held: Held) -> str:
    call = state_call.call
    if state_call.function != "state.unlock" and call.world.locks.is_own(held, call.run, call.lineage):
        return (
            f"{state_call.function}: lock '{shown(held.name)}' is held by this run already, as '{shown(held.holder)}'"
        )
    return f"{state_call.function}: lock '{shown(held.name)}' is held by '{shown(held.holder)}'"
