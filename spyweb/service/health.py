"""How the daemon does: its health, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from spyweb.monitor.expectations import is_short
from spyweb.runs.live import LiveJob, LiveJobs
from spyweb.runs.records import is_drifting
from spyweb.settings import Settings
from spyweb.views.health import Health, HealthProblem, Vitals, find_all_problems, find_warnings, view_health
from spyweb.views.jobs import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthService:
    live: LiveJobs
    states: Callable[[], Iterable[JobState]]  # of all jobs
    vitals: Callable[[], Vitals]
    settings: Callable[[], Settings]

    def health(self) -> Health:
        return view_health(self.vitals(), self.states(), *_count_short_and_drifting(self.live))

    def troubles(self) -> tuple[Sequence[HealthProblem], Sequence[HealthProblem]]:
        """Return the problems and the warnings of the daemon now."""
        return find_troubles(self.vitals, self.live)


def find_troubles(
    vitals: Callable[[], Vitals], live: LiveJobs
) -> tuple[Sequence[HealthProblem], Sequence[HealthProblem]]:
    """Return the problems and the warnings of the daemon now."""
    measured = vitals()
    return find_all_problems(measured), find_warnings(measured, *_count_short_and_drifting(live))


def _count_short_and_drifting(live: LiveJobs) -> tuple[int, int]:
    """Count the monitors that don't find what is expected, and the jobs whose files are not as they left them."""
    drifting = sum(job.spec.enabled and is_drifting(job.last) for job in live)
    return sum(map(_is_short, live)), drifting


def _is_short(job: LiveJob) -> bool:
    """Tell whether this is a monitor at work that does not find what is expected."""
    return is_short(job.last) and job.spec.monitor is not None and job.spec.enabled and not job.cursor.paused
