"""`spyweb artifacts`: the files that the tasks of a run have kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import JobName, Output, root_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, found_of, open_project
from spyweb.errors import Refused
from spyweb.model import JobId
from spyweb.ops.files.artifacts import FOLDER, list_files
from spyweb.settings.units import format_size


def artifacts(
    context: typer.Context,
    job: JobName,
    run: Annotated[int | None, typer.Argument(metavar="[RUN]", help="Not the newest that has some.")] = None,
    get: Annotated[str | None, typer.Option("--get", metavar="NAME", help="Print this one.")] = None,
    form: Output = Format.TABLE,
) -> None:
    """List the files that the tasks of a run have kept.

    Those of its newest run that has some, unless another is named.
    """
    project = open_project(root_of(context))
    folder = _folder_of(project, job, run)
    names = list_files(folder) if folder else []
    if get is not None:
        _print(folder, get, names)
        return
    sizes = [(folder / name).stat().st_size for name in names] if folder else []
    if form is Format.JSON:
        rows = zip(names, sizes, strict=True)
        output.show_json([{"run": int(folder.name), "name": name, "size": size} for name, size in rows if folder])
    else:
        shown = [(folder.name, name, format_size(size)) for name, size in zip(names, sizes, strict=True) if folder]
        output.show_table(("run", "file", "size"), shown, empty="no task has kept a file")


def _folder_of(project: Project, name: str, run: int | None) -> Path | None:
    """Return where a run's files are, or None where there are none.  Raises Refused for a job that there never was."""

    def folders(job: JobId | None) -> list[Path]:
        of_job = project.settings.daemon.data_dir / FOLDER / Path(job or name).name
        return [path for path in of_job.iterdir() if path.name.isdecimal()] if of_job.is_dir() else []

    runs = {int(path.name): path for path in found_of(project.offline, name, folders)}
    return runs.get(max(runs, default=0) if run is None else run)


def _print(folder: Path | None, name: str, names: list[str]) -> None:
    if folder is None or name not in names:
        raise Refused(f"there is no artifact {name}: there are {', '.join(names) or 'none'}")
    output.print_file(folder / name)
