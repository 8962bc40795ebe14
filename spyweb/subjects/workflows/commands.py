"""`spyweb state workflow`: the runs of jobs with tasks, their tasks and resources."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project, answer_of
from spyweb.errors import ExitCode, Refused
from spyweb.settings.units import format_duration
from spyweb.subjects.drift.commands import compare
from spyweb.subjects.drift.views import DriftView
from spyweb.subjects.runs.commands import show_tree
from spyweb.subjects.state.commands.stored import StateOutput
from spyweb.subjects.workflows.views import WorkflowDetail, WorkflowView

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store

NONE = "-"


class WorkflowAction(StrEnum):
    LIST = "list"
    SHOW = "show"
    DRIFT = "drift"


def workflow(
    context: typer.Context,
    what: Annotated[
        WorkflowAction, typer.Argument(metavar="list|show|drift", help="The action.")
    ] = WorkflowAction.LIST,
    which: Annotated[
        str, typer.Argument(metavar="ID", help="A run, or a workflow or job: its newest run.", show_default=False)
    ] = "",
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 20,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """List the runs of workflows, or show one.

    `show ID` shows its tasks and the resources that it keeps; `drift ID` lists the resources that have drifted since,
    with exit code 1 if there are any.
    """
    project = project_of(context)
    if what is WorkflowAction.LIST:

        async def ask(store: Store) -> list[WorkflowView]:
            from spyweb.subjects.workflows.service import WorkflowService

            return await WorkflowService(store).newest(count)

        target = with_query("/api/workflows", limit=count)
        found = answer_of(project.backend(), target, list[WorkflowView], ask, [])
        empty = "no run with tasks is on record"
        output.show_list(form, found, partial(_row, project), empty=empty, cut=("NAME",))
        return ExitCode.OK
    if not which:
        raise Refused(f"`spyweb state workflow {what}` needs the ID of a run, or the name of a workflow")
    detail = workflow_detail(project.backend(), which)
    if what is WorkflowAction.DRIFT:
        return _show_drift(project, detail, form)
    _show(project, detail, form)
    return ExitCode.OK


def workflow_detail(source: Backend, which: str) -> WorkflowDetail:
    if isinstance(source, DaemonClient):
        return source.ask("GET", with_query("/api/workflow", id=which), WorkflowDetail)
    from spyweb.subjects.workflows.service import WorkflowService

    found: WorkflowDetail | None = source.read(lambda store: WorkflowService(store).detail(which), None)
    if found is None:
        raise Refused("nothing has run yet")
    return found


def _row(project: Project, each: WorkflowView) -> dict[str, str]:
    return {
        "ID": str(each.id),
        "NAME": each.name,
        "VERSION": str(each.version),
        "STATUS": each.status,
        "STARTED": NONE if each.started_ms is None else project.moment(each.started_ms),
        "DURATION": NONE if each.duration_ms is None else format_duration(each.duration_ms),
        "RESOURCES": str(each.resources),
    }


def _show(project: Project, detail: WorkflowDetail, form: Format) -> None:
    if form is Format.JSON:
        output.show_json(detail)
        return
    found = detail.workflow
    cells = {f"{name.capitalize()}:": cell for name, cell in _row(project, found).items() if name != "ID"}
    fields = [("ID:", str(found.id)), *cells.items(), *([("Error:", found.error)] if found.error else [])]
    fields.insert(2, ("Job:", str(found.job)))
    output.show_fields(fields)
    output.say("")
    show_tree(detail.tasks)
    if detail.resources:
        output.say("")
        header = ("TYPE", "NAME", "ACTION", "STATUS")
        rows = [(each.type, each.name, each.action, each.status) for each in detail.resources]
        output.show_table(header, rows, empty="", cut=("NAME",))


def _show_drift(project: Project, detail: WorkflowDetail, form: Format) -> ExitCode:
    report, at = compare(project.backend(), detail.workflow.job), project.moment(project.clock.now_ms())

    def row(each: DriftView) -> dict[str, str]:
        return {
            "RESOURCE TYPE": each.module,
            "RESOURCE ID": each.target,
            "DRIFTED": "yes",
            "DETECTED AT": at,
            "EXPECTED": each.expected,
            "ACTUAL": each.actual,
        }

    output.show_list(form, report.differences, row, empty="nothing has drifted", cut=("ACTUAL", "RESOURCE ID"))
    return ExitCode.FAILED if report.differences else ExitCode.OK
