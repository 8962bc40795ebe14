"""`spyweb trigger`, `pause` and `resume`: start a job, or stop and resume its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from spyweb.cli import output
from spyweb.cli.client import DaemonClient
from spyweb.cli.options import JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, find_in
from spyweb.errors import Refused
from spyweb.model import JobId

if TYPE_CHECKING:
    from spyweb.cli.offline import OfflineProject


def trigger(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Have the daemon start a job now.

    Does not wait for it: `spyweb run` does.
    """
    project = project_of(context)
    daemon = project.find_daemon()
    if daemon is None:
        raise Refused(
            f"no daemon runs in {project.root}: `spyweb run {job}` runs the job here, `spyweb start` starts one"
        )
    run = daemon.trigger(find_in(daemon.jobs(), job))
    output.tell(form, "it did not start: see `spyweb runs`" if run is None else f"run {run} starts", {"run": run})


def pause(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Stop a job's schedule until it is resumed.

    A run under way goes on.  The pause outlives restarts.
    """
    target, chosen = _open_target(project_of(context), job)
    target.pause(chosen)
    output.tell(form, f"{chosen} is paused", {"job": chosen, "paused": True})


def resume(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Let a paused job's schedule go on.

    What was due meanwhile does not run: it is recorded as paused.
    """
    target, chosen = _open_target(project_of(context), job)
    target.resume(chosen)
    output.tell(form, f"{chosen} is no longer paused", {"job": chosen, "paused": False})


def _open_target(project: Project, job: str) -> tuple[DaemonClient | OfflineProject, JobId]:
    """Return what can pause and resume the job: the daemon, or without one the database, under the lock."""
    daemon = project.find_daemon()
    if daemon:
        return daemon, find_in(daemon.jobs(), job)
    return project.offline, find_in(project.offline.views(), job)
