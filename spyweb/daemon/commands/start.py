"""`spyweb start`: become the daemon.

The daemon lives for months and needs neither typer nor rich, so it replaces this process instead of running inside
it: same process id (systemd and Ctrl-C see one program), nothing of the command line left in memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from spyweb.cli.options import root_of
from spyweb.cli.project import open_project
from spyweb.daemon.startup import put_hang_up_off
from spyweb.errors import Refused, legible

PROJECT = ("jobs", "jobs.toml", "config.toml", "server")  # one of them makes a folder a project
LEVELS = (None, "warning", "error")  # -q, -qq


def start(  # noqa: PLR0913 - each parameter is an option
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Listen on this address instead of 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, max=65_535, help="Listen on this port instead of 7979."),
    ] = None,
    no_server: Annotated[bool, typer.Option("-n", "--no-server", help="Don't listen by TCP.")] = False,
    quiet: Annotated[
        int,
        typer.Option("-q", "--quiet", count=True, show_default=False, help="Only warnings; -qq: only errors."),
    ] = 0,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="The number of worker processes; default: one per core, at least 2."),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Move a damaged database aside.")] = False,
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
