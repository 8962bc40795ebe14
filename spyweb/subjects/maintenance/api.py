"""Handlers for maintenance: what it is now, and what comes next."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.subjects.maintenance.service import MOST_DAYS, USUAL_DAYS, MaintenanceService, MaintenanceView
from spyweb.web.access.principal import principal_of
from spyweb.web.answer import json_answer
from spyweb.web.api.query import query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import service_of


class MaintenanceQuery(Struct, frozen=True):
    """How far ahead."""

    days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] = USUAL_DAYS


@Route("GET", "/api/maintenance", right=Right.READ, answer=MaintenanceView, query=MaintenanceQuery, of_job=True)
async def show_maintenance(request: web.Request) -> web.Response:
    """Show the windows of `[[maintenance]]` that have begun, and those of the next days."""
    days, may_see = query_of(request, MaintenanceQuery).days, principal_of(request).may_see
    return json_answer(await service_of(request, MaintenanceService).view(days, may_see))
