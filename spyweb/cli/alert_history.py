"""`spyweb alerts history`: what was wrong over a span of time, with a bar for each job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import typer

from spyweb.cli import output
from spyweb.cli.alerts import incidents
from spyweb.cli.options import Output, project_of
from spyweb.cli.output import Format, rounded
from spyweb.cli.project import Project, found_of
from spyweb.errors import Refused
from spyweb.settings.units import DAY_MS, MINUTE_MS, format_duration
from spyweb.settings.values import duration
from spyweb.views.incidents import IncidentView

SPAN = duration(MINUTE_MS, 365 * DAY_MS)
CELLS = 42  # of a bar: four hours each, of a week
DRAWN = 20  # subjects, those that were wrong for longest
WELL, PARTLY, WRONG = "·", "▒", "█"
BARS = ("subject", "", "incidents", "wrong for", "share")
HISTORY_HEADER = ("id", "subject", "level", "since", "lasted", "reason", "acknowledged by", "text")


class HistorySpan(NamedTuple):
    start_ms: int
    end_ms: int


class SubjectBar(NamedTuple):
    """One subject over the span."""

    subject: str
    cells: str
    incidents: int
    wrong_ms: int


def history(
    context: typer.Context,
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only of this job.")] = None,
    since: Annotated[str, typer.Option("--since", metavar="HOW_LONG", help="How far back.")] = "7d",
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 100,
    form: Output = Format.TABLE,
) -> None:
    """Show what was wrong, with a bar for each job."""
    try:
        span_ms = SPAN(since)
    except ValueError as error:
        raise Refused(f"{since[:80]!r}: {error}") from error
    project = project_of(context)
    now_ms = project.clock.now_ms()
    span = HistorySpan(now_ms - span_ms, now_ms)
    source = project.stored()  # also a job that is gone has its incidents
    found = found_of(
        source, job, lambda job: incidents(source, is_open=None, limit=count, job=job, since_ms=span.start_ms)
    )
    if form is Format.JSON:
        output.show_json(found)
        return
    if not found:
        output.note(f"nothing was wrong in the last {format_duration(span_ms)}")
        return
    bars = draw(found, span)
    rows = [
        (
            each.subject,
            each.cells,
            str(each.incidents),
            rounded(each.wrong_ms),
            f"{100 * each.wrong_ms / span_ms:.1f} %",
        )
        for each in bars[:DRAWN]
    ]
    header = (BARS[0], f"{format_duration(span_ms)} up to now", *BARS[2:])
    output.show_table(header, rows, empty="", cut=("subject",), spare=("share", "incidents"))
    output.say("")
    table = [_history_row(project, each) for each in found]
    output.show_table(HISTORY_HEADER, table, empty="", cut=("text", "subject"), spare=("level",))
    if len(bars) > DRAWN:
        output.note(f"{len(bars) - DRAWN} more subjects have no bar: --job shows one")
    if len(found) == count:
        output.note(f"the newest {count}: -n shows more")


def draw(found: Iterable[IncidentView], span: HistorySpan) -> list[SubjectBar]:
    """Return a bar for each subject, that which was wrong for longest first."""
    spans: dict[str, list[HistorySpan]] = {}
    for each in found:
        end_ms = span.end_ms if each.closed_ms is None else min(each.closed_ms, span.end_ms)
        spans.setdefault(each.job_id or each.subject, []).append(HistorySpan(max(each.since_ms, span.start_ms), end_ms))
    bars = [
        SubjectBar(
            subject, cells_of(found, span), len(found), sum(max(0, each.end_ms - each.start_ms) for each in found)
        )
        for subject, found in spans.items()
    ]
    return sorted(bars, key=lambda bar: (-bar.wrong_ms, bar.subject))


def cells_of(spans: Sequence[HistorySpan], whole: HistorySpan) -> str:
    """Draw the times at which something was wrong; what lasted for a moment is seen all the same."""
    width_ms = max(1, (whole.end_ms - whole.start_ms) / CELLS)
    wrong_ms, touched = [0.0] * CELLS, [False] * CELLS
    for each in spans:
        first, last = (_cell(moment, whole.start_ms, width_ms) for moment in each)
        for cell in range(first, last + 1):
            begin_ms = whole.start_ms + cell * width_ms
            wrong_ms[cell] += max(0, min(each.end_ms, begin_ms + width_ms) - max(each.start_ms, begin_ms))
            touched[cell] = True
    return "".join(
        WRONG if wrong >= width_ms / 2 else PARTLY if is_touched else WELL
        for wrong, is_touched in zip(wrong_ms, touched, strict=True)
    )


def _cell(moment_ms: int, start_ms: int, width_ms: float) -> int:
    return min(CELLS - 1, max(0, int((moment_ms - start_ms) / width_ms)))


def _history_row(project: Project, incident: IncidentView) -> tuple[str, ...]:
    end_ms = project.clock.now_ms() if incident.closed_ms is None else incident.closed_ms
    lasted = rounded(end_ms - incident.since_ms)
    return (
        str(incident.id),
        incident.job_id or incident.subject,
        incident.level,
        project.moment(incident.since_ms),
        f"{lasted}, open" if incident.closed_ms is None else lasted,
        incident.reason,
        incident.acked_by,
        incident.text,
    )
