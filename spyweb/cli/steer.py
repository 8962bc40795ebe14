"""`spyweb trigger`, `pause` and `resume`: start a job, or stop and resume its schedule."""

from __future__ import annotations

import typer

from spyweb.cli import output
from spyweb.cli.options import JobName, Output, project_of
from spyweb.cli.output import Format
from spyweb.cli.project import find_in


def trigger(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Have the daemon start a job now.

    Does not wait for it: `spyweb run` does.
    """
    project = project_of(context)
    daemon = project.need_daemon(f": `spyweb run {job}` runs the job here, `spyweb start` starts one")
    run = daemon.trigger(find_in(daemon.jobs(), job))
    output.tell(form, "it did not start: see `spyweb runs`" if run is None else f"run {run} starts", {"run": run})


def pause(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Stop a job's schedule until it is resumed.

    A run under way goes on.  The pause outlives restarts.
    """
    backend = project_of(context).backend()
    chosen = find_in(backend.jobs(), job)
    backend.pause(chosen)
    output.tell(form, f"{chosen} is paused", {"job": chosen, "paused": True})


def resume(context: typer.Context, job: JobName, form: Output = Format.TABLE) -> None:
    """Let a paused job's schedule go on.

    What was due meanwhile does not run: it is recorded as paused.
    """
    backend = project_of(context).backend()
    chosen = find_in(backend.jobs(), job)
    backend.resume(chosen)
    output.tell(form, f"{chosen} is no longer paused", {"job": chosen, "paused": False})
