"""The daemon's health in words, and what to do about each thing that is wrong with it.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from spyweb.views.health import Health

# A part of what health says → what to do, and the page that shows more.  The first that fits counts.
REMEDIES: Final[Sequence[tuple[str, str, str]]] = (
    ("the scheduler is", "See what holds it up: a slow disk, too few cores, or a stall in the log.", "health"),
    ("nothing is stored", "Free the disk or repair the database; until then no run begins. Then restart.", "health"),
    ("a write has waited", "Look at the disk: it answers too slowly, or not at all.", "health"),
    ("the disk is slow", "See what else uses it, or move data/ to a faster one. The scripts wait for it.", "health"),
    ("no due run could be claimed", "The store refuses: the log says why, and it is tried again.", "health"),
    ("not find what is expected", "Look at these pages: they may have changed, or ask who visits.", "jobs"),
    ("never arrived and", "Send them again once the receiver is well, or leave them to be removed.", "outbox"),
    ("the server's file does not load", "Correct server/init.lua; the version before goes on.", "health"),
    ("no worker is up", "Workers can't be started: look for a lack of memory or processes in the log.", "health"),
    ("the event loop was held up", "The log names the job or the part that did it.", "health"),
    ("what scripts store is refused", "Look at the runs with storage errors; the log has the reason.", "runs"),
    ("held up the daemon too often", "Change the script: it begins again once its file is saved.", "jobs"),
    ("not as their runs left them", "Compare them with what the jobs keep; run the jobs to put them right.", "drift"),
    ("file descriptors are left", "Raise LimitNOFILE of the service, or `ulimit -n`, and restart.", "health"),
    ("for a process", "Raise LimitNOFILE of the service, or `ulimit -n`, and restart; or wait.", "health"),
    ("connection", "Clients open more connections than the server takes: close some, or raise the limit.", "health"),
)
OTHERWISE: Final = "The log says more."


class Advice(Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and what to do."""

    words: str
    remedy: str
    page: str  # "health", "jobs", "runs", "outbox" or "drift": it shows more
    is_problem: bool  # the daemon makes no progress; else something to look at


class HealthAdvice(Struct, frozen=True, kw_only=True):
    words: str  # "Jobs run on time; 2 things to look at"
    is_well: bool
    advice: Sequence[Advice]
    health: Health


def advise(health: Health) -> HealthAdvice:
    advice = [_advice(text, is_problem=True) for text in health.problems]
    advice += [_advice(text, is_problem=False) for text in health.warnings]
    return HealthAdvice(
        words=health_words(health),
        is_well=not advice,
        advice=advice,
        health=health,
    )


def health_words(health: Health) -> str:
    """Say in one line whether jobs run on time, and what else there is."""
    if health.problems:
        more = len(health.problems) + len(health.warnings) - 1
        first = health.problems[0][:1].upper() + health.problems[0][1:]
        return f"{first}, and {more} more" if more else first
    if not health.warnings:
        return "Jobs run on time; all is well"
    if len(health.warnings) == 1:
        return f"Jobs run on time; {health.warnings[0].partition(':')[0]}"
    return f"Jobs run on time; {len(health.warnings)} things to look at"


def _advice(text: str, *, is_problem: bool) -> Advice:
    found = ((remedy, page) for part, remedy, page in REMEDIES if part in text)
    remedy, page = next(found, (OTHERWISE, "health"))
    return Advice(words=text, remedy=remedy, page=page, is_problem=is_problem)
