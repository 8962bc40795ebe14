"""`spyweb schema`: print a JSON Schema of the project's TOML files, so that an editor completes and checks them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.reference.schema import config_schema, job_schema


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
    output.show_json(job_schema() if kind is SchemaKind.JOB else config_schema())
