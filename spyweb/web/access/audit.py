"""The audit trail: what clients did, who and when.

A line is added once the answer is decided, and no request waits for it.  Failed sign-ins are recorded at a bounded
rate, so that they push nothing else out of a trail that keeps a bounded number of lines.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable

import structlog
from msgspec.structs import asdict, replace

from spyweb.clock import Clock
from spyweb.limits import AUDIT_PENDING
from spyweb.logs.output import tell_refusal
from spyweb.store.model.access import AuditLine, NewAuditLine
from spyweb.store.sqlite.keys import AuditTrail

log = structlog.get_logger()

FAILURES_AT_ONCE = 20  # lines about failures that may follow each other; then one a minute
FAILURE_S = 60.0


class AuditService:
    def __init__(self, trail: AuditTrail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._pending = 0
        self._lost = 0  # lines that the store did not take
        self._untold = 0  # failures since the last line about one
        self._credit = float(FAILURES_AT_ONCE)
        self._credit_at = clock.monotonic()
        self.listener: Callable[[NewAuditLine], None] | None = None  # called with each line

    async def lines(self, *, limit: int, before: int | None = None) -> list[AuditLine]:
        """Return lines, newest first, older than the one with this id."""
        return await self._trail.list(limit=limit, before=before)

    def note(self, line: NewAuditLine) -> None:
        """Add a line, in the log as well."""
        self.tell(line)
        if self.listener:
            self.listener(line)
        if self._pending >= AUDIT_PENDING:  # the store takes nothing: the log has it
            self._lost += 1
            return
        self._pending += 1
        self._trail.add(line).add_done_callback(self._added)

    def tell(self, line: NewAuditLine) -> None:
        log.info("audit", **{name: value for name, value in asdict(line).items() if value != "" and name != "at_ms"})

    def note_failure(self, line: NewAuditLine) -> None:
        """Add a line about a wrong key; where there are too many, the next line counts them."""
        now = self._clock.monotonic()
        self._credit = min(self._credit + (now - self._credit_at) / FAILURE_S, FAILURES_AT_ONCE)
        self._credit_at = now
        self._untold += 1
        if self._credit >= 1:
            self._credit -= 1
            times, self._untold = self._untold, 0
            self.note(replace(line, times=times))

    def _added(self, write: Future[None]) -> None:
        self._pending -= 1
        error = None if write.cancelled() else write.exception()
        if error:
            self._lost += 1
            tell_refusal("a line of the audit trail was not stored", error, lost=self._lost)
