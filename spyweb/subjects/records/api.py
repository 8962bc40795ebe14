"""Handlers for the records of monitor jobs, newest first: a page of one job's, or the latest of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from spyweb.model import JobId
from spyweb.store.model.records import RecordFilter
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.records.views import RecordsPage, RecordView, by_job, flatten
from spyweb.web.access.principal import check_may_see, check_may_see_all
from spyweb.web.answer import json_answer
from spyweb.web.api.query import MOST, Natural, Positive, query_of, visible
from spyweb.web.api.route import CSV, Right, Route
from spyweb.web.api.services import SERVICES, service_of
from spyweb.web.event_streams import stream

DEFAULT_LIMIT, MAX_LIMIT = 30, 1_000
TABLE_HEADERS = {
    "Content-Type": f"{CSV}; charset=utf-8; header=present",
    "Content-Disposition": 'attachment; filename="records.csv"',
}
NS_IN_MS = 1_000_000
MOST_MS = MOST // NS_IN_MS

Text = Annotated[str, Meta(description="a text in a field, a keyword or the address, whatever its case")]
Since = Annotated[int, Meta(ge=0, le=MOST_MS, description="epoch milliseconds")]


class RecordsQuery(Struct, frozen=True):
    """Which records, of which job."""

    job_id: str = ""
    limit: Positive = DEFAULT_LIMIT  # over the largest it counts as the largest; the answer says which it was
    after: Natural = 0  # `next_after` of the page before
    q: Text = ""
    since: Since | None = None


class TableQuery(Struct, frozen=True):
    """Which records go into a table."""

    job_id: str = ""
    q: Text = ""
    since: Since | None = None
    spreadsheet: Annotated[bool, Meta(description="mark cells that look like formulas as text")] = True


@Route(
    "GET",
    "/api/records",
    right=Right.READ,
    answer=(RecordsPage, dict[str, list[RecordView]]),
    query=RecordsQuery,
    of_job=True,
)
async def list_records(request: web.Request) -> web.Response:
    """List a page of one job's records; without a job, the newest of all, by job.

    With `q` or `since` it is a page of the records that match, also without a job.  A page may hold fewer than `limit`,
    even none, while `next_after` is set: ask again with it.
    """
    query = query_of(request, RecordsQuery)
    limit, after = min(query.limit, MAX_LIMIT), query.after or None
    if query.q or query.since is not None:
        wanted = _wanted(request, query.job_id, query.q, query.since)
        searched = await service_of(request, RecordSearch).search(wanted, limit=limit, before_ns=after)
        return _page_of(searched.records, limit, searched.before_ns)
    if not query.job_id:
        records = service_of(request, RecordSearch).newest
        found = await visible(
            request,
            lambda most, before: records(None, limit=most, before_ns=before),
            lambda view: (view.job_id, view.timestamp),
            limit=limit,
            before=after,
        )
        return json_answer(by_job(found))
    jobs, name = request.app[SERVICES].catalogue, query.job_id  # also that of a deleted job
    job = jobs.find(name)
    check_may_see(request, job or name)
    page = await service_of(request, RecordSearch).newest(job or JobId(name), limit=limit + 1, before_ns=after)
    if job is None and not page and after is None:
        raise web.HTTPNotFound(text=jobs.no_such_job(name))
    return _page_of(page[:limit], limit, page[limit - 1].timestamp if len(page) > limit else None)


@Route("GET", "/api/records.csv", right=Right.READ, answer=str, query=TableQuery, media=CSV, of_job=True)
async def export_records(request: web.Request) -> web.StreamResponse:
    """Send all records that match as CSV, newest first.  An answer that breaks off is incomplete."""
    query = query_of(request, TableQuery)
    wanted = _wanted(request, query.job_id, query.q, query.since)
    table = service_of(request, RecordSearch).table(wanted, for_spreadsheet=query.spreadsheet)
    return await stream(request, (line.encode() async for line in table), headers=TABLE_HEADERS)


def _wanted(request: web.Request, name: str, text: str, since_ms: int | None) -> RecordFilter:
    """Return the filter of a request.  Raises HTTPForbidden where its principal may not see all of these records."""
    job = (request.app[SERVICES].catalogue.find(name) or JobId(name)) if name else None
    if job is None:
        check_may_see_all(request)
    else:
        check_may_see(request, job)
    since_ns = None if since_ms is None else since_ms * NS_IN_MS
    return RecordFilter(job=job, text=text, since_ns=since_ns)


def _page_of(records: Sequence[RecordView], limit: int, next_after: int | None) -> web.Response:
    shown = [flatten(view) for view in records]
    has_more = next_after is not None
    return json_answer({"records": shown, "limit": limit, "has_more": has_more, "next_after": next_after})
