"""The options that several commands take, declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spyweb.cli.output import Format
from spyweb.errors import Refused, SpywebError

if TYPE_CHECKING:
    from spyweb.cli.project import Project

MOST_ROWS = 1_000_000_000  # of an answer: SQLite takes numbers of 64 bits, and typer any


def root_of(context: typer.Context) -> Path:
    """Return the project's folder: that of `-C`, or the current one.  Raises Refused when that has been deleted."""
    directory = context.find_root().params["directory"] or "."
    try:
        return Path(directory).absolute()
    except FileNotFoundError as error:
        raise Refused("the current folder was deleted: change to another, or name the project's with -C") from error


def project_of(context: typer.Context) -> Project:
    """Open the project of `-C`, or of the daemon at `--url` or SPYWEB_URL."""
    from spyweb.cli.client import API_KEY  # many commands never import it
    from spyweb.cli.project import URL, RemoteProject, open_project

    options = context.find_root().params
    url = options["url"] or (os.environ.get(URL) if options["directory"] is None else None)
    return RemoteProject(url, os.environ.get(API_KEY)) if url else open_project(root_of(context))


def complete_job(context: typer.Context, incomplete: str) -> list[str]:
    from spyweb.cli.project import open_project  # only shell completion needs it

    try:
        ids = [str(job.id) for job in open_project(root_of(context)).offline.jobs()]
    except SpywebError:
        return []
    return [job for job in ids if job.startswith(incomplete)]


JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's id or name.", autocompletion=complete_job)]
MaybeJob = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="Only this job, by id or name.", autocompletion=complete_job)
]
Output = Annotated[Format, typer.Option("-o", "--output", help="Table or JSON.")]
