"""`spyweb records`: list what monitor jobs have found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice, takewhile
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MOST_ROWS, MaybeJob, project_of
from spyweb.cli.project import Backend, found_of
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.settings.units import parse_duration
from spyweb.store.model.records import Record
from spyweb.subjects.records import views
from spyweb.words import cut

PAGE = 500
LONGEST_CELL = 200  # characters in a table; JSON and CSV have all
NS_IN_MS = 1_000_000
SINCE_EXPECTED = 'expected an age such as "2h", or a moment such as 2026-12-24T18:00'


class RecordFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def records(
    context: typer.Context,
    job: MaybeJob = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help='Only those since then: an age such as "2h", or a moment.')
    ] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many.")] = 20,
    form: Annotated[
        RecordFormat, typer.Option("-o", "--output", help="A table for people, JSON, or CSV.")
    ] = RecordFormat.TABLE,
) -> None:
    """List what monitor jobs have found, newest first.

    Without a job, the newest records of all.  A record of a change shows the old value and the new one.
    """
    project = project_of(context)
    timezone = project.settings.daemon.timezone
    since_ms = 0 if since is None else moment_of(since, project.clock.now_ms(), timezone)
    newest = _pages(project.backend(), job, min(count, PAGE))
    found = list(islice(takewhile(lambda view: view.timestamp >= since_ms * NS_IN_MS, newest), count))
    match form:
        case RecordFormat.JSON:
            output.show_json([views.flatten(view) for view in found])
        case RecordFormat.CSV:
            output.show_bytes(to_csv(found).removesuffix("\n").encode())
        case RecordFormat.TABLE:
            names = views.column_names((), found)
            of_all = ("job",) if job is None else ()
            rows = [
                (
                    project.moment(view.timestamp // NS_IN_MS),
                    *(view.job_id for _ in of_all),
                    *(cut(views.show_change(view, name), LONGEST_CELL) for name in names),
                    ", ".join(view.match_key),
                )
                for view in found
            ]
            output.show_table(("found", *of_all, *names, "keywords"), rows, empty="no records")


def _pages(source: Backend, name: str | None, size: int) -> Iterator[views.RecordView]:
    """Yield records, read page by page; a removed job still has its records."""
    page = found_of(source, name, lambda job: page_of(source, job, limit=size))
    yield from page
    while len(page) == size:
        job = None if name is None else page[-1].job_id
        page = page_of(source, job, limit=size, before_ns=page[-1].timestamp)
        yield from page


def page_of(source: Backend, job: JobId | None, *, limit: int, before_ns: int | None = None) -> list[views.RecordView]:
    """Return a page of the records of one job, or of all, newest first."""
    if isinstance(source, DaemonClient):
        target = with_query("/api/records", job_id=job, limit=limit, after=before_ns)
        if job is not None:
            return source.ask("GET", target, views.RecordsPage).records
        by_job = source.ask("GET", target, dict[str, list[views.RecordView]])
        return sorted((view for found in by_job.values() for view in found), key=lambda view: -view.timestamp)
    found: list[Record] = source.read(lambda store: store.records.list(job, limit=limit, before_ns=before_ns), [])
    return [views.view_record(record) for record in found]


def moment_of(text: str, now_ms: int, timezone: str) -> int:
    """Return a moment in epoch milliseconds.  Raises Refused when the text is neither an age nor a moment."""
    try:
        return now_ms - parse_duration(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
        return round((moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(timezone))).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise Refused(f"--since {text[:80]!r}: {SINCE_EXPECTED}") from error


def to_csv(found: Sequence[views.RecordView]) -> str:
    """Format records as CSV by RFC 4180, but that a row ends without a carriage return."""
    names = views.column_names((), found)
    of_all = ("job",) if len({view.job_id for view in found}) > 1 else ()
    changes = ("old",) if any(view.old for view in found) else ()
    rows = [("date_time", *names, "keywords", "page_url", *of_all, *changes)]
    for view in found:
        cells = (view.fields.get(name, "") for name in names)
        more = (*(view.job_id for _ in of_all), *(views.json_or_empty(view.old) for _ in changes))
        rows.append((view.date_time, *cells, " ".join(view.match_key), view.page_url, *more))
    return "".join(views.csv_line(row).removesuffix("\r\n") + "\n" for row in rows)
