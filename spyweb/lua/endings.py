"""Translate the end of a run, as its worker reported it or as the loss of the worker implies, into an Ending.

What a script returned is in it as a value; here is also how that is shown to people.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Foreign, RunEnd, Why
from spyweb.model import NULL, Ending, Failure, Outcome
from spyweb.words import cut

MAX_DEPTH = 32  # of a result that is shown
RESULT_KEPT = 200  # characters of a result that stay on record

_OUTCOMES: dict[int, tuple[Outcome, Failure | None]] = {
    Ended.SUCCESS: (Outcome.SUCCESS, None),
    Ended.ERROR: (Outcome.FAILED, Failure.ERROR),
    Ended.CPU: (Outcome.FAILED, Failure.CPU),
    Ended.TIMEOUT: (Outcome.FAILED, Failure.TIMEOUT),
    Ended.CANCELLED: (Outcome.FAILED, Failure.CANCELLED),
    Ended.STOPPED: (Outcome.STOPPED, None),
    Ended.MEMORY: (Outcome.FAILED, Failure.MEMORY),
    Ended.DECLINED: (Outcome.SKIPPED, None),
    Ended.SKIPPED: (Outcome.SKIPPED, None),
}

_REASONS = {
    Why.CPU: "over its CPU limit",
    Why.TIMEOUT: "over its timeout",
    Why.CANCELLED: "cancelled",
    Why.STOPPED: "the daemon stopped",
    Why.MEMORY: "over its memory limit",
}


def from_end(end: RunEnd) -> Ending:
    """Translate the end of a run that has begun, which is never UNBEGUN."""
    outcome, failure = _OUTCOMES[end.ended]
    return Ending(
        outcome=outcome,
        failure=failure,
        reason=as_text(end.reason) if end.reason else "",  # a clean run has neither
        traceback=as_text(end.traceback) if end.traceback else "",
        cpu_ms=end.cpu_ms,
        result=first_value(end.result),
        globals_reset=end.discarded,
        declined=end.ended == Ended.DECLINED,
    )


def failed(reason: str) -> Ending:
    return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=reason)


def ended_for(why: Why, where: str) -> Ending:
    """Return the ending of a run that was asked to end; `where` (its line at that moment) follows the reason."""
    outcome, failure = _OUTCOMES[why]
    return Ending(outcome=outcome, failure=failure, reason=_REASONS[why] + where)


def never_begun(why: Why) -> Ending:
    """Return the ending of a run that was asked to end before it could begin."""
    return ended_for(why, " before it began")


def unstoppable(why: Why, cpu_ms: int = 0) -> Ending:
    """Return the ending of a run that was asked to end and did not: its worker is replaced."""
    ending = ended_for(why, ", and it could not be stopped: its worker was replaced")
    return replace(ending, cpu_ms=cpu_ms, globals_reset=True)


def lost(reason: str, *, guilty: bool, cpu_ms: int = 0) -> Ending:
    if guilty:
        reason += " while this run was being stepped"
    return Ending(outcome=Outcome.LOST, reason=reason, cpu_ms=cpu_ms, globals_reset=True, guilty=guilty)


def as_text(value: object) -> str:
    """Return a Lua string as text for people; bytes that are not UTF-8 are replaced."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def first_value(packed: bytes | None) -> object:
    """Return the first of the values that a script gave, None where Python can't hold it (a table as a key)."""
    if packed is None:
        return None
    try:
        values = wire.unpack(packed)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return values[0] if isinstance(values, list) and values else None


def show_value(value: object, depth: int = 0) -> object:
    """Return a script's value in a form that JSON can hold: bytes as text, a function as the name of its type."""
    if depth > MAX_DEPTH:
        return "..."
    match value:
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case dict():
            return {str(show_value(key)): show_value(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [show_value(item, depth + 1) for item in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case Foreign():
            return f"<{value.name or value.kind.name.lower()}>"
    return None if value is NULL else f"<{type(value).__name__}>"


def result_text(value: object) -> str:
    """Return the beginning of a script's result as the run's row keeps it: a table as JSON, nothing for nil."""
    if value is None:
        return ""
    shown = show_value(value)
    text = shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
    return cut(text, RESULT_KEPT)
