"""`spyweb alerts`: list incidents, look at one, and take care of one."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.alerts_source import find_incidents
from spyweb.cli.jobs import rounded
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.views.incidents import IncidentView

HEADER = ("id", "subject", "level", "since", "lasts", "reason", "taken care by", "text")

Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The incident's number.", show_default=False)]


def list_incidents(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 50,
    form: Output = Format.TABLE,
) -> None:
    """List what is wrong, newest first."""
    project = project_of(context)
    found = find_incidents(project).incidents(is_open=None if every else True, limit=count)
    if form is Format.JSON:
        output.show_json(found)
        return
    now_ms, timezone = project.clock.now_ms(), project.settings.daemon.timezone
    rows = [_row(each, timezone, now_ms) for each in found]
    output.show_table(HEADER, rows, empty="nothing is wrong", cut=("text", "subject"))


def show(context: typer.Context, number: Number, form: Output = Format.TABLE) -> None:
    """Show one incident with its history, and who was told."""
    project = project_of(context)
    found = find_incidents(project).incident(number)
    if form is Format.JSON:
        output.show_json(found)
        return
    now_ms, timezone = project.clock.now_ms(), project.settings.daemon.timezone
    output.show_table(("fact", "value"), _facts(found, timezone, now_ms), empty="")


def ack(
    context: typer.Context,
    number: Number,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who takes care; else you.")] = None,
    form: Output = Format.TABLE,
) -> None:
    """Take care of an incident: nobody is reminded any more."""
    name = by or _user()
    find_incidents(project_of(context)).ack_incident(number, name)
    output.tell(form, f"incident {number} is taken care of by {name}", {"acked": number})


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "local"


def _row(incident: IncidentView, timezone: str, now_ms: int) -> tuple[str, ...]:
    return (
        str(incident.id),
        incident.job_id or incident.subject,
        incident.level,
        output.row_moment(incident.since_ms, timezone, now_ms),
        rounded((incident.closed_ms or now_ms) - incident.opened_ms),
        incident.reason,
        incident.acked_by,
        incident.text,
    )


def _facts(incident: IncidentView, timezone: str, now_ms: int) -> Sequence[tuple[str, str]]:
    def moment(at_ms: int) -> str:
        return output.row_moment(at_ms, timezone, now_ms)

    facts = [
        ("incident", str(incident.id)),
        ("subject", incident.job_id or incident.subject),
        ("level", incident.level),
        ("reason", f"{incident.reason}: {incident.text}"),
        ("since", moment(incident.since_ms)),
        ("opened", moment(incident.opened_ms)),
    ]
    if incident.closed_ms is not None:
        facts.append(("closed", moment(incident.closed_ms)))
    if incident.acked_ms is not None:
        facts.append(("taken care by", f"{incident.acked_by}, {moment(incident.acked_ms)}"))
    if incident.run is not None:
        facts.append(("run", str(incident.run)))
    facts += [(f"told {channel}", state) for channel, state in incident.told.items()]
    return [*facts, *((moment(note.at_ms), note.text) for note in incident.notes)]
