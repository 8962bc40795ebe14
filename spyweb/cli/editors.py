"""`spyweb types` and `schema`: what scripts can call and define, and what settings there are, for editors."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.errors import NoAccess, Refused

FILE = Path("spyweb.d.lua")
STDOUT = Path("-")


def types(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Instead of spyweb.d.lua in the project; - prints.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Write Lua type definitions, for editors.

    A file for lua-language-server, which completes and checks what scripts call and which hooks they define.
    """
    from spyweb.reference.definitions import definitions  # the ops are slow to import

    if file == STDOUT:
        output.say(definitions())
        return
    path = file or root_of(context) / FILE
    write(path, definitions())
    output.tell(form, f"wrote {path}", {"wrote": str(path)})


def write(path: Path, text: str) -> None:
    """Write the definitions.  Raises Refused where the file is something else, NoAccess where it can't be written."""
    from spyweb.reference.definitions import FIRST_LINE

    try:
        if path.exists() and not path.read_bytes().startswith(FIRST_LINE.encode()):
            raise Refused(f"{path} is there already and is no file of types: nothing was written")
        replace_text(path, text)
    except OSError as error:
        raise NoAccess(f"{path}: {error.strerror}") from error


def replace_text(path: Path, text: str) -> None:
    """Write a text whole or not at all: one that a full disk has cut short would not be replaced later."""
    place = Path(os.path.realpath(path))  # a link stays one
    draft = place.with_name(f".{place.name}.new")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


class SchemaKind(StrEnum):
    JOB = "job"
    CONFIG = "config"


def schema(
    kind: Annotated[
        SchemaKind, typer.Argument(metavar="[job|config]", help="`job`: a monitor's config.toml, and jobs.toml.")
    ] = SchemaKind.JOB,
) -> None:
    """Print a JSON Schema of the files of settings.

    For editors: `job` is about a monitor's config.toml and about jobs.toml, `config` about the project's config.toml.
    """
    from spyweb.reference.schema import config_schema, job_schema

    output.show_json(job_schema() if kind is SchemaKind.JOB else config_schema())
