"""Write cursors that nobody else has moved meanwhile.

A cursor is computed from one that was read before.  Each write says which one that was; if the store has another, it
writes nothing, and the change is decided again from that one.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from spyweb.errors import CursorMoved
from spyweb.model import Cursor, JobId
from spyweb.store.model.runs import Change
from spyweb.store.sqlite.runs import Runs

log = structlog.get_logger()


async def write_cursors(
    runs: Runs, decide: Callable[[], Change], go_by: Callable[[JobId, Cursor | None], None]
) -> Change:
    """Record the change that `decide` returns, and return that change.

    If a cursor is not as expected, `go_by` gets the one that is on record, and `decide` is called again: however often,
    since each refusal means that another process has made progress.
    """
    while True:
        change = decide()
        if not change.cursors:
            return change
        try:
            await runs.record(change)
        except CursorMoved as moved:
            log.warning("a schedule was changed elsewhere: it is decided again from what is on record", job=moved.job)
            go_by(JobId(moved.job), found_by(moved))
        else:
            return change


def found_by(moved: CursorMoved) -> Cursor | None:
    """Return the cursor on record, or None if there is none."""
    return moved.found if isinstance(moved.found, Cursor) else None
