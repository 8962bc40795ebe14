"""Control groups (version 2), one for each command, where systemd delegates the daemon's own to it (`Delegate=`).

A group bounds what a command and everything below it use together, and ends all of it at once, programs of other users
too.  The daemon and its other processes move to a group `main` beside those of the commands, `exec/N`: the kernel
allows processes only in groups without others below them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
CONTROLLERS = ("memory", "pids")
MAIN, COMMANDS = "main", "exec"
REMOVAL_TRIES = 50  # a process that has ended leaves its group a moment later
REMOVAL_EVERY_S = 0.01


def find_delegated(mounts: tuple[Path, ...] = MOUNTS, own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return this process's own group, if systemd has delegated it; None otherwise."""
    with suppress(OSError):
        lines = own.read_text().splitlines()
        path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
        for mount in mounts if path is not None else ():
            group = mount / str(path)
            if (group / "cgroup.procs").exists() and _is_delegated(group):
                return group
    return None


def _is_delegated(group: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError, AttributeError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def make_groups(group: Path) -> Path:
    """Move all processes to `main`, end commands that are left, and return their folder.  Raises OSError."""
    main, commands = group / MAIN, group / COMMANDS
    main.mkdir(exist_ok=True)
    while pids := (group / "cgroup.procs").read_text().split():
        for pid in pids:
            with suppress(ProcessLookupError):
                (main / "cgroup.procs").write_text(pid)
    commands.mkdir(exist_ok=True)
    for folder in (group, commands):
        for controller in CONTROLLERS:
            with suppress(OSError):  # it is not delegated: a limit that needs it is refused with the command
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    for left in [each for each in commands.iterdir() if each.is_dir()]:
        abandoned = CommandGroup(left)
        abandoned.kill()
        abandoned.remove()
    return commands


def _move_here(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")


class CommandGroup:
    """The group of one command; none, where there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def make(cls, folder: str, *, memory: int, processes: int) -> CommandGroup:
        """Make the group with its limits (0: none).  Raises OSError, and then leaves none."""
        if not folder:
            return cls(None)
        path = Path(folder)
        path.mkdir()
        group = cls(path)
        try:
            if memory:
                (path / "memory.max").write_text(str(memory))
                with suppress(OSError):  # this kernel does not account for swap
                    (path / "memory.swap.max").write_text("0")
            if processes:
                (path / "pids.max").write_text(str(processes + 1))  # its nanny is in it for a moment
        except OSError:
            group.remove()
            raise
        return group

    @property
    def is_in_force(self) -> bool:
        return self._folder is not None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this process into the group for a while: processes started meanwhile stay there.  Raises OSError."""
        if self._folder is None:
            yield
            return
        _move_here(self._folder)
        try:
            yield
        finally:
            _move_here(self._folder.parents[1] / MAIN)

    def kill(self) -> None:
        if self._folder is not None:
            with suppress(OSError):  # a kernel before 5.14: the sweep alone must do
                (self._folder / "cgroup.kill").write_text("1")

    def remove(self) -> None:
        """Remove the group, with the groups that the command has made in it."""
        if self._folder is None:
            return
        for _ in range(REMOVAL_TRIES):
            for path, _folders, _files in os.walk(self._folder, topdown=False):
                with suppress(OSError):
                    os.rmdir(path)
            if not self._folder.exists():
                return
            time.sleep(REMOVAL_EVERY_S)
