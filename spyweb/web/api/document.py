"""Serve the OpenAPI document of the table of routes; it is made when somebody first asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from spyweb import __version__
from spyweb.views.jobs import to_json
from spyweb.web.answer import WholeAnswer
from spyweb.web.api.openapi import make_document
from spyweb.web.api.route import JSON, Right, Route, route

DOCUMENTED: web.AppKey[Sequence[Route]] = web.AppKey("routes in the document")
MADE: web.AppKey[list[bytes]] = web.AppKey("the document, once it is made")

Document = dict[str, object]


@route("GET", "/api/openapi.json", right=Right.READ, answer=Document, of_job=True)
async def show_document(request: web.Request) -> web.Response:
    """Describe the API in OpenAPI 3.1."""
    made = request.app[MADE]
    if not made:
        made.append(await asyncio.to_thread(_make, request.app[DOCUMENTED]))
    return WholeAnswer(body=made[-1], content_type=JSON)


def _make(routes: Sequence[Route]) -> bytes:
    return to_json(make_document(routes, __version__))
