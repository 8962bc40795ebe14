"""`spyweb state workflow`: the runs of jobs with tasks, their tasks and what they keep."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project
from spyweb.errors import ExitCode, Refused
from spyweb.settings.units import format_duration
from spyweb.subjects.drift.commands import compare
from spyweb.subjects.runs.commands import show_tree
from spyweb.subjects.state.commands.stored import StateOutput
from spyweb.subjects.workflows.views import WorkflowDetail, WorkflowView

NONE = "-"


class WorkflowAction(StrEnum):
    LIST = "list"
    SHOW = "show"
    DRIFT = "drift"


def workflow(
    context: typer.Context,
    what: Annotated[
        WorkflowAction, typer.Argument(metavar="list|show|drift", help="What to do.")
    ] = WorkflowAction.LIST,
    which: Annotated[
        str, typer.Argument(metavar="ID", help="A run, a workflow or a job: the newest run of it.", show_default=False)
    ] = "",
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 20,
    form: StateOutput = Format.TABLE,
) -> ExitCode:
    """List the runs of workflows, or show one.

    `show ID` shows its tasks and what it keeps, `drift ID` what of that is not as it left it, with exit code 1 then.
    """
    project = project_of(context)
    if what is WorkflowAction.LIST:
        _list(project, count, form)
        return ExitCode.OK
    if not which:
        raise Refused(f"`spyweb state workflow {what}` needs the ID of a run, or the name of a workflow")
    detail = workflow_detail(project.backend(), which)
    if what is WorkflowAction.SHOW:
        _show(project, detail, form)
        return ExitCode.OK
    return _show_drift(project, detail, form)


def newest_workflows(source: Backend, limit: int) -> list[WorkflowView]:
    if isinstance(source, DaemonClient):
        return source.ask("GET", with_query("/api/workflows", limit=limit), list[WorkflowView])
    from spyweb.subjects.workflows.service import WorkflowService

    return source.read(lambda store: WorkflowService(store).newest(limit), [])


def workflow_detail(source: Backend, which: str) -> WorkflowDetail:
    if isinstance(source, DaemonClient):
        return source.ask("GET", with_query("/api/workflow", id=which), WorkflowDetail)
    from spyweb.subjects.workflows.service import WorkflowService

    found: WorkflowDetail | None = source.read(lambda store: WorkflowService(store).detail(which), None)
    if found is None:
        raise Refused("nothing has run yet")
    return found


def _list(project: Project, count: int, form: Format) -> None:
    found = newest_workflows(project.backend(), count)
    header = ("ID", "NAME", "VERSION", "STATUS", "STARTED", "DURATION", "RESOURCES")
    empty = "no run with tasks is on record"
    output.show_list(form, found, header, partial(_row, project), empty=empty, cut=("NAME",))


def _row(project: Project, each: WorkflowView) -> tuple[str, ...]:
    return (str(each.id), each.name, *_cells(project, each))


def _cells(project: Project, each: WorkflowView) -> tuple[str, ...]:
    return (
        str(each.version),
        each.status,
        NONE if each.started_ms is None else project.moment(each.started_ms),
        NONE if each.duration_ms is None else format_duration(each.duration_ms),
        str(each.resources),
    )


def _show(project: Project, detail: WorkflowDetail, form: Format) -> None:
    if form is Format.JSON:
        output.show_json(detail)
        return
    labels = ("Version:", "Status:", "Started:", "Duration:", "Resources:")
    found = detail.workflow
    fields = [("ID:", str(found.id)), ("Name:", found.name), ("Job:", str(found.job))]
    fields += zip(labels, _cells(project, found), strict=True)
    output.show_fields([*fields, *([("Error:", found.error)] if found.error else [])])
    output.say("")
    show_tree(detail.tasks)
    if detail.resources:
        output.say("")
        header = ("TYPE", "NAME", "ACTION", "STATUS")
        rows = [(each.type, each.name, each.action, each.status) for each in detail.resources]
        output.show_table(header, rows, empty="", cut=("NAME",))


def _show_drift(project: Project, detail: WorkflowDetail, form: Format) -> ExitCode:
    report = compare(project.backend(), detail.workflow.job)
    if form is Format.JSON:
        output.show_json(report.differences)
    else:
        header = ("RESOURCE TYPE", "RESOURCE ID", "DRIFTED", "DETECTED AT", "EXPECTED", "ACTUAL")
        at = project.moment(project.clock.now_ms())
        rows = [(each.module, each.target, "yes", at, each.expected, each.actual) for each in report.differences]
        output.show_table(header, rows, empty="nothing has drifted", cut=("ACTUAL", "RESOURCE ID"))
    return ExitCode.FAILED if report.differences else ExitCode.OK
