"""`spyweb keys`: make, list and revoke the keys with which others come in, and see what was done with them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project
from spyweb.errors import Refused
from spyweb.store.model.access import AuditLine, Scope
from spyweb.views.keys import KeyView

KEYS_HEADER = ("name", "token", "scopes", "jobs", "made", "last used")
AUDIT_HEADER = ("when", "who", "what", "job", "target", "status", "from", "times")

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.", show_default=False)]


def add(
    context: typer.Context,
    name: KeyName,
    scopes: Annotated[
        list[Scope], typer.Option("--scope", help="What it permits; run and state include read, admin all. Repeatable.")
    ] = [Scope.READ],  # noqa: B006 - typer reads it, nobody changes it
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="PATTERN", help="Only these jobs, with * and ?. Repeatable.", show_default=False),
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Make a key, and show its token, once.

    Others send it to the daemon's HTTP server, or sign in with it in a browser.
    """
    made = project_of(context).stored().add_key(name, scopes, jobs or [])
    output.tell(form, made.token, made)
    if form is Format.TABLE:
        output.note(f"this is the token of {made.key.name}: keep it, nobody is shown it again")


def list_keys(context: typer.Context, form: Output = Format.TABLE) -> None:
    """List the keys; never their tokens."""
    project = project_of(context)
    found = project.stored().keys()
    row = partial(_key_row, project)
    output.show_list(form, found, KEYS_HEADER, row, empty="there is no key", cut=("jobs", "name"))


def revoke(context: typer.Context, name: KeyName, form: Output = Format.TABLE) -> None:
    """Revoke a key; whoever is signed in with it is signed out."""
    if not project_of(context).stored().revoke_key(name):
        raise Refused(f"there is no key {name[:80]!r}: `spyweb keys list` shows them")
    output.tell(form, f"{name} is revoked", {"name": name, "revoked": True})


def audit(
    context: typer.Context,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 50,
    form: Output = Format.TABLE,
) -> None:
    """List what was done by whom, newest first."""
    project = project_of(context)
    found = project.stored().audit_lines(limit=count)
    empty, cut = "nobody has done anything yet", ("target", "what", "job", "who")
    output.show_list(form, found, AUDIT_HEADER, partial(_audit_row, project), empty=empty, cut=cut)


def _key_row(project: Project, key: KeyView) -> tuple[str, ...]:
    return (
        key.name,
        f"{key.begins}...",
        " ".join(key.scopes),
        " ".join(key.jobs),
        project.moment(key.created_ms),
        "never" if key.used_ms is None else project.moment(key.used_ms),
    )


def _audit_row(project: Project, line: AuditLine) -> tuple[str, ...]:
    return (
        project.moment(line.at_ms),
        line.who,
        line.action,
        line.job,
        line.target,
        str(line.status),
        line.address or line.source,
        str(line.times),
    )
