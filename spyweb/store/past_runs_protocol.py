"""Questions of people about the runs on record: many at once in few bytes, or those that match.

Each is answered within a bound: who asks for more goes on where the answer ends.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from spyweb.model import JobId, Outcome, Run, RunId, RunMark, TriggerType

NO_TIME = -1  # in a strip: the run took no time that is known


class StripWish(NamedTuple):
    """A job whose newest runs are asked for."""

    job: JobId
    late_ms: int  # a success that began later than this is a late one


class RunStrip(Struct, frozen=True, kw_only=True):
    """The newest runs of a job, oldest first."""

    ids: Sequence[int] = ()
    marks: str = ""  # a RunMark each
    took_ms: Sequence[int] = ()  # NO_TIME where it took none, or is not over


class FailingSeries(Struct, frozen=True, kw_only=True):
    """The unbroken series of failures with which the runs of a job end so far."""

    since_ms: int
    count: int  # retries of a run that failed are not counted
    first: RunId


class RunFilter(Struct, frozen=True, kw_only=True):
    """The runs that somebody looks for; an empty sequence stands for all."""

    job: JobId | None = None
    outcomes: Sequence[Outcome] = ()
    triggers: Sequence[TriggerType] = ()
    began_skipped: bool = True  # also those that began, and were then skipped by their script or a condition
    since_ms: int | None = None
    until_ms: int | None = None  # not included


class RunPage(Struct, frozen=True, kw_only=True):
    """The runs that were found, newest first, and where to go on."""

    runs: Sequence[Run]
    before: RunId | None  # None: there are no more


class RunPoint(NamedTuple):
    """A run as a chart shows it, in JSON `[run, at_ms, took_ms, late_ms, mark]`."""

    run: int
    at_ms: int  # when it began
    took_ms: int
    late_ms: int  # after its due time; 0 where it had none, or is a retry
    mark: RunMark


class PastRuns(Protocol):
    def find(self, run: RunId) -> Future[Run | None]: ...

    def strips(self, jobs: Sequence[StripWish], count: int) -> Future[Mapping[JobId, RunStrip]]:
        """Return the newest `count` runs of each of these jobs; a range of due times that did not run counts as one."""

    def failing(self, jobs: Sequence[JobId]) -> Future[Mapping[JobId, FailingSeries]]:
        """Return the series of failures of those of these jobs whose latest run did not succeed.

        A run that was cancelled, stopped or skipped neither belongs to a series nor ends it.  Of a very long series
        the latest part is returned.
        """

    def search(self, wanted: RunFilter, *, limit: int, before: RunId | None = None) -> Future[RunPage]:
        """Return runs that match, newest first.

        A page may hold fewer than there are, even none: then a part of the record was searched, and `before` leads on.
        """

    def neighbours(self, job: JobId, run: RunId) -> Future[tuple[RunId | None, RunId | None]]:
        """Return the runs of a job before and after this one."""

    def points(self, job: JobId, *, since_ms: int, limit: int, before: RunId | None = None) -> Future[list[RunPoint]]:
        """Return the runs of a job that began since this moment and have ended, newest first."""

    def followers(self, run: RunId, *, limit: int) -> Future[list[Run]]:
        """Return the runs that came of this one, oldest first: its retries, and what its end or a change of it started.

        They are looked for among those that came soon after it.
        """
