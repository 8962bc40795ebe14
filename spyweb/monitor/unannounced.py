"""Keep track of new items that are still to be announced, because the cycle that stored them ended early.

What is new is owed from the transaction that stores it until the one that puts its messages into the outbox.  A daemon
that dies in between, and a cycle that is killed or fails there, leave it owed: the job's next cycle announces it, with
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from spyweb.errors import StoreError
from spyweb.model import JobId
from spyweb.store.records_protocol import Record, Records

log = structlog.get_logger()

MOST = 1_000  # records read at once


@dataclass(slots=True)
class UnannouncedRecords:
    """Finds the items of one job that are still to be announced."""

    job: JobId
    records: Records
    _left: Sequence[Record] = ()  # by cycles that are over
    _may_be_more: bool = True  # an earlier daemon may have left some
    _at_risk: int = 0  # cycles that have new items in hand
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def at_risk(self) -> AsyncIterator[None]:
        """Mark that a cycle stores and announces: if it ends early, its items are still to be announced."""
        async with self._looking:
            if self._may_be_more and not self._at_risk:  # else what the others have in hand would be among it
                await self._look()
        self._at_risk += 1
        try:
            yield
        except BaseException:
            self._may_be_more = True
            raise
        finally:
            self._at_risk -= 1

    def take(self) -> Sequence[Record]:
        """Return what earlier cycles have left; the next call returns nothing."""
        left, self._left = self._left, ()
        return left

    async def _look(self) -> None:
        try:
            self._left = await self.records.owed(self.job, MOST)
            self._may_be_more = len(self._left) == MOST
        except StoreError as error:
            log.error("what is still to be announced could not be read yet", job=self.job, reason=str(error))
