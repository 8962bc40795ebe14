"""Show the first screen of `start` on a terminal: what was found, what is in force, what is due next."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from spyweb import __version__
from spyweb.errors import Problem
from spyweb.logs.output import wants_colour
from spyweb.logs.render import paint, printable
from spyweb.service.daemon import DaemonService
from spyweb.settings import Settings
from spyweb.views.jobs import JobState, JobView
from spyweb.web.listeners import TcpListeners
from spyweb.words import counted

JOBS_SHOWN = 20
BOLD, DIM, RED, YELLOW = "1", "2", "31", "33"


def show_banner(service: DaemonService, settings: Settings, listeners: TcpListeners, rights: Sequence[str]) -> None:
    """Print it; `rights` are those that workers have given up."""
    facts = {
        "project": str(settings.root),
        "data": f"{settings.daemon.data_dir} (durability {settings.store.durability.value})",
        "server": listeners.content.url if listeners.content else "off",
        "dashboard": listeners.dashboard.url if listeners.dashboard else "",
        "workers": str(settings.daemon.workers),
        "sandbox": "; ".join(rights) or "none: scripts run with this user's rights",
    }
    zone, colour = settings.daemon.timezone, wants_colour(sys.stdout, os.environ)
    jobs = [job for job in service.jobs() if job.generation]  # the others are among the problems
    lines = describe_start(facts, jobs, service.reloader.problems, zone=zone, colour=colour)
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()


def describe_start(
    facts: Mapping[str, str], jobs: Sequence[JobView], problems: Sequence[Problem], *, zone: str, colour: bool = False
) -> list[str]:
    def painted(text: str, code: str) -> str:
        return paint(printable(text), code if colour else None)

    lines = [painted(f"spyweb {__version__}", BOLD)]
    lines += [f"  {painted(f'{name:<10}', DIM)} {printable(text)}" for name, text in facts.items() if text]
    if jobs:
        lines += ["", f"{counted(len(jobs), 'job')}:"]
    else:
        lines += ["", "no jobs yet: put a Lua file into jobs/, it starts as soon as it is saved"]
    shown = sorted(jobs, key=lambda job: (job.next_due_ms is None, job.next_due_ms or 0, job.id))[:JOBS_SHOWN]
    width = max((len(job.id) for job in shown), default=0)
    schedule_width = max((len(job.schedule) for job in shown), default=0)
    for job in shown:
        name, schedule = painted(f"{job.id:<{width}}", BOLD), f"{printable(job.schedule):<{schedule_width}}"
        note = note_of(job) and painted(f"  ({note_of(job)})", YELLOW)
        lines.append(f"  {name}  {schedule}  {_next(job, zone)}{note}")
    if len(jobs) > len(shown):
        lines.append(f"  … and {len(jobs) - len(shown)} more: spyweb jobs")
    if problems:
        lines += ["", painted(f"{counted(len(problems), 'problem')}:", RED)]
        lines += [f"  {painted(str(problem), RED)}" for problem in problems]
    return lines


def note_of(view: JobView) -> str:
    if view.error:
        return "the file on disk does not load: the version before it runs"
    return view.state.value if view.state in (JobState.DISABLED, JobState.PAUSED) else ""


def _next(job: JobView, zone: str) -> str:
    if job.next_due_ms is None:
        return "nothing due"
    return f"next {datetime.fromtimestamp(job.next_due_ms / 1000, ZoneInfo(zone)):%Y-%m-%d %H:%M:%S} {zone}"
