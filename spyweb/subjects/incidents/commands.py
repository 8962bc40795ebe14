"""`spyweb alerts`: list, show, acknowledge and silence incidents; list and test notification channels."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import quote

import msgspec
import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, of_job, with_query
from spyweb.cli.options import JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Backend, Project, answer_of, find_in, found_of
from spyweb.clock import RealClock
from spyweb.errors import ExitCode, Refused
from spyweb.model import JobId
from spyweb.settings.units import DAY_MS, MINUTE_MS, format_duration
from spyweb.settings.values import duration
from spyweb.subjects.incidents import views

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store
    from spyweb.subjects.incidents.service import IncidentService


SPAN = duration(MINUTE_MS, 365 * DAY_MS)
ONLY_IT = ", and only it has the addresses: `spyweb start`"

ByName = Annotated[str | None, typer.Option("--by", metavar="NAME", help="The name to record, instead of yours.")]
Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The incident's number.", show_default=False)]


def list_incidents(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also closed incidents.")] = False,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 50,
    form: Output = Format.TABLE,
) -> None:
    """List the open incidents, newest first."""
    project = project_of(context)
    found = incidents(project.stored(), is_open=None if every else True, limit=count)

    def row(incident: views.IncidentView) -> dict[str, str]:
        lasts = output.rounded((incident.closed_ms or project.clock.now_ms()) - incident.since_ms)
        cells = _cells(project, incident, "lasts", lasts)
        notified = filter(None, (views.told_words(incident) if incident.told else "", incident.held))
        return {**cells, "notified": "; held: ".join(notified), "text": incident.text}

    cut, spare = ("text", "subject"), ("level", "notified")
    output.show_list(form, found, row, empty="no open incidents", cut=cut, spare=spare)


def show(context: typer.Context, number: Number, form: Output = Format.TABLE) -> None:
    """Show an incident with its history and notifications."""
    project = project_of(context)
    source = project.stored()
    if isinstance(source, DaemonClient):
        found = source.ask("GET", f"/api/incidents/{number}", views.IncidentView)
    else:
        stored: views.IncidentView | None = source.read(lambda store: _service(store).get(number), None)
        if stored is None:
            raise Refused(f"there is no incident {number}")
        found = stored
    if form is Format.JSON:
        output.show_json(found)
        return
    output.show_table(("fact", "value"), _facts(project, found), empty="")


def ack(context: typer.Context, number: Number, by: ByName = None, form: Output = Format.TABLE) -> None:
    """Acknowledge an incident, which ends its reminders."""
    source, name = project_of(context).stored(), by or _user()
    if isinstance(source, DaemonClient):  # the daemon returns the name that it recorded
        name = source.ask("POST", with_query(f"/api/incidents/{number}/ack", by=name), views.IncidentAcked).by or name
    else:
        source.write(lambda store: _service(store).acknowledge(number, name))
    output.tell(form, f"incident {number} was acknowledged by {name}", {"acked": number})


def unack(context: typer.Context, number: Number, by: ByName = None, form: Output = Format.TABLE) -> None:
    """Withdraw an acknowledgement: reminders go on."""
    source, name = project_of(context).stored(), by or _user()
    if isinstance(source, DaemonClient):
        source.ask("DELETE", with_query(f"/api/incidents/{number}/ack", by=name), views.IncidentAcked)
    else:
        source.write(lambda store: _service(store).acknowledge(number, name, undo=True))
    output.tell(form, f"incident {number} is no longer acknowledged", {"unacked": number})


def note(
    context: typer.Context,
    number: Number,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to write.", show_default=False)],
    public: Annotated[bool, typer.Option("--public", help="Show it on the status page.")] = False,
    by: ByName = None,
    form: Output = Format.TABLE,
) -> None:
    """Add a note to an incident, open or closed."""
    source, name = project_of(context).stored(), by or _user()
    if isinstance(source, DaemonClient):
        body = msgspec.json.encode({"text": text, "public": public})
        source.ask("POST", with_query(f"/api/incidents/{number}/notes", by=name), views.IncidentView, body=body)
    else:
        source.write(lambda store: _service(store).add_note(number, text, name, is_public=public))
    output.tell(form, f"noted on incident {number}{', in public' if public else ''}", {"noted": number})


def silence(
    context: typer.Context,
    job: JobName,
    how_long: Annotated[str, typer.Argument(metavar="HOW_LONG", help='A duration such as "2h".', show_default=False)],
    by: ByName = None,
    form: Output = Format.TABLE,
) -> None:
    """Send no notifications about a job for a while."""
    for_ms = _span(how_long)
    chosen = _silence(project_of(context).stored(), job, for_ms, by or _user())
    output.tell(form, f"{chosen} is silenced for {format_duration(for_ms)}", {"job": chosen, "for_ms": for_ms})


def unsilence(context: typer.Context, job: JobName, by: ByName = None, form: Output = Format.TABLE) -> None:
    """Send notifications about a silenced job again."""
    chosen = _silence(project_of(context).stored(), job, None, by or _user())
    output.tell(form, f"{chosen} is no longer silenced", {"job": chosen, "for_ms": 0})


def try_channel(
    context: typer.Context,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name in config.toml.", show_default=False)],
    form: Output = Format.TABLE,
) -> ExitCode:
    """Send a test notification to a channel."""
    daemon = project_of(context).need_daemon(ONLY_IT)
    tried = daemon.ask("POST", f"/api/channels/{quote(channel, safe='')}/test", views.ChannelTried)
    more = f"; {tried.reason}" if tried.reason else ""
    line = f"delivered to {tried.channel}{more}" if tried.is_sent else f"{tried.channel}: {tried.reason}"
    output.tell(form, line, tried)
    return ExitCode.OK if tried.is_sent else ExitCode.FAILED


def list_channels(context: typer.Context, form: Output = Format.TABLE) -> None:
    """List the notification channels and their queues."""
    project = project_of(context)
    found = project.need_daemon(ONLY_IT).ask("GET", "/api/channels", list[views.ChannelView])
    empty, cut, spare = "config.toml has no channels: [channels.NAME]", ("last error",), ("quiet", "level")
    output.show_list(form, found, partial(_channel_row, project), empty=empty, cut=cut, spare=spare)


def incidents(
    source: Backend, *, is_open: bool | None, limit: int, job: JobId | None = None, since_ms: int | None = None
) -> list[views.IncidentView]:
    def ask(store: Store) -> Awaitable[list[views.IncidentView]]:
        return _service(store).list(is_open=is_open, job=job, before=None, limit=limit, since_ms=since_ms)

    state = None if is_open is None else "open" if is_open else "closed"
    target = with_query("/api/incidents", state=state, job=job, since=since_ms, limit=limit)
    return answer_of(source, target, list[views.IncidentView], ask, [])


def _silence(source: Backend, name: str, for_ms: int | None, by: str) -> JobId:
    job = find_in(source.jobs(), name)
    target = with_query(of_job(job, "silence"), by=by)
    if not isinstance(source, DaemonClient):
        source.write(lambda store: _service(store).silence(job, for_ms, by))
    elif for_ms is None:
        source.ask("DELETE", target, views.JobSilenced)
    else:
        source.ask("POST", target, views.JobSilenced, body=msgspec.json.encode({"for": f"{for_ms}ms"}))
    return job


def _service(store: Store) -> IncidentService:
    from spyweb.subjects.incidents.service import IncidentService  # only needed when no daemon runs

    return IncidentService(store.incidents, RealClock())


def _span(text: str) -> int:
    try:
        return SPAN(text)
    except ValueError as error:
        raise Refused(str(error)) from error


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "local"


def _cells(project: Project, incident: views.IncidentView, lasting: str, how_long: str) -> dict[str, str]:
    return {
        "id": str(incident.id),
        "subject": incident.job_id or incident.subject,
        "level": incident.level,
        "since": project.moment(incident.since_ms),
        lasting: how_long,
        "reason": incident.reason,
        "acknowledged by": incident.acked_by,
    }


def _channel_row(project: Project, channel: views.ChannelView) -> dict[str, str]:
    moment = project.moment
    if channel.down_since_ms is not None:
        state = f"down since {moment(channel.down_since_ms)}"
    elif channel.unusable:
        state = "can't be used"
    elif channel.template_problem:
        state = "its template fails"
    elif channel.quiet_until_ms is not None:
        state = f"quiet until {moment(channel.quiet_until_ms)}"
    else:
        state = ""
    failed = f"{moment(channel.failed_ms)}: " if channel.failed_ms is not None else ""
    error = f"{failed}{channel.error}" if channel.error else ""
    return {
        "channel": channel.name,
        "kind": channel.service or channel.kind,
        "host": channel.host,
        "level": channel.level,
        "quiet": channel.quiet,
        "waiting": str(channel.waiting),
        "state": state,
        "last error": channel.unusable or channel.template_problem or error,
    }


def _facts(project: Project, incident: views.IncidentView) -> Sequence[tuple[str, str]]:
    moment, closed_ms, acked_ms = project.moment, incident.closed_ms, incident.acked_ms
    facts = [
        ("incident", str(incident.id)),
        ("subject", incident.job_id or incident.subject),
        ("level", incident.level),
        ("reason", f"{incident.reason}: {incident.text}"),
        *((f"now {sign}", f"{seen.text}, since {moment(seen.since_ms)}") for sign, seen in incident.signs.items()),
        ("since", moment(incident.since_ms)),
        ("opened", moment(incident.opened_ms)),
        ("closed", "" if closed_ms is None else moment(closed_ms)),
        ("acknowledged by", "" if acked_ms is None else f"{incident.acked_by}, {moment(acked_ms)}"),
        ("run", "" if incident.run is None else str(incident.run)),
        ("failures", str(incident.failures or "")),
        ("held", incident.held),
        *((f"channel {channel}", views.delivery_words(incident, channel)) for channel in incident.told),
    ]
    if closed_ms is None and acked_ms is None:
        for each in incident.channels:  # some of them may still be notified of its beginning
            later = f"at {moment(each.from_ms)}, unless acknowledged" if each.from_ms > project.clock.now_ms() else ""
            facts.append((f"notifies {each.name}", "" if each.told else later or each.held or "now"))
    facts = [fact for fact in facts if fact[1]]
    return [*facts, *((moment(note.at_ms), f"{note.by and note.by + ': '}{note.text}") for note in incident.notes)]


CELLS = 42  # of a bar: four hours each, of a week
DRAWN = 20  # subjects, those that were down for longest
WELL, PARTLY, WRONG = "·", "▒", "█"


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
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only incidents of this job.")] = None,
    since: Annotated[str, typer.Option("--since", metavar="HOW_LONG", help="How far back.")] = "7d",
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1_000, help="How many.")] = 100,
    form: Output = Format.TABLE,
) -> None:
    """Show past incidents, with a bar for each job."""
    span_ms, project = _span(since), project_of(context)
    now_ms = project.clock.now_ms()
    span = HistorySpan(now_ms - span_ms, now_ms)
    source = project.stored()  # a job that was removed keeps its incidents
    found = found_of(
        source, job, lambda job: incidents(source, is_open=None, limit=count, job=job, since_ms=span.start_ms)
    )
    if form is Format.JSON:
        output.show_json(found)
        return
    if not found:
        output.note(f"no incident in the last {format_duration(span_ms)}")
        return
    bars = draw(found, span)
    rows = [
        (
            each.subject,
            each.cells,
            str(each.incidents),
            output.rounded(each.wrong_ms),
            f"{100 * each.wrong_ms / span_ms:.1f} %",
        )
        for each in bars[:DRAWN]
    ]
    header = ("subject", f"{format_duration(span_ms)} up to now", "incidents", "down for", "share")
    output.show_table(header, rows, empty="", cut=("subject",), spare=("share", "incidents"))
    output.say("")

    def row(incident: views.IncidentView) -> dict[str, str]:
        lasted = output.rounded((incident.closed_ms or now_ms) - incident.since_ms)
        cells = _cells(project, incident, "lasted", lasted if incident.closed_ms else f"{lasted}, open")
        return {**cells, "text": incident.text}

    output.show_list(form, found, row, empty="", cut=("text", "subject"), spare=("level",))
    if len(bars) > DRAWN:
        output.note(f"{len(bars) - DRAWN} more subjects have no bar: --job shows one")
    if len(found) == count:
        output.note(f"the newest {count}: -n shows more")


def draw(found: Iterable[views.IncidentView], span: HistorySpan) -> list[SubjectBar]:
    """Return a bar for each subject; the one that was down for longest comes first."""
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
    """Draw the times of incidents; one that lasted only a moment is visible too."""
    width_ms, cells = max(1, (whole.end_ms - whole.start_ms) / CELLS), ""
    for number in range(CELLS):
        begin_ms, end_ms = whole.start_ms + number * width_ms, whole.start_ms + (number + 1) * width_ms
        is_last = number == CELLS - 1
        here = [each for each in spans if each.end_ms >= begin_ms and (each.start_ms < end_ms or is_last)]
        wrong_ms = sum(max(0, min(each.end_ms, end_ms) - max(each.start_ms, begin_ms)) for each in here)
        cells += WRONG if wrong_ms >= width_ms / 2 else PARTLY if here else WELL
    return cells
