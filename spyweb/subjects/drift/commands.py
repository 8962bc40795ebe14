"""`spyweb drift`: compare files and command results with the recorded resources."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, with_query
from spyweb.cli.options import MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, found_of
from spyweb.errors import ExitCode
from spyweb.model import JobId
from spyweb.subjects.drift.views import DriftReport, DriftView
from spyweb.words import counted

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store


def drift(context: typer.Context, job: MaybeJob = None, form: Output = Format.TABLE) -> ExitCode:
    """List resources that have changed since a job left them.

    Compares the files of this machine with what file.* and commands recorded; runs neither Lua nor a command.  Exit
    code 1 when something differs.
    """
    project = project_of(context)
    source = project.backend()
    report = found_of(source, job, lambda known: compare(source, known))

    def row(each: DriftView) -> dict[str, str]:
        return {
            "resource": each.resource,
            "expected": each.expected,
            "actual": each.actual,
            "since": "" if each.since_ms is None else project.moment(each.since_ms),
            "run": "" if each.run is None else str(each.run),
        }

    count = counted(report.checked, "resource")
    empty = f"{count} compared, nothing differs" if report.checked else "no resource is recorded"
    output.show_list(form, report.differences, row, empty=empty, cut=("actual", "expected"))
    for remark in report.remarks:
        output.note(remark)
    return ExitCode.FAILED if report.differences else ExitCode.OK


def compare(source: Backend, job: JobId | None) -> DriftReport:
    if isinstance(source, DaemonClient):
        return source.ask("GET", with_query("/api/drift", job=job), DriftReport, timeout=None)
    from spyweb.ops.files.files import Files  # no other command needs the ops
    from spyweb.subjects.drift.service import DriftService

    files, clock = Files(source.settings.root, source.clock), source.clock
    specs, broken = {spec.id: spec for spec in source.specs}, source.scanned.broken

    def check(store: Store) -> Awaitable[DriftReport]:
        service = DriftService(store=store, files=files, clock=clock, specs=lambda: specs, broken=lambda: broken)
        return service.check(job)

    return source.read(check, DriftReport())
