"""Make the end of a run out of the ends of its cycles.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from spyweb.lua.wire import Why
from spyweb.model import Ending, Failure, Outcome
from spyweb.monitor.context import CycleFailed

_CANCELLED: dict[Why, tuple[Outcome, Failure | None, str]] = {
    Why.TIMEOUT: (Outcome.FAILED, Failure.TIMEOUT, "over its timeout"),
    Why.CANCELLED: (Outcome.FAILED, Failure.CANCELLED, "cancelled"),
    Why.STOPPED: (Outcome.STOPPED, None, "the daemon stopped"),
}


def ended_for(why: Why, stage: str) -> Ending:
    """Return the ending of a cycle that was told to end during that stage."""
    outcome, failure, reason = _CANCELLED[why]
    return Ending(outcome=outcome, failure=failure, reason=f"{reason} in {stage}" if stage else f"{reason}: not begun")


def ending_of(failure: CycleFailed | None) -> Ending:
    if failure is None:
        return Ending(outcome=Outcome.SUCCESS)
    return Ending(outcome=Outcome.FAILED, failure=Failure.ERROR, reason=str(failure), traceback=failure.traceback)


def conclude(endings: Sequence[Ending], why: Why) -> Ending:
    """Join the endings of all cycles: the first that went wrong stands for all and says how many did.

    A run that was told to end has ended for that reason.
    """
    whole = endings[0] if len(endings) == 1 else _together(endings)
    if why is Why.NOTHING:
        return whole
    outcome, failure, reason = _CANCELLED[why]
    first = next((ending.reason for ending in endings if ending.outcome is not Outcome.SUCCESS), reason)
    return replace(whole, outcome=outcome, failure=failure, reason=first)


def _together(endings: Sequence[Ending]) -> Ending:
    wrong = [ending for ending in endings if ending.outcome is not Outcome.SUCCESS]
    first = wrong[0] if wrong else Ending(outcome=Outcome.SUCCESS)
    reason = f"{first.reason} ({len(wrong)} of {len(endings)} cycles)" if wrong else ""
    return replace(
        first,
        reason=reason,
        cpu_ms=sum(ending.cpu_ms for ending in endings),
        globals_reset=any(ending.globals_reset for ending in endings),
        guilty=any(ending.guilty for ending in endings),
        http_status=_worst(ending.http_status for ending in endings),
        items_found=_sum(ending.items_found for ending in endings),
        items_new=_sum(ending.items_new for ending in endings),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _worst(statuses: Iterable[int | None]) -> int | None:
    """Return the status to show first: the highest outside 2xx, else the highest."""
    known = [status for status in statuses if status is not None]
    return max(known, key=lambda status: (not 200 <= status < 300, status), default=None)
