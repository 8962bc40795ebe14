"""Compare the results of a monitor's runs with its settings, and count the runs in a row that fell short.

`empty_after` of them in a row are reported: in the run's row, where the list of jobs and the daemon's health find it
after a restart as well, in the log, and by an incident.  While no run has found anything, one is, without an incident.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from spyweb.errors import STORE_REFUSED
from spyweb.model import Ending, Failure, Monitor, OnEmpty, Outcome, Run
from spyweb.runs.records import NOT_AS_EXPECTED, NOTHING_YET, shortfall_in
from spyweb.store.sqlite.records import Records
from spyweb.store.sqlite.runs import Runs
from spyweb.words import counted, cut

log = structlog.get_logger()

LOOK_BACK = 200  # runs that are read once, to count those in a row
LONGEST_SELECTOR = 60  # characters shown


class Streak(Struct):
    """Counts the runs in a row that fell short, up to the latest."""

    count: int = 0
    has_found: bool = False  # an earlier run has found items, so that there should be some

    def is_reported(self, monitor: Monitor) -> bool:
        """Return whether so many runs in a row are reported: one is enough while none has ever found anything."""
        return self.count >= (monitor.empty_after if self.has_found else 1)


def expects(monitor: Monitor, status: int | None) -> bool:
    return status is None or any(first <= status <= last for first, last in monitor.expect_status)


def shortfall(monitor: Monitor, run: Run | Ending, *, has_found: bool) -> str:
    """Return how a run fell short; an empty text where it did not, or where no page was extracted."""
    status, found = run.http_status, run.items_found
    if found is None:
        return ""
    if not expects(monitor, status):
        return f"http status {status}"
    least = int(has_found) if monitor.min_items is None else monitor.min_items
    if found >= least:
        return ""
    return "no items" if found == 0 else f"{counted(found, 'item')}, {least} are expected"


def count_streak(monitor: Monitor, newest_first: Sequence[Run], *, has_found: bool) -> Streak:
    """Count the runs in a row that fell short; runs that extracted no page, and previews, don't count."""
    streak = Streak(has_found=has_found or any(run.items_found for run in newest_first))
    for run in newest_first:
        if run.items_found is None or run.trigger.is_trial:
            continue
        if not shortfall(monitor, run, has_found=streak.has_found):
            break
        streak.count += 1
    return streak


async def streak_before(monitor: Monitor, run: Run, ending: Ending, runs: Runs, records: Records) -> Streak | None:
    """Count the runs in a row that fell short before this one; None where the store can't be read now."""
    if not shortfall(monitor, ending, has_found=True):
        return Streak(has_found=bool(ending.items_found))
    try:
        earlier = await runs.list(run.job, limit=LOOK_BACK, before=run.id)
        has_records = bool(await records.list(run.job, limit=1))
    except STORE_REFUSED as error:
        log.error("earlier runs could not be read", job=run.job, reason=str(error))
        return None
    return count_streak(monitor, earlier, has_found=has_records)


def judge(monitor: Monitor, run: Run, ending: Ending, streak: Streak) -> Ending:
    """Return the run's ending, with a note where this run and the runs before it fell short."""
    short, was_reported = shortfall(monitor, ending, has_found=streak.has_found), streak.is_reported(monitor)
    streak.has_found |= bool(ending.items_found)
    if not short:
        if was_reported:
            log.info("as expected again", job=run.job, run=run.id, after_runs=streak.count)
        streak.count = 0
        return _with_note(ending, _hint(monitor, ending, streak))
    streak.count += 1
    if not streak.is_reported(monitor) or ending.outcome is not Outcome.SUCCESS:
        return ending
    if monitor.on_empty is OnEmpty.FAIL and streak.count >= monitor.empty_after:
        return replace(ending, outcome=Outcome.FAILED, failure=Failure.ERROR, reason=_note(monitor, short, streak))
    if not was_reported:
        log.warning(
            "a monitor does not find what is expected", job=run.job, run=run.id, reason=_note(monitor, short, streak)
        )
    return _with_note(ending, _note(monitor, short, streak))


def judge_preview(monitor: Monitor, ending: Ending, streak: Streak) -> Ending:
    """Judge a debug run: it is not counted, but the note of earlier runs is repeated while it holds."""
    short = shortfall(monitor, ending, has_found=streak.has_found)
    return _with_note(ending, _note(monitor, short, streak)) if short and streak.is_reported(monitor) else ending


def _note(monitor: Monitor, short: str, streak: Streak) -> str:
    in_a_row = f" in {streak.count} runs in a row" if streak.count > 1 else ""
    return f"{NOT_AS_EXPECTED}{short}{in_a_row}" + (f"; {NOTHING_YET}" if streak.count < monitor.empty_after else "")


def _hint(monitor: Monitor, ending: Ending, streak: Streak) -> str:
    """Return a remark about a page without items where there never were any, which may be right."""
    if streak.has_found or monitor.min_items == 0 or ending.outcome is not Outcome.SUCCESS:
        return ""
    return f"{NOTHING_YET}: check that {cut(monitor.selector, LONGEST_SELECTOR)} matches elements of the page"


def _with_note(ending: Ending, note: str) -> Ending:
    return replace(ending, note="; ".join(filter(None, (note, ending.note))))


def is_short(run: Run | None) -> bool:
    return run is not None and bool(shortfall_in(run.note))
