"""`spyweb init`: a small project that works as it is."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import root_of
from spyweb.errors import NoAccess, Refused

TEMPLATE = {
    "config.toml": "config.toml",
    ".gitignore": "gitignore",
    "jobs/hello.lua": "hello.lua",
    "jobs/check-site.lua": "check-site.lua",
}  # where each file goes, and its name in the template


def init(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Made if it is absent.")] = Path(),
) -> None:
    """Make a small working project.

    Settings, and two jobs to start from.  Overwrites nothing.
    """
    root = root_of(context) / directory
    make_project(root)
    output.say(f"made {', '.join(TEMPLATE)} in {root}")
    where = "" if root.resolve() == Path.cwd() else f" -C {directory}"
    output.say(f"next: `spyweb{where} run hello` runs a job once, `spyweb{where} start` runs them all")


def make_project(root: Path) -> None:
    """Raises Refused, and writes nothing, when any of the files is there already."""
    there = [name for name in TEMPLATE if (root / name).exists()]
    if there:
        raise Refused(f"{root} has {', '.join(there)} already: nothing was written")
    try:
        for name, source in TEMPLATE.items():
            _write(root / PurePosixPath(name), _template() / source)
    except OSError as error:
        raise NoAccess(f"{error.filename}: {error.strerror}") from error


def _write(path: Path, source: Traversable) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(source.read_bytes())


def _template() -> Traversable:
    return files("spyweb.cli") / "template"
