"""`spyweb logs`: what a job's script logged.  Reads the file itself: a daemon need not run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import MOST_ROWS, JobName, Output, root_of
from spyweb.cli.output import Format
from spyweb.cli.project import find_in, open_project
from spyweb.clock import RealClock
from spyweb.jobs.view import JobView, log_file, to_json
from spyweb.model import Outcome
from spyweb.web.tail import follow, last_lines

FATES = {Outcome.FAILED: "failed", Outcome.LOST: "was lost"}


def logs(
    context: typer.Context,
    job: JobName,
    following: Annotated[bool, typer.Option("-f", "--follow", help="Go on as lines are added.")] = False,
    count: Annotated[
        int, typer.Option("-n", metavar="N", min=1, max=MOST_ROWS, help="How many of the last lines.")
    ] = 50,
    form: Output = Format.TABLE,
) -> None:
    """Show what a job's script logged."""
    project = open_project(root_of(context))
    views = project.source().jobs()
    chosen = find_in(views, job)
    view = next(view for view in views if view.id == chosen)
    path = log_file(project.root, view.folder)
    lines = last_lines(path, count)
    if not lines:
        output.note(f"{chosen} has not logged anything yet")
    _show(lines, form, following=following)
    trouble = _trouble(view)
    if trouble:
        output.note(trouble)
    if following:
        asyncio.run(_follow(path, form))


def _trouble(view: JobView) -> str:
    """What the script could not log by itself: why its file is not taken, or why its latest run failed."""
    if view.error:
        return f"its file is not taken as it is: {view.error}"
    last = view.last
    fate = FATES.get(last.outcome) if last else None
    if last and fate:
        return f"its latest run ({last.run}) {fate}: {last.reason}: see `spyweb runs {view.id}`"
    return ""


def _show(lines: list[str], form: Format, *, following: bool) -> None:
    """As JSON one array; with -f, which has no end, one string a line."""
    if form is Format.JSON and not following:
        output.show_json(lines)
        return
    for line in lines:
        _show_line(line, form)


def _show_line(line: str, form: Format) -> None:
    if form is Format.JSON:
        output.show_json_line(to_json(line))
    else:
        output.say(line)


async def _follow(path: Path, form: Format) -> None:
    async for line in follow(path, RealClock()):
        _show_line(line, form)
