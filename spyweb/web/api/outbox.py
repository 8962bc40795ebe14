"""Handlers for messages that have not arrived: list them, and retry them."""

from __future__ import annotations

from aiohttp import web

from spyweb.model import JobId
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import SERVICE
from spyweb.web.api.query import MOST, number_in_query

MAX_LIMIT = 1_000


async def list_messages(request: web.Request) -> web.Response:
    limit = number_in_query(request, "limit", 30, least=1, most=MAX_LIMIT)
    service, name = request.app[SERVICE], request.query.get("job")
    job = (service.find(name) or JobId(name)) if name else None  # one that is gone may have left some
    return json_answer(await service.messages(job, limit=limit))


async def retry_messages(request: web.Request) -> web.Response:
    """Send one message again, by its id; without one, all."""
    message = number_in_query(request, "id", 0, least=0, most=MOST) or None
    return json_answer({"retried": await request.app[SERVICE].retry_messages(message)})
