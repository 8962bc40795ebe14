"""`spyweb audit`; `spyweb maintenance`: list the maintenance windows, begin one now, and end it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, found_of
from spyweb.errors import ExitCode
from spyweb.model import JobId
from spyweb.settings.values import duration
from spyweb.subjects.when.audit import MOST_MS, JobAudit, RunAuditService
from spyweb.subjects.when.service import MaintenanceChanged, MaintenanceView, MaintenanceWindow
from spyweb.words import counted

NEEDED = ", which keeps the windows: `spyweb start`"


Days = Annotated[int, typer.Option("--days", metavar="N", min=1, max=366, help="How many days ahead.")]
HowLong = Annotated[str, typer.Argument(metavar="HOW_LONG", help='A duration such as "2h".', show_default=False)]
Jobs = Annotated[list[str], typer.Option("--job", metavar="PATTERN", help="These jobs, with * and ?. Repeatable.")]
Tags = Annotated[list[str], typer.Option("--tag", metavar="TAG", help="The jobs with this tag. Repeatable.")]
Text = Annotated[str, typer.Option("--text", metavar="TEXT", help="The reason.")]
Since = Annotated[
    Any, typer.Option("--since", metavar="HOW_LONG", parser=duration(most_ms=MOST_MS), help='How far back, as "7d".')
]
Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The window's number.", show_default=False)]


def audit(context: typer.Context, job: MaybeJob = None, since: Since = "7d", form: Output = Format.TABLE) -> ExitCode:
    """Compare what was due with what is on record.

    Exit code 1 when a due time is unexplained: neither a run nor a reason is on record.
    """
    project = project_of(context)
    source, since_ms = project.stored(), project.clock.now_ms() - since
    found = found_of(source, job, lambda known: audited(source, known, since_ms))

    def row(each: JobAudit) -> dict[str, str]:
        counts = [("due", each.due), *each.counts.items()]
        return {"job": each.job, **{name: f"{count:,}" if count else "" for name, count in counts}}

    output.show_list(form, found, row, empty="nothing was due until a minute ago", cut=("job",))
    shown = [(each.job, group) for each in found for group in each.groups if job or group.kind == "unexplained"]
    for of_job, each in shown if form is Format.TABLE else ():
        times = project.moment(each.first_ms) + (f" to {project.moment(each.last_ms)}" if each.count > 1 else "")
        output.say(f"{of_job}: {counted(each.count, 'due time')} {each.kind}, {times}: {each.why}")
    is_explained = not any(each.counts["unexplained"] for each in found)
    if found and is_explained:
        output.note("each due time is explained")
    return ExitCode.OK if is_explained else ExitCode.FAILED


def audited(source: Backend, job: JobId | None, since_ms: int) -> list[JobAudit]:
    if isinstance(source, DaemonClient):
        target = with_query("/api/audit/runs", job=job, since=since_ms)
        return source.ask("GET", target, list[JobAudit], timeout=None)
    clock, specs = source.clock, {spec.id: spec for spec in source.specs}
    return source.read(
        lambda store: RunAuditService(store=store, clock=clock, specs=specs).audit(since_ms, job), list[JobAudit]()
    )


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
