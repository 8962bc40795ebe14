"""Find the program of a command, and what it is told of its surroundings."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from spyweb.errors import CommandError
from spyweb.programs.wire import FileVersion, shown, version_of

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = b"/bin/sh"


def base_environment() -> dict[bytes, bytes]:
    """Return the environment of every command; nothing of the daemon's own is in it."""
    return {b"PATH": PATH.encode(), b"HOME": os.fsencode(os.path.expanduser("~")), b"LANG": b"C.UTF-8"}


class Program(NamedTuple):
    """A program, and which file that is."""

    path: bytes  # absolute
    version: FileVersion


def find_program(name: bytes, workdir: bytes) -> Program:
    """Find a program.

    A name without a slash is looked for on PATH, another is relative to `workdir`.  Waits for the disk.  Raises
    CommandError.
    """
    if not name:
        raise CommandError("the name of the program is empty")
    if b"/" in name:
        path = os.path.normpath(os.path.join(workdir, name))
        places = [path.replace(b"//", b"/", 1)]  # POSIX lets two slashes at the beginning stand
    else:
        places = [os.path.join(folder, name) for folder in PATH.encode().split(b":")]
    refused = ""
    for path in places:
        try:
            status = os.stat(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                refused = refused or f"{shown(path)}: {error.strerror}"
            continue
        if stat.S_ISREG(status.st_mode) and os.access(path, os.X_OK):
            return Program(path, version_of(status))
        refused = refused or f"{shown(path)}: not permitted to execute it"
    raise CommandError(refused or f"{shown(name)}: not found")
