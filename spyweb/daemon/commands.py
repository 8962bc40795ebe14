"""Open what runs the commands of scripts: with the limits of `[exec]`, in control groups if systemd delegates one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import structlog

from spyweb.clock import Clock
from spyweb.confined.parent import close_to_others
from spyweb.errors import ConfigError, Problem
from spyweb.programs.cgroup import find_delegated, make_groups
from spyweb.programs.runner import CommandLimits, CommandRunner
from spyweb.programs.scratch import remove_left
from spyweb.settings import ExecSettings
from spyweb.settings.sections import FILE

log = structlog.get_logger()

NO_GROUP = "needs a control group that systemd delegates to the daemon: Delegate=cpu memory pids in its unit"
WITHOUT_GROUP = Problem(FILE, None, "exec.processes", NO_GROUP)


def limits_of(settings: ExecSettings) -> CommandLimits:
    return CommandLimits(
        at_once=settings.at_once,
        memory=settings.memory or 0,
        cpu_s=-(-(settings.cpu_ms or 0) // 1000),
        processes=settings.processes or 0,
    )


@asynccontextmanager
async def open_commands(settings: ExecSettings, clock: Clock) -> AsyncIterator[CommandRunner]:
    """Open a runner of commands.  Raises ConfigError where a limit can't be kept.

    With the first command this process becomes one that others of the same user can't look into: its environment has
    what no script is told.
    """
    await asyncio.to_thread(remove_left, os.fsencode(tempfile.gettempdir()), clock.now_ms())
    runner = CommandRunner(clock, limits_of(settings), find_groups(settings), before_first=hide_environment)
    try:
        yield runner
    finally:
        await runner.close()


def hide_environment() -> None:
    """Keep other processes of this user from looking into this one; nothing keeps those of root."""
    close_to_others()
    if os.geteuid() == 0:
        log.warning("commands run as root and can read the daemon's environment: start spyweb as a user of its own")


def find_broken_limits(settings: ExecSettings) -> list[Problem]:
    """Return a warning where a daemon that is started like this process would refuse a limit on commands."""
    if settings.processes is None or find_delegated() is not None:
        return []
    return [replace(WITHOUT_GROUP, is_warning=True)]


def find_groups(settings: ExecSettings) -> Path | None:
    group = find_delegated()
    if group is None:
        if settings.processes is not None:
            raise ConfigError([WITHOUT_GROUP])
        return None
    try:
        return make_groups(group)
    except OSError as error:
        if settings.processes is not None:
            raise ConfigError([Problem(FILE, None, "exec.processes", f"{NO_GROUP} ({error.strerror})")]) from error
        log.warning("commands have no control groups of their own", group=str(group), reason=error.strerror)
        return None
