"""`spyweb try`: show what a monitor would find on a page, before there is a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated

import typer
from msgspec import Struct
from msgspec.structs import replace

from spyweb.cli import output
from spyweb.cli.options import MOST_ROWS, Output, project_of
from spyweb.cli.output import Format
from spyweb.errors import ExitCode, ExtractionError, FetchError, Refused
from spyweb.model import Field, JobId
from spyweb.settings.sections import HttpSettings
from spyweb.words import counted, cut

USUAL_FIELDS = ("text:", "link:a@href")  # where none are given
MARKUP = ("html", "xml")  # in the content type of a page that a selector may fit
LONGEST_CELL, LONGEST_NAMED = 80, 60  # characters of a text, and of a selector in a remark


class TriedPage(Struct, frozen=True, kw_only=True):
    """A page, and the items that were found on it."""

    url: str  # after redirects
    http_status: int
    content_type: str
    size: int  # bytes
    time_ms: int
    found: int
    items: list[dict[str, str]]  # the first of them


def try_page(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The page: http or https.")],
    selector: Annotated[str, typer.Argument(metavar="SELECTOR", help="CSS selector of the items on it.")],
    field: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD", help="name:selector or name:selector@attribute; several.")
    ] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many items.")] = 20,
    form: Output = Format.TABLE,
) -> ExitCode:
    """Show what a monitor would find on a page.

    Fetches the page once and picks the items as a monitor does, with the [http] settings of the project if there is
    one.  Stores and sends nothing.  Without fields, the text and the first link of each item.  The exit code is 1 if
    the page could not be fetched, its status is not 2xx, or nothing was found.
    """
    from spyweb.specs.monitor_file import WEB, absolute_url, doubt_colon, item_fields  # `--help` does without them

    try:
        url, fields = absolute_url(url, WEB), item_fields.read([*(field or USUAL_FIELDS)])
    except ValueError as error:
        raise Refused(str(error)) from error
    output.log_only_errors()
    if doubt := doubt_colon(field or ()):
        output.note(doubt)
    try:
        page = asyncio.run(_tried(url, selector, fields, project_of(context).settings.http))
    except (FetchError, ExtractionError) as error:
        output.complain(f"{url}: {error}")
        return ExitCode.FAILED
    if form is Format.JSON:
        output.show_json(replace(page, items=page.items[:count]))
    else:
        _show(page, url, selector, fields, count)
    return ExitCode.OK if page.found and 200 <= page.http_status < 300 else ExitCode.FAILED


async def _tried(url: str, selector: str, fields: Sequence[Field], settings: HttpSettings) -> TriedPage:
    """Fetch a page and extract its items.  Raises Refused for a wrong selector, FetchError, ExtractionError."""
    from spyweb.clock import RealClock
    from spyweb.extraction.extractor import Page, open_extractor
    from spyweb.ops.network.client import open_client
    from spyweb.ops.network.request import FetchRequest, fetch_of, with_defaults

    clock = RealClock()
    async with open_extractor(clock) as extractor:
        for each, of_field in ((selector, False), *((field.selector, True) for field in fields)):
            if problem := await extractor.find_selector_problem(each, of_field=of_field):
                raise Refused(problem)
        async with open_client(settings, clock) as http:
            request = FetchRequest(url=url.encode(), headers=with_defaults({}, settings))
            response = await http.fetch(fetch_of(request, settings, None))
        content_type = response.headers.get(b"content-type", b"").decode("latin-1")
        page = Page(
            job=JobId("try"),
            body=response.body,
            content_type=content_type or None,
            url=response.url.decode(),
            selector=selector,
            fields=tuple(fields),
        )
        items = await extractor.extract(page)
    return TriedPage(
        url=response.url.decode(),
        http_status=response.status,
        content_type=content_type,
        size=len(response.body),
        time_ms=response.time_ms or 0,
        found=len(items),
        items=items,
    )


def _show(page: TriedPage, url: str, selector: str, fields: Sequence[Field], count: int) -> None:
    names = [field.name for field in fields]
    rows = [[cut(item[name], LONGEST_CELL) for name in names] for item in page.items[:count]]
    output.show_table(names, rows, empty=_why_nothing(page, selector), cut=names)
    answer = f"HTTP {page.http_status}, {page.size:,} bytes in {page.time_ms:,} ms"
    output.note(f"{counted(page.found, 'item')}{' in all' if page.found > count else ''}: {answer}")
    if not 200 <= page.http_status < 300:
        output.note(f"status {page.http_status}: a monitor reports this as not as expected")
    for name in names:
        if page.items and not any(item[name] for item in page.items):
            output.note(f"{name} is empty in every item: check its selector")
    if page.items:
        output.note("\n".join(["as a monitor, in jobs/NAME/config.toml:", *_settings(url, selector, fields)]))


def _why_nothing(page: TriedPage, selector: str) -> str:
    kind = page.content_type.partition(";")[0].strip().lower()[:LONGEST_NAMED]
    if kind and not any(name in kind for name in MARKUP):
        return f"nothing found: the answer is {kind}, not HTML"
    shown = cut(selector, LONGEST_NAMED)
    return f"nothing found: no element matches {shown} (spyweb runs no JavaScript of the page)"


def _settings(url: str, selector: str, fields: Sequence[Field]) -> list[str]:
    """Return the lines of a file with which a monitor finds the same."""
    written = [f"{field.name}:{field.selector}{f'@{field.attribute}' if field.attribute else ''}" for field in fields]
    values = {"name": "NAME", "url": url, "selector": selector, "fields": written, "every": "10m"}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return [*lines, 'first = "silent"']
