"""The handler for drift: which resources differ from their record."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from spyweb.model import JobId
from spyweb.subjects.drift.service import DriftService
from spyweb.subjects.drift.views import DriftReport
from spyweb.web.answer import json_answer
from spyweb.web.api.query import query_of
from spyweb.web.api.route import Right, Route
from spyweb.web.api.services import SERVICES


class DriftQuery(Struct, frozen=True):
    """The job whose resources are compared; those of a removed job are only counted."""

    job: str | None = None


@Route("GET", "/api/drift", right=Right.READ, answer=DriftReport, query=DriftQuery, at_owner="must")
async def check_drift(request: web.Request) -> web.Response:
    """Compare files and commands with what `file.*` and commands have recorded, of one job or of all."""
    name, services = query_of(request, DriftQuery).job, request.app[SERVICES]
    return json_answer(
        await services[DriftService].check(None if name is None else services.catalogue.find(name) or JobId(name))
    )
