"""`spyweb start`: become the daemon.  `spyweb stop`: end it as SIGTERM does, and wait for its end.

The daemon lives for months and needs neither typer nor rich, so it replaces this process instead of running inside
it: same process id (systemd and Ctrl-C see one program), nothing of the command line left in memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from spyweb.cli import output
from spyweb.cli.client import DaemonClient, SocketTransport
from spyweb.cli.options import Output, root_of
from spyweb.cli.output import Format
from spyweb.cli.project import Project, open_project
from spyweb.clock import RealClock
from spyweb.daemon.startup import put_hang_up_off
from spyweb.errors import ConfigError, LockHeld, Refused, legible
from spyweb.settings.load import examine_settings
from spyweb.settings.sections import LOCK_NAME, SOCKET
from spyweb.settings.units import SECOND_MS, format_duration
from spyweb.store.lock import hold_lock
from spyweb.views.jobs import JobView

PROJECT = ("jobs", "jobs.toml", "config.toml", "server")  # one of them makes a folder a project
PATIENCE_MS = 20 * SECOND_MS  # beyond the grace of runs: the daemon records what it ended, and commits
ANSWER_S = 3.0  # for an answer; a daemon that takes longer is ended all the same
STEP_S, STARTING_S = 0.2, 10.0  # between two attempts to take the lock; for a daemon that has it to listen
LEVELS = (None, "warning", "error")  # -q, -qq


def start(  # noqa: PLR0913 - each parameter is an option
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Listen on this address instead of 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65_535, help="Listen on this port instead of 7979.")
    ] = None,
    no_server: Annotated[bool, typer.Option("-n", "--no-server", help="Don't listen by TCP.")] = False,
    quiet: Annotated[
        int, typer.Option("-q", "--quiet", count=True, show_default=False, help="Only warnings; -qq: only errors.")
    ] = 0,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The number of worker processes; default: one per core, at least 2."),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Move a damaged database aside.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show more of the start on a terminal.")] = False,
) -> None:
    """Run the daemon, until Ctrl-C or SIGTERM."""
    root = root_of(context)
    open_project(root).refuse_strangers()
    if not any(os.path.lexists(root / name) for name in PROJECT):  # a service without a folder starts in `/`
        what = "it has no jobs/, jobs.toml or config.toml; `spyweb init` makes one"
        raise Refused(f"{legible(root)}: no project: {what}")
    flags = {
        "host": host,
        "port": port,
        "no_server": no_server or None,
        "workers": workers,
        "log_level": LEVELS[min(quiet, 2)],
        "repair": repair or None,
        "verbose": verbose or None,
    }
    become(daemon_command(root, flags))


def daemon_command(root: Path, flags: Mapping[str, object]) -> list[str]:
    """Return the command; with -P a module in the project's folder can't replace one of spyweb's.

    Without -P when spyweb itself was started with `python -m`: it may be in the current folder then.
    """
    started_by_module = getattr(sys.modules["__main__"], "__spec__", None) is not None
    python = [sys.executable] if started_by_module else [sys.executable, "-P"]
    given = {name: value for name, value in flags.items() if value is not None}
    return [*python, "-m", "spyweb.daemon", "--root", str(root), "--flags", json.dumps(given)]


def become(command: list[str]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    put_hang_up_off()
    os.execv(command[0], command)


class Stopped(Struct, frozen=True, kw_only=True):
    """The outcome of `spyweb stop`."""

    stopped: bool  # false: no daemon ran
    pid: int | None = None
    took_ms: int = 0
    running: Sequence[str] = ()  # jobs with a run under way at the beginning


def stop(context: typer.Context, form: Output = Format.TABLE) -> None:
    """Stop the daemon, and wait for its end.

    Nothing new starts; runs that are under way may end within shutdown_grace, and the rest is recorded as stopped.
    Exit code 0 too when no daemon runs.
    """
    root, problem = root_of(context), None
    try:
        project = open_project(root)
    except ConfigError as error:  # the daemon runs on with the settings before
        problem, project = error, Project(examine_settings(root, environ=os.environ, flags={})[0], RealClock())
    project.refuse_strangers()
    daemon = find_daemon_also_starting(project)
    if daemon is None and problem:  # its data may be elsewhere
        raise problem
    if daemon is None:
        output.tell(form, f"no daemon runs in {project.root}", Stopped(stopped=False))
        return
    try:
        jobs = daemon.ask("GET", "/api/jobs", list[JobView], timeout=ANSWER_S)
        running = [job.id for job in jobs if job.in_flight]
    except Refused:  # it does not answer; SIGTERM may end it all the same
        running = []
    if running:
        grace = format_duration(project.settings.daemon.shutdown_grace_ms)
        output.note(f"runs of {', '.join(running)} have {grace} to end")
    began = time.monotonic()
    pid = end_daemon(project)
    took_ms = round((time.monotonic() - began) * 1000)
    line = f"stopped the daemon of {project.root} (pid {pid}) in {format_duration(took_ms)}"
    output.tell(form, line, Stopped(stopped=True, pid=pid, took_ms=took_ms, running=running))


def find_daemon_also_starting(project: Project) -> DaemonClient | None:
    """Return the daemon, also one that has the lock and does not listen yet.  Raises LockHeld for another holder."""
    data_dir, began = project.settings.daemon.data_dir, time.monotonic()
    while (daemon := project.find_daemon()) is None and (data_dir / LOCK_NAME).exists():
        try:
            hold_lock(data_dir, root=project.root).release()
        except LockHeld:
            if time.monotonic() - began > STARTING_S:
                raise
            time.sleep(STEP_S)
        else:
            break
    return daemon


def end_daemon(project: Project) -> int:
    """Send SIGTERM to the daemon and wait for its lock.  Raises Refused when it does not end, or another one starts."""
    data_dir, began = project.settings.daemon.data_dir, time.monotonic()
    try:
        listener = SocketTransport(data_dir / SOCKET)
        pid, uid = listener.peer()
    except OSError as error:
        raise Refused(f"the daemon of {project.root} can't be reached: {error.strerror}") from error
    if not pid:
        raise Refused(f"the daemon of {project.root} runs in another container: stop it there")
    if uid not in (None, data_dir.stat().st_uid):  # a link in somebody's folder must not make root end another service
        raise Refused(f"{data_dir}: pid {pid} listens there, which is not a process of the folder's owner")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    while True:
        output.show_passing(f"stopping the daemon (pid {pid}): {time.monotonic() - began:.0f} s")
        time.sleep(STEP_S)
        try:
            hold_lock(data_dir, root=project.root).release()
            break
        except LockHeld as error:
            with suppress(OSError):
                if (other := listener.peer()[0]) != pid:
                    why = f"the daemon (pid {pid}) has ended, and another (pid {other}) was started in its place"
                    raise Refused(f"{why}: stop the service that starts it") from error
            if time.monotonic() - began > (project.settings.daemon.shutdown_grace_ms + PATIENCE_MS) / 1000:
                why = f"the daemon (pid {pid}) has not ended: see its log; `kill -9 {pid}` ends it at once"
                raise Refused(why) from error
    output.show_passing("")
    return pid
