"""`spyweb state locks`: list who holds what, and break a lock that nobody releases."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import ExitCode, Refused
from spyweb.store.interchange.value_json import to_plain
from spyweb.subjects.state.commands import render
from spyweb.subjects.state.commands.options import StateOutput, Yes, agree, as_bytes, spelt
from spyweb.subjects.state.commands.stored import StoredState


class LockAction(StrEnum):
    BREAK = "break"


def locks(
    context: typer.Context,
    what: Annotated[LockAction | None, typer.Argument(metavar="break", help="`break NAME` takes a lock away.")] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lock's name.", show_default=False)] = "",
    yes: Yes = False,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """List the locks that are held, or break one.

    Whoever held a broken lock is not told, and may still be at work.
    """
    project = project_of(context)
    if what is None:
        return _list(project, form)
    if not name:
        raise Refused("`spyweb state locks break` needs the lock's NAME")
    return _break(project, name, form, yes=yes)


def _list(project: Project, form: Format) -> ExitCode:
    found = StoredState(project.stored()).locks()
    row = partial(render.lock_row, project)
    output.show_list(form, found, render.LOCKS_HEADER, row, empty="no lock is held", cut=("name", "holder"))
    return ExitCode.OK


def _break(project: Project, name: str, form: Format, *, yes: bool) -> ExitCode:
    shown = spelt(name)
    if not agree(f"Break the lock {shown}?", yes=yes):
        return ExitCode.FAILED
    broken = StoredState(project.stored()).break_lock(as_bytes(name))
    fields = {"name": to_plain(as_bytes(name)), "holder": broken.holder if broken else None}
    if broken is None:
        output.tell(form, f"nobody held {shown}", fields)
    else:
        output.tell(form, f"{shown} is free: {render.shown_key(broken.holder)} held it", fields)
    return ExitCode.OK
