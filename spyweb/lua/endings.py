"""How runs end, in the daemon's words: translated from what a worker told, or concluded from the loss of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Why
from spyweb.model import Ending, Failure, Outcome

_OUTCOMES: dict[int, tuple[Outcome, Failure | None]] = {
    Ended.SUCCESS: (Outcome.SUCCESS, None),
    Ended.ERROR: (Outcome.FAILED, Failure.ERROR),
    Ended.CPU: (Outcome.FAILED, Failure.CPU),
    Ended.TIMEOUT: (Outcome.FAILED, Failure.TIMEOUT),
    Ended.CANCELLED: (Outcome.FAILED, Failure.CANCELLED),
    Ended.STOPPED: (Outcome.STOPPED, None),
    Ended.MEMORY: (Outcome.FAILED, Failure.MEMORY),
    Ended.SKIPPED: (Outcome.SKIPPED, None),
}

_ENDED_FOR = {
    Why.CPU: Ended.CPU,
    Why.TIMEOUT: Ended.TIMEOUT,
    Why.CANCELLED: Ended.CANCELLED,
    Why.STOPPED: Ended.STOPPED,
    Why.MEMORY: Ended.MEMORY,
}

_EXCUSES = {
    Why.CPU: "over its CPU limit",
    Why.TIMEOUT: "over its timeout",
    Why.CANCELLED: "cancelled",
    Why.STOPPED: "the daemon stopped",
    Why.MEMORY: "over its memory limit",
}


def from_end(message: Sequence[object]) -> Ending:
    """From an END: run, Ended, reason, traceback, CPU in ms, packed result or None, whether the VM is discarded."""
    _, _, ended, reason, traceback, cpu_ms, result, discarded = message
    outcome, failure = _OUTCOMES[ended]  # type: ignore[index]
    return Ending(
        outcome=outcome,
        failure=failure,
        reason=as_text(reason) if reason else "",  # a clean run has neither
        traceback=as_text(traceback) if traceback else "",
        cpu_ms=int(cpu_ms),  # type: ignore[call-overload]
        result=_shown(result),
        globals_reset=bool(discarded),
    )


def did_not_compile(reason: str) -> Ending:
    return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=reason)


def never_begun(why: Why) -> Ending:
    """It was told to end before it could begin."""
    outcome, failure = _OUTCOMES[_ENDED_FOR[why]]
    return Ending(outcome=outcome, failure=failure, reason=f"{_EXCUSES[why]} before it began")


def unstoppable(why: Why) -> Ending:
    """It was to end for this reason and did not: it goes with its worker."""
    outcome, failure = _OUTCOMES[_ENDED_FOR[why]]
    reason = f"{_EXCUSES[why]}, and it could not be stopped: its worker was replaced"
    return Ending(outcome=outcome, failure=failure, reason=reason, globals_reset=True)


def lost(reason: str, *, guilty: bool) -> Ending:
    if guilty:
        reason += " while this run was being stepped"
    return Ending(outcome=Outcome.LOST, reason=reason, globals_reset=True, guilty=guilty)


def as_text(value: object) -> str:
    """What Lua calls text is bytes; people are shown what can be read of it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _shown(packed: object) -> object:
    """The first value that the script returned; nothing where Python can't hold it (a table as a key)."""
    if not isinstance(packed, bytes):
        return None
    try:
        values = wire.unpack(packed)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return values[0] if values else None
