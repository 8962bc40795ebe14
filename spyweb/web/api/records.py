"""Handlers for the records of monitor jobs, newest first: a page of one job's, or the latest of all."""

from __future__ import annotations

from aiohttp import web

from spyweb.model import JobId
from spyweb.views.records import by_job, flatten
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import CATALOGUE
from spyweb.web.api.query import MOST

DEFAULT_LIMIT, MAX_LIMIT = 30, 1_000


async def list_records(request: web.Request) -> web.Response:
    """List a page of records.  A limit over the largest counts as the largest; the answer says which it was."""
    limit = _number(request, "limit", DEFAULT_LIMIT, least=1, most=MAX_LIMIT)
    after = _number(request, "after", 0, least=0, most=MOST) or None
    name = request.query.get("job_id")
    if not name:
        return json_answer(by_job(await request.app[CATALOGUE].records(None, limit=limit, before_ns=after)))
    return await _page(request, name, limit, after)


async def _page(request: web.Request, name: str, limit: int, after: int | None) -> web.Response:
    """List one job's records, also those of a deleted job; past the last one the page is empty."""
    catalogue = request.app[CATALOGUE]
    job = catalogue.find(name)
    found = await catalogue.records(job or JobId(name), limit=limit + 1, before_ns=after)
    if job is None and not found and after is None:
        raise web.HTTPNotFound(text=catalogue.no_such_job(name))
    page, has_more = found[:limit], len(found) > limit
    return json_answer(
        {
            "records": [flatten(view) for view in page],
            "limit": limit,
            "has_more": has_more,
            "next_after": page[-1].timestamp if has_more else None,
        }
    )


def _number(request: web.Request, name: str, default: int, *, least: int, most: int) -> int:
    text = request.query.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= least):
        raise web.HTTPBadRequest(text=f"{name}: expected a whole number from {least}")
    return min(int(text), most)
