"""The tasks of a store: how each task of a run ended, for people, and for the run that resumes it."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from typing import Protocol

from spyweb.model import RunId, TaskRow

PlannedTask = tuple[str, str]  # workflow and name; its ordinal is its place among them


class Tasks(Protocol):
    def add(self, run: RunId, rows: Sequence[TaskRow]) -> Future[None]:
        """Record the ends of tasks of a run, together; one that was recorded before is replaced."""

    def of_runs(self, runs: Sequence[RunId]) -> Future[Mapping[RunId, Sequence[TaskRow]]]:
        """Return the tasks of each run that has any, by ordinal: of their outputs the first, as far as people are
        shown them.
        """

    def newest(self, limit: int) -> Future[Sequence[RunId]]:
        """Return the newest runs that have tasks, newest first."""

    def take_over(self, run: RunId, plan: Sequence[PlannedTask]) -> Future[Sequence[TaskRow]]:
        """Record anew, for a run that resumes others, what those have done of its plan; gives these rows.

        All of them or none.  A task is known by its workflow and name, or by a name that only one task has.
        """

    def chain(self, run: RunId) -> Future[Sequence[RunId]]:
        """Return the runs that this one goes on with, oldest first; none where it begins anew."""

    async def prune(self, *, keep: int) -> int:
        """Delete the tasks of all but the `keep` newest runs of each job that have some; gives of how many runs.

        Never holds up a write for long.
        """
