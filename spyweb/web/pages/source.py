"""Lua in colours: the lines around an error, or a whole file of a job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from spyweb.errors import Refused
from spyweb.views.source import SourceView
from spyweb.web.pages.page import Asked, DashboardPage, PageMissing, Shown

if TYPE_CHECKING:
    from spyweb.dashboard.lua_source import SourceLine  # with Pygments


class SourceQuery(Struct, frozen=True):
    """A file of a job, and the line that is meant."""

    file: str | None = None
    line: Annotated[int, Meta(ge=1)] | None = None


@DashboardPage("jobs/{job}/source", "source.html", place="jobs")
async def show_source(asked: Asked) -> Shown:
    """Show a whole file of a job, as it runs."""
    job, query = asked.job(), asked.query(SourceQuery)
    try:
        source = await asked.service.details.source(job, query.file)
    except Refused as error:
        raise PageMissing("There is no such file") from error
    lines = await coloured(source, query.line)
    return Shown(title=source.file, values={"job": job, "name": asked.name_of(job), "source": source, "lines": lines})


async def coloured(source: SourceView | None, line: int | None = None) -> list[SourceLine]:
    """Colour a part of a file, in a thread; `line` is the one that is meant, where the part itself means none."""
    if source is None or not source.lines:
        return []
    return await asyncio.to_thread(_coloured, source, line)


def _coloured(source: SourceView, line: int | None) -> list[SourceLine]:
    from spyweb.dashboard.lua_source import colour  # imports Pygments: only here, in a thread

    return colour("\n".join(source.lines), first=source.first, here=source.line or line)
