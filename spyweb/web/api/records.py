"""Handlers for the records of monitor jobs, newest first: a page of one job's, or the latest of all."""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from spyweb.model import JobId
from spyweb.views.records import RecordsPage, RecordView, by_job, flatten
from spyweb.web.answer import json_answer
from spyweb.web.api.keys import CATALOGUE
from spyweb.web.api.query import Natural, Positive, check_may_see, query_of, visible
from spyweb.web.api.route import Right, route

DEFAULT_LIMIT, MAX_LIMIT = 30, 1_000


class RecordsQuery(Struct, frozen=True):
    """Which records, of which job."""

    job_id: str = ""
    limit: Positive = DEFAULT_LIMIT  # over the largest it counts as the largest; the answer says which it was
    after: Natural = 0  # `next_after` of the page before


@route(
    "GET",
    "/api/records",
    right=Right.READ,
    answer=(RecordsPage, dict[str, list[RecordView]]),
    query=RecordsQuery,
    of_job=True,
)
async def list_records(request: web.Request) -> web.Response:
    """List a page of one job's records; without a job, the newest of all, by job."""
    query = query_of(request, RecordsQuery)
    limit, after = min(query.limit, MAX_LIMIT), query.after or None
    if not query.job_id:
        records = request.app[CATALOGUE].records
        found = await visible(
            request,
            lambda most, before: records(None, limit=most, before_ns=before),
            lambda view: (view.job_id, view.timestamp),
            limit=limit,
            before=after,
        )
        return json_answer(by_job(found))
    return await _page(request, query.job_id, limit, after)


async def _page(request: web.Request, name: str, limit: int, after: int | None) -> web.Response:
    """List one job's records, also those of a deleted job; past the last one the page is empty."""
    catalogue = request.app[CATALOGUE]
    job = catalogue.find(name)
    check_may_see(request, job or name)
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
