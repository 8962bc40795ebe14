"""Records: what monitors have found, searched and as a table to download."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from spyweb.model import JobId
from spyweb.store.model.records import RecordFilter
from spyweb.subjects.records.service import RecordSearch
from spyweb.subjects.records.views import RecordView
from spyweb.web.api.query import ListQuery
from spyweb.web.pages.page import Asked, DashboardPage, PagePart, Shown

RECORDS = 30
ROUNDS = 10  # pages that are searched for a principal who may see some jobs only
CHIPS = 30
TABLE = "/api/records.csv?"
MOST_FIELDS = 24  # shown of a record, and at most as many of its keywords
LONGEST = 400  # characters shown of a field: the CSV has all of it


class RecordsPageQuery(ListQuery, frozen=True):
    """The filter in the page's address."""

    q: str = ""

    def filter(self) -> RecordFilter:
        return RecordFilter(job=JobId(self.job) if self.job else None, text=self.q)


@DashboardPage(
    "records",
    "records.html",
    place="records",
    of_job=True,
    parts={"records-now": PagePart("records_now.html", ("records",))},
)
async def show_records(asked: Asked) -> Shown:
    """Show what monitors have found, newest first."""
    query = asked.query(RecordsPageQuery)
    asked.job_of_list(query.job)
    is_newest = not (query.q or query.before)
    return Shown(title="Records", values=await values_of(asked, query), is_live=is_newest)


async def values_of(asked: Asked, query: RecordsPageQuery) -> Mapping[str, object]:
    """Gather a page of the records that the principal may see."""
    may_see = asked.principal.may_see
    found = await asked.services[RecordSearch].counts()
    counts: dict[str, int] = {job: count for job, count in found.items() if may_see(job)}
    records, before = await _search(asked, query)
    most = sorted(counts, key=lambda each: (-counts[each], each))[:CHIPS]
    chosen = [query.job] if query.job and query.job not in most else []
    jobs = [("", "All jobs"), *((each, asked.name_of(each)) for each in (*chosen, *most))]
    return {
        "records": records,
        "name_of": asked.name_of,
        "total": sum(counts.values()),
        "of_job": counts.get(query.job, 0),
        "query": query,
        "chips": asked.chips(query, "job", jobs, {"": sum(counts.values()), **counts}),
        "left_out": max(0, len(counts) - CHIPS),
        **asked.places(query, before),
        "table": TABLE + urlencode({"job_id": query.job, "q": query.q}),
        "may_have_table": bool(query.job) or not asked.principal.jobs,
        "is_web": is_web,
        "longest": LONGEST,
        "most_fields": MOST_FIELDS,
        "clear": asked.address(query, q=""),
    }


async def _search(asked: Asked, query: RecordsPageQuery) -> tuple[list[RecordView], int | None]:
    """Return a page of the records that the principal may see, and where the next begins."""
    found: list[RecordView] = []
    before: int | None = query.before or None
    for _ in range(ROUNDS):
        page = await asked.services[RecordSearch].search(query.filter(), limit=RECORDS - len(found), before_ns=before)
        found += [record for record in page.records if asked.principal.may_see(record.job_id)]
        before = page.before_ns
        if before is None or len(found) >= RECORDS or query.job or not asked.principal.jobs:
            break
    return found, before


def is_web(address: str) -> bool:
    """Tell whether an address that a monitor found may become a link: http and https only."""
    try:
        return urlsplit(address).scheme in ("http", "https")
    except ValueError:
        return False
