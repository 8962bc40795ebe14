"""Answer what maintenance is, and what comes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spyweb.clock import Clock
from spyweb.cooperative import run_in_slices
from spyweb.model import JobId
from spyweb.runs.live import LiveJobs
from spyweb.settings.units import DAY_MS
from spyweb.specs.maintenance import MaintenanceCalendar
from spyweb.subjects.maintenance.views import MaintenanceView, view_maintenance
from spyweb.views.jobs import MaySee, anything

USUAL_DAYS, MOST_DAYS = 7, 366  # of the maintenance that is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceService:
    live: LiveJobs
    windows: Callable[[], MaintenanceCalendar]
    clock: Clock

    def until(self, job: JobId) -> int | None:
        """Return when the maintenance ends in which a job is now."""
        return self.windows().until(job, self.clock.now_ms())

    async def view(self, days: int = USUAL_DAYS, may_see: MaySee = anything) -> MaintenanceView:
        """Show the windows that have begun, and those that begin in so many days, as far as somebody may see them."""
        now_ms = self.clock.now_ms()
        jobs = [job.id for job in self.live]
        steps = view_maintenance(self.windows().rules, jobs, now_ms, now_ms + days * DAY_MS, may_see)
        return await run_in_slices(self.clock, steps)
