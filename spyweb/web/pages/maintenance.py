"""The page of maintenance: what is now, and what comes next, as a picture."""

from __future__ import annotations

from spyweb.dashboard.maintenance import WIDTH, draw_maintenance
from spyweb.service.maintenance import USUAL_DAYS, MaintenanceService
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown


@DashboardPage(
    "maintenance",
    "maintenance.html",
    place="incidents",
    of_job=True,
    parts={"maintenance-now": PagePart("maintenance_now.html", ("incident", "jobs"))},
)
async def show_maintenance(asked: Asked) -> Shown:
    """Show the windows that have begun, and those of the next days."""
    view = await asked.services[MaintenanceService].view(USUAL_DAYS, asked.principal.may_see)
    values = {
        "picture": draw_maintenance(view, USUAL_DAYS),
        "is_cut": view.is_cut,
        "width": WIDTH,
        "days": USUAL_DAYS,
        "now_ms": asked.services.clock.now_ms(),
    }
    return Shown(title="Maintenance", values=values)
