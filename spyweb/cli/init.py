"""`spyweb init`: make a small working project.  `types` and `schema`: write definitions for editors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.errors import NoAccess, Refused, legible


class ProjectKind(StrEnum):
    SCRIPTS = "scripts"
    MONITOR = "monitor"
    CHECKS = "checks"


TEMPLATE = files("spyweb.cli") / "template"
COMMON = {"config.toml": "config.toml", ".gitignore": "gitignore"}
TEMPLATES: Mapping[ProjectKind, Mapping[str, str]] = {
    ProjectKind.SCRIPTS: {
        **COMMON,
        "jobs/hello.lua": "hello.lua",
        "jobs/check-site.lua": "check-site.lua",
        "jobs/page/config.toml": "monitor.toml",
    },
    ProjectKind.MONITOR: {
        **COMMON,
        "jobs/page/config.toml": "monitor.toml",
        "jobs/page/hooks.lua": "hooks.lua",
        "jobs/page/tests.lua": "tests.lua",
    },
    ProjectKind.CHECKS: {**COMMON, "jobs/site.toml": "site.toml", "jobs/certificate.toml": "certificate.toml"},
}  # where each file goes, and its name in the template
TYPES, STDOUT = "spyweb.d.lua", Path("-")
FIRST = {ProjectKind.SCRIPTS: "hello", ProjectKind.MONITOR: "page", ProjectKind.CHECKS: "site"}  # the job to begin with


def init(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder, made if it is missing.")] = Path(),
    template: Annotated[
        ProjectKind, typer.Option(help="Scripts and a monitor, a monitor with hooks, or checks.")
    ] = ProjectKind.SCRIPTS,
    form: Output = Format.TABLE,
) -> None:
    """Make a small working project.

    It has settings, jobs to start from (two scripts, a monitor with hooks and tests, or checks), and files with which
    an editor completes and checks them.  Overwrites nothing.
    """
    root = root_of(context) / directory
    made = {name: (TEMPLATE / source).read_bytes() for name, source in TEMPLATES[template].items()}
    make_project(root, made, editor_files())
    if form is Format.JSON:
        output.show_json({"project": legible(root), "made": list(made)})
        return
    output.say(f"made {', '.join(made)} in {root}")
    typed = Path(context.find_root().params["directory"] or "") / directory
    where = "" if root.samefile(Path()) else f" -C {typed}"
    output.say(f"next: `spyweb{where} run {FIRST[template]}` runs a job once, `spyweb{where} start` runs them all")


def editor_files() -> dict[str, bytes]:
    """Return the files that lua-language-server and Taplo read, by name."""
    from spyweb.reference.definitions import definitions
    from spyweb.reference.schema import config_schema, job_schema

    return {
        ".luarc.json": (TEMPLATE / "luarc.json").read_bytes(),
        TYPES: definitions().encode(),
        ".taplo.toml": (TEMPLATE / "taplo.toml").read_bytes(),
        ".schema-job.json": json.dumps(job_schema(), indent=2).encode(),
        ".schema-config.json": json.dumps(config_schema(), indent=2).encode(),
    }


def make_project(root: Path, made: dict[str, bytes], for_editors: Mapping[str, bytes]) -> None:
    """Write all files or none.  Raises Refused when a file is there already, NoAccess when one can't be made.

    Editor files that are there already stay as they are; the others are made and added to `made`.
    """
    there = [name for name in made if (root / name).exists()]
    if there:
        raise Refused(f"{root} has {', '.join(there)} already: nothing was written")
    made.update({name: content for name, content in for_editors.items() if not os.path.lexists(root / name)})
    try:
        with ExitStack() as undo:
            for path, content in ((root / name, content) for name, content in made.items()):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch(exist_ok=False)
                undo.callback(path.unlink)
                path.write_bytes(content)
            undo.pop_all()
    except OSError as error:
        raise NoAccess(f"{error.filename or root}: {error.strerror}") from error


def types(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to write, instead of spyweb.d.lua; - prints.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Write Lua type definitions, for editors.

    With them lua-language-server completes and checks the functions and hooks of scripts.
    """
    from spyweb.reference.definitions import FIRST_LINE, definitions  # the ops are slow to import

    if file == STDOUT:
        output.say(definitions())
        return
    path = file or root_of(context) / TYPES
    try:
        if path.exists() and not path.read_bytes().startswith(FIRST_LINE.encode()):
            raise Refused(f"{path} already exists and was not written by `spyweb types`: nothing was written")
        with replaced(path, 0o666) as target:
            target.write(definitions().encode())
    except OSError as error:
        raise NoAccess(f"{path}: {error.strerror}") from error
    output.tell(form, f"wrote {path}", {"wrote": str(path)})


@contextmanager
def replaced(path: Path, mode: int) -> Iterator[BinaryIO]:
    """Open a file that gets its name once it is whole: a full disk leaves no half file behind.

    A symbolic link stays one.
    """
    place = Path(os.path.realpath(path))
    unfinished = place.with_name(f"{place.name}.unfinished")
    unfinished.unlink(missing_ok=True)  # somebody else's, or of a command that was killed
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)


class SchemaKind(StrEnum):
    JOB = "job"
    CONFIG = "config"


def schema(
    kind: Annotated[
        SchemaKind, typer.Argument(metavar="[job|config]", help="`job`: checks, a monitor's config.toml, jobs.toml.")
    ] = SchemaKind.JOB,
) -> None:
    """Print the JSON Schema of a settings file, for editors.

    `job` describes checks, a monitor's config.toml and jobs.toml, `config` the project's config.toml.
    """
    from spyweb.reference.schema import config_schema, job_schema

    output.show_json(job_schema() if kind is SchemaKind.JOB else config_schema())
