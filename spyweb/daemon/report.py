"""What `start` found and what is in force, for whoever sits at the terminal."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence

from spyweb import __version__
from spyweb.logs import JobLine, StartReport, describe_start
from spyweb.logs.output import wants_colour
from spyweb.model import MIB, JobId, JobSpec
from spyweb.service.daemon import DaemonService
from spyweb.settings import Settings
from spyweb.settings.units import format_duration
from spyweb.views.jobs import JobState, JobView, zone_of

DEFAULTS = JobSpec(id=JobId("-"), name="-", path="", folder="")


def report_start(service: DaemonService, settings: Settings, url: str | None, rights: Sequence[str]) -> StartReport:
    specs = {job.id: job.spec for job in service.live}
    zone = settings.daemon.timezone
    views = service.jobs()
    return StartReport(
        version=__version__,
        project=str(settings.root),
        data_dir=str(settings.daemon.data_dir),
        durability=settings.store.durability.value,
        server=url,
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


LIMITS_SHOWN = 3


def describe_limits(specs: Sequence[JobSpec]) -> str:
    """The limits in force, those of most jobs first."""
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


def show(report: StartReport) -> None:
    lines = describe_start(report, colour=wants_colour(sys.stdout, os.environ))
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()
