"""Notice that a job was renamed: the new one begins without the values that the older one has stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import structlog

from spyweb.errors import Problem
from spyweb.model import JobId
from spyweb.runs.live import LiveJob

log = structlog.get_logger()


class Renames:
    """Remembers jobs that have gone; one that comes with the content of one, or as the only one went, may be it."""

    def __init__(self, keeps_values: Callable[[JobId], Awaitable[bool]]) -> None:
        self._keeps_values = keeps_values
        self._gone: dict[str, JobId] = {}  # by digest
        self._older: dict[JobId, JobId] = {}  # of live jobs that may be older ones, whose values wait

    def note_gone(self, job: LiveJob) -> None:
        self._gone[job.digest] = job.id
        self._older.pop(job.id, None)

    async def look(self, new: Sequence[LiveJob], gone: Sequence[JobId]) -> None:
        """Look through jobs that have come, while others have gone, and say how they get the values of those."""
        for job in new:
            only = gone[0] if len(new) == len(gone) == 1 else None
            older = self._gone.pop(job.digest, only)
            if older and older != job.id and await self._keeps_values(older):
                self._older[job.id] = older
                job.warnings = (*job.warnings, *self.warnings(job))
                log.warning("a job may have been renamed", job=job.id, problem=reason_of(older, job.id))

    async def forget_moved(self) -> None:
        """Forget those that have got the values."""
        for job, older in list(self._older.items()):
            if not await self._keeps_values(older):
                del self._older[job]

    def warnings(self, job: LiveJob) -> tuple[Problem, ...]:
        older = self._older.get(job.id)
        return (Problem(job.spec.path, None, None, reason_of(older, job.id), is_warning=True),) if older else ()


def reason_of(older: JobId, job: JobId) -> str:
    return (
        f"if this is {older}, renamed, its stored values are still there: `spyweb state move {older} {job}` moves them"
    )
