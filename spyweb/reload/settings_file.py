"""Read config.toml again at each look, and keep the last good settings while it is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

import structlog

from spyweb.errors import ConfigError
from spyweb.settings import Settings
from spyweb.settings.load import read_file
from spyweb.settings.sections import FILE
from spyweb.specs.tree import EMPTY

log = structlog.get_logger()

# Settings of these sections are read once: an edit takes effect at the next start, but for those AT_ONCE.
SECTIONS = ("daemon", "server", "store", "state", "http", "exec", "security")
AT_ONCE = frozenset({"daemon.default_interval", "state.history"})


class SettingsFile:
    """Holds the newest settings that could be read as `current`; logs each problem once."""

    def __init__(self, root: Path, read: Callable[[], Settings], current: Settings) -> None:
        self._root = root
        self._read = read
        self._first = current
        self._problems: Sequence[str] = ()  # logged already
        self._waiting: Sequence[str] = ()  # edited, and in effect from the next start on
        self.current = current

    async def reread(self) -> bool:
        """Read the file again; return whether anything in it has changed."""
        before, problems = self.current, list[str]()
        if await asyncio.to_thread(is_emptied, self._root):
            problems.append(f"{FILE}: {EMPTY}")
        else:
            try:
                self.current = await asyncio.to_thread(self._read)
            except ConfigError as error:
                problems += map(str, error.problems)
        for problem in problems:
            if problem not in self._problems:  # a log in the project's folder would be a change to look at
                log.error("settings not reloaded", problem=problem)
        self._problems = problems
        waiting = waiting_for_a_start(self._first, self.current)
        if waiting and waiting != self._waiting:
            log.warning("settings take effect at the next start", settings=waiting)
        self._waiting = waiting
        return self.current != before


def is_emptied(root: Path) -> bool:
    """Return whether the file is there and empty: an editor, or `>`, empties a file before it writes it."""
    try:
        return not read_file(root).strip()
    except OSError:
        return False  # whoever reads the file tells it


def waiting_for_a_start(before: Settings, now: Settings) -> list[str]:
    """Return the names of the settings that are read once and differ, as they are written in the file."""
    return [
        name
        for section in SECTIONS
        for field in fields(getattr(before, section))
        if getattr(getattr(before, section), field.name) != getattr(getattr(now, section), field.name)
        and (name := f"{section}.{field.name.removesuffix('_ms')}") not in AT_ONCE
    ]
