"""Show the first screen of `start` on a terminal: what was found, what is in force, what is due next."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from msgspec import Struct, field

from spyweb import __version__
from spyweb.logs.output import wants_colour
from spyweb.logs.render import paint, printable
from spyweb.model import MIB, JobId, JobSpec
from spyweb.service.daemon import DaemonService
from spyweb.settings import Settings
from spyweb.settings.units import format_duration
from spyweb.views.jobs import JobState, JobView, zone_of
from spyweb.web.listeners import TcpListeners
from spyweb.words import counted

JOBS_SHOWN = 20
LIMITS_SHOWN = 3
BOLD, DIM, RED, YELLOW = "1", "2", "31", "33"

DEFAULTS = JobSpec(id=JobId("-"), name="-", path="", folder="")


class JobLine(Struct, frozen=True, kw_only=True):
    id: str
    schedule: str  # as a person would say it: "every 30s", "cron */5 * * * *"
    next_ms: int | None = None  # None: nothing is due
    timezone: str = "UTC"
    note: str = ""  # "disabled", "paused"


class StartReport(Struct, frozen=True, kw_only=True):
    version: str
    project: str
    data_dir: str
    durability: str
    server: str | None  # its URL; None: switched off
    dashboard: str = ""  # its URL
    workers: int
    limits: str = ""  # "64MB, 10s CPU, 5m per run"
    rights: Sequence[str] = field(default=())  # what workers have given up
    jobs: Sequence[JobLine] = field(default=())
    problems: Sequence[str] = field(default=())


def report_start(
    service: DaemonService, settings: Settings, listeners: TcpListeners, rights: Sequence[str]
) -> StartReport:
    """Gather what the first screen shows."""
    specs = {job.id: job.spec for job in service.live}
    zone = settings.daemon.timezone
    views = service.jobs()
    return StartReport(
        version=__version__,
        project=str(settings.root),
        data_dir=str(settings.daemon.data_dir),
        durability=settings.store.durability.value,
        server=listeners.content.url if listeners.content else None,
        dashboard=listeners.dashboard.url if listeners.dashboard else "",
        workers=settings.daemon.workers,
        limits=describe_limits(list(specs.values())),
        rights=rights,
        jobs=[
            JobLine(
                id=view.id,
                schedule=view.schedule,
                next_ms=view.next_due_ms,
                timezone=zone_of(specs[view.id].schedule, zone),
                note=note_of(view),
            )
            for view in views
            if view.id in specs
        ],
        problems=[str(problem) for problem in service.reloader.problems],
    )


def describe_limits(specs: Sequence[JobSpec]) -> str:
    """Return the limits in force, those of most jobs first."""
    counted = Counter(limits_of(spec) for spec in specs or [DEFAULTS])
    shown = [text for text, _ in counted.most_common(LIMITS_SHOWN)]
    return "; or ".join(shown) + ("; and others" if len(counted) > LIMITS_SHOWN else "")


def limits_of(spec: JobSpec) -> str:
    cpu, wall = format_duration(spec.cpu_limit_ms), format_duration(spec.timeout_ms)
    return f"{spec.memory_limit // MIB}MB a VM, {cpu} CPU and {wall} a run"


def note_of(view: JobView) -> str:
    if view.error:
        return "the file on disk does not load: the version before it runs"
    return view.state.value if view.state in (JobState.DISABLED, JobState.PAUSED) else ""


def show_banner(report: StartReport) -> None:
    lines = describe_start(report, colour=wants_colour(sys.stdout, os.environ))
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()


def describe_start(report: StartReport, *, colour: bool = False) -> list[str]:
    lines = [_painted(f"spyweb {printable(report.version)}", BOLD, colour)]
    lines += [f"  {_painted(f'{name:<10}', DIM, colour)} {printable(text)}" for name, text in _facts(report)]
    lines += ["", *_jobs(report.jobs, colour)]
    if report.problems:
        lines += ["", _painted(f"{counted(len(report.problems), 'problem')}:", RED, colour)]
        lines += [f"  {_painted(printable(problem), RED, colour)}" for problem in report.problems]
    return lines


def _facts(report: StartReport) -> list[tuple[str, str]]:
    facts = [
        ("project", report.project),
        ("data", f"{report.data_dir} (durability {report.durability})"),
        ("server", report.server or "off"),
        ("dashboard", report.dashboard),
        ("workers", str(report.workers)),
        ("limits", report.limits),
        ("sandbox", "; ".join(report.rights) or "none: scripts run with this user's rights"),
    ]
    return [(name, text) for name, text in facts if text]


def _jobs(jobs: Sequence[JobLine], colour: bool) -> list[str]:
    if not jobs:
        return ["no jobs yet: put a Lua file into jobs/, it starts as soon as it is saved"]
    soonest_first = sorted(jobs, key=lambda job: (job.next_ms is None, job.next_ms or 0, job.id))
    shown = soonest_first[:JOBS_SHOWN]
    widths = (max(len(printable(job.id)) for job in shown), max(len(printable(job.schedule)) for job in shown))
    lines = [f"{counted(len(jobs), 'job')}:", *(_job(job, widths, colour) for job in shown)]
    if len(jobs) > len(shown):
        lines.append(f"  … and {len(jobs) - len(shown)} more: spyweb jobs")
    return lines


def _job(job: JobLine, widths: tuple[int, int], colour: bool) -> str:
    name, schedule = f"{printable(job.id):<{widths[0]}}", f"{printable(job.schedule):<{widths[1]}}"
    note = _painted(f"  ({printable(job.note)})", YELLOW, colour) if job.note else ""
    return f"  {_painted(name, BOLD, colour)}  {schedule}  {_next(job)}{note}".rstrip()


def _next(job: JobLine) -> str:
    if job.next_ms is None:
        return "nothing due"
    moment = datetime.fromtimestamp(job.next_ms / 1000, ZoneInfo(job.timezone))
    return f"next {moment:%Y-%m-%d %H:%M:%S} {job.timezone}"


def _painted(text: str, code: str, colour: bool) -> str:
    return paint(text, code if colour else None)
