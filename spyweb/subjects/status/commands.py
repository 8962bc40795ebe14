"""`spyweb status`: write the status page as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.errors import Refused
from spyweb.files import replace_all


def export(
    context: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder to write into.", show_default=False)],
    form: Output = Format.TABLE,
) -> None:
    """Write the status page into a folder, as it is now.

    The daemon must run: it makes the page.
    """
    daemon = project_of(context).need_daemon(", which makes the status page: `spyweb start` starts one")
    files = daemon.ask("GET", "/api/status-page", dict[str, bytes])
    try:
        replace_all(Path(folder), files, "status.json")
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}") from error
    output.tell(form, f"{len(files)} files are in {folder}", {"folder": folder, "files": [*files]})
