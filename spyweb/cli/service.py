"""`spyweb systemd install` and `uninstall`: make the project a service of the machine, or of the user."""

from __future__ import annotations

from typing import Annotated

import typer

from spyweb.cli import output, systemd
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format

UserUnit = Annotated[bool, typer.Option("--user", help="A service of this user's own systemd.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="The unit's name.")]


def install(
    context: typer.Context,
    write: Annotated[bool, typer.Option("--write", help="Write the unit instead of printing it.")] = False,
    user_unit: UserUnit = False,
    name: Name = "spyweb",
    form: Output = Format.TABLE,
) -> None:
    """Print a unit for this project, or write it."""
    lines = systemd.install(root_of(context), write=write, user_unit=user_unit, name=name)
    output.tell(form, "\n".join(lines), lines)


def uninstall(
    context: typer.Context, user_unit: UserUnit = False, name: Name = "spyweb", form: Output = Format.TABLE
) -> None:
    """Stop the service and remove its unit.  The data stays."""
    lines = systemd.uninstall(root_of(context), user_unit=user_unit, name=name)
    output.tell(form, "\n".join(lines), lines)
