"""Decide whether a daemon is ready: its parts make progress, and it is neither starting nor stopping.  Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from spyweb.views.health import Vitals, find_all_problems


class Readiness(Struct, frozen=True, kw_only=True):
    ready: bool
    reasons: list[str]  # why it is not


def view_readiness(vitals: Vitals, *, stage: str, probe: str) -> Readiness:
    """`stage` says what the daemon is still, or already, doing; `probe` what was wrong with a write that was tried."""
    reasons = list(_reasons(vitals, stage, probe))
    return Readiness(ready=not reasons, reasons=reasons)


def _reasons(vitals: Vitals, stage: str, probe: str) -> Iterator[str]:
    if stage:
        yield stage
    problems = find_all_problems(vitals)
    yield from problems
    if probe and not vitals.store.failed:
        yield probe
    if not vitals.pool.answering:
        yield "no worker answers"
