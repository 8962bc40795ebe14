"""`spyweb init`: make a small project that works as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from enum import StrEnum
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.errors import NoAccess, Refused, legible


class ProjectKind(StrEnum):
    SCRIPTS = "scripts"
    MONITOR = "monitor"


COMMON = {"config.toml": "config.toml", ".gitignore": "gitignore"}
TEMPLATES: Mapping[ProjectKind, Mapping[str, str]] = {
    ProjectKind.SCRIPTS: {**COMMON, "jobs/hello.lua": "hello.lua", "jobs/check-site.lua": "check-site.lua"},
    ProjectKind.MONITOR: {
        **COMMON,
        "jobs/page/config.toml": "monitor.toml",
        "jobs/page/hooks.lua": "hooks.lua",
        "jobs/page/tests.lua": "tests.lua",
    },
}  # where each file goes, and its name in the template
FOR_EDITORS = (".luarc.json", "spyweb.d.lua", ".taplo.toml", ".schema-job.json", ".schema-config.json")
FIRST = {ProjectKind.SCRIPTS: "hello", ProjectKind.MONITOR: "page"}  # the job to begin with


def init(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="Made if it is absent.")] = Path(),
    template: Annotated[ProjectKind, typer.Option(help="Two scripts, or a monitor of a page.")] = ProjectKind.SCRIPTS,
    form: Output = Format.TABLE,
) -> None:
    """Make a small working project.

    Settings, jobs to start from (two scripts, or a monitor with hooks and tests), and what an editor needs to complete
    both.  Overwrites nothing.
    """
    root = root_of(context) / directory
    made = {name: (_template() / source).read_bytes() for name, source in TEMPLATES[template].items()}
    make_project(root, made, editor_files())
    if form is Format.JSON:
        output.show_json({"project": legible(root), "made": list(made)})
        return
    output.say(f"made {', '.join(made)} in {root}")
    where = "" if root.samefile(Path()) else f" -C {directory}"
    output.say(f"next: `spyweb{where} run {FIRST[template]}` runs a job once, `spyweb{where} start` runs them all")


def editor_files() -> dict[str, bytes]:
    """Return the files that lua-language-server and Taplo read, by name."""
    from spyweb.reference.definitions import definitions
    from spyweb.reference.schema import config_schema, job_schema

    contents = (
        (_template() / "luarc.json").read_bytes(),
        definitions().encode(),
        (_template() / "taplo.toml").read_bytes(),
        json.dumps(job_schema(), indent=2).encode(),
        json.dumps(config_schema(), indent=2).encode(),
    )
    return dict(zip(FOR_EDITORS, contents, strict=True))


def make_project(root: Path, made: dict[str, bytes], for_editors: Mapping[str, bytes]) -> None:
    """Write all files or none.  Raises Refused when a file is there already, NoAccess when one can't be made.

    What is there of the files for editors is somebody's own and stays; those that are made are added to `made`.
    """
    there = [name for name in made if (root / name).exists()]
    if there:
        raise Refused(f"{root} has {', '.join(there)} already: nothing was written")
    made.update({name: content for name, content in for_editors.items() if not os.path.lexists(root / name)})
    try:
        with ExitStack() as undo:
            for name, content in made.items():
                _write(root / PurePosixPath(name), content, undo)
            undo.pop_all()
    except OSError as error:
        raise NoAccess(f"{error.filename or root}: {error.strerror}") from error


def _write(path: Path, content: bytes, undo: ExitStack) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    undo.callback(path.unlink)
    path.write_bytes(content)


def _template() -> Traversable:
    return files("spyweb.cli") / "template"
