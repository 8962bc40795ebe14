"""`spyweb maintenance`: list the maintenance windows, begin one now, and end it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import with_query
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format
from spyweb.subjects.when.service import MaintenanceChanged, MaintenanceView, MaintenanceWindow

NEEDED = ", which keeps the windows: `spyweb start`"


Days = Annotated[int, typer.Option("--days", metavar="N", min=1, max=366, help="How many days ahead.")]
HowLong = Annotated[str, typer.Argument(metavar="HOW_LONG", help='A duration such as "2h".', show_default=False)]
Jobs = Annotated[list[str], typer.Option("--job", metavar="PATTERN", help="These jobs, with * and ?. Repeatable.")]
Tags = Annotated[list[str], typer.Option("--tag", metavar="TAG", help="The jobs with this tag. Repeatable.")]
Text = Annotated[str, typer.Option("--text", metavar="TEXT", help="The reason.")]
Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The window's number.", show_default=False)]


def list_maintenance(context: typer.Context, days: Days = 7, form: Output = Format.TABLE) -> None:
    """List the current and the next maintenance windows."""
    project = project_of(context)
    view = project.need_daemon(NEEDED).ask("GET", with_query("/api/maintenance", days=days), MaintenanceView)

    def row(window: MaintenanceWindow) -> dict[str, str]:
        covered = [*window.jobs, *(f"tag {tag}" for tag in window.tags)]
        return {
            "id": str(window.id or ""),
            "from": project.moment(window.start_ms),
            "until": project.moment(window.end_ms),
            "jobs": ", ".join(covered) or "all",
            "recurs": window.cron,
            "by": window.by,
            "reason": window.text,
        }

    empty = f"no maintenance in the next {days} days"
    output.show_list(form, [*view.now, *view.next], row, empty=empty, cut=("reason", "jobs"), spare=("by",))


def begin(
    context: typer.Context,
    how_long: HowLong,
    jobs: Jobs = [],  # noqa: B006 - typer reads it, nobody changes it
    tags: Tags = [],  # noqa: B006
    text: Text = "",
    form: Output = Format.TABLE,
) -> None:
    """Begin a maintenance window now.

    Without --job and --tag it covers all jobs, and spyweb itself.
    """
    body = msgspec.json.encode({"for": how_long, "jobs": jobs, "tags": tags, "text": text})
    begun = project_of(context).need_daemon(NEEDED).ask("POST", "/api/maintenance", MaintenanceChanged, body=body)
    output.tell(form, f"maintenance {begun.window} has begun, for {how_long}", begun)


def end(context: typer.Context, number: Number, form: Output = Format.TABLE) -> None:
    """End a maintenance window that was begun."""
    ended = project_of(context).need_daemon(NEEDED).ask("DELETE", f"/api/maintenance/{number}", MaintenanceChanged)
    output.tell(form, f"maintenance {number} has ended", ended)
