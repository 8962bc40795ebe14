"""`spyweb uptime`: for how long jobs were up."""

from __future__ import annotations

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, of_job
from spyweb.cli.options import MaybeJob, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import find_in
from spyweb.store.model.uptime import SPANS
from spyweb.subjects.uptime.service import SpanView, UptimeService, UptimeView
from spyweb.words import round_duration


def uptime(context: typer.Context, job: MaybeJob = None, form: Output = Format.TABLE) -> None:
    """Show the share of the time that jobs were up.

    A result holds until the next one, for two intervals at most.  Maintenance does not count.
    """
    source = project_of(context).stored()
    views = source.jobs()
    jobs = [view.id for view in views] if job is None else [find_in(views, job)]
    found: list[UptimeView] = []
    if not isinstance(source, DaemonClient):
        clock = source.clock
        found = source.read(lambda store: UptimeService(store=store.uptime, clock=clock).look(jobs), found)
    elif job is None:
        found = source.ask("GET", "/api/uptime", list[UptimeView])
    else:
        found = [source.ask("GET", of_job(jobs[0], "uptime"), UptimeView)]
    if job is None or form is Format.JSON:
        output.show_list(form, found, row_of_job, empty="no jobs")
    else:
        output.show_list(form, [each for view in found for each in view.spans.items()], row_of_span, empty="no run yet")


def row_of_job(view: UptimeView) -> dict[str, str]:
    now = {True: "up", False: "down", None: "unknown"}[view.up]
    return {"job": view.job, "now": now, **{name: share(view.spans[name].uptime) for name in SPANS}}


def row_of_span(named: tuple[str, SpanView]) -> dict[str, str]:
    name, span = named
    times = {"up": span.up_ms, "down": span.down_ms, "excused": span.excused_ms, "unknown": span.unknown_ms}
    return {
        "span": name,
        "uptime": share(span.uptime),
        **{word: round_duration(ms) if ms else "" for word, ms in times.items()},
        "ok": f"{span.ok:,}",
        "failed": f"{span.failed:,}",
        "latency": "" if span.latency_p50_ms is None else round_duration(span.latency_p50_ms),
    }


def share(uptime: float | None) -> str:
    return "" if uptime is None else f"{uptime * 100:.5g} %"
