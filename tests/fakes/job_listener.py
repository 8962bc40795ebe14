"""A listener to jobs and runs, which keeps a story of short lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spyweb.errors import Problem
from spyweb.model import JobId, Run
from spyweb.runs.live import JobChange, LiveJob
from spyweb.store.model.runs import SkippedRange
from tests.fakes.harness import tell


@dataclass(slots=True)
class StoryListener:
    story: list[str] = field(default_factory=list)

    def run_waits(self, run: Run) -> None:
        self.story.append(f"{run.id} waits")

    def run_began(self, run: Run, late_ms: int | None) -> None:
        assert run.started_ms is not None
        self.story.append(f"{run.id} began")

    def run_ended(self, run: Run, late_ms: int | None) -> None:
        assert run.ended_ms is not None
        self.story.append(f"{run.id} ended: {tell(run)}")

    def skipped(self, skipped: SkippedRange) -> None:
        self.story.append(f"{skipped.job} {skipped.outcome} x{skipped.count}: {skipped.reason}")

    def changed(self, job: LiveJob, change: JobChange) -> None:
        self.story.append(f"{job.id} {change}")

    def broken(self, job: JobId, problems: Sequence[Problem]) -> None:
        self.story.append(f"{job} broken: {problems[0]}")
