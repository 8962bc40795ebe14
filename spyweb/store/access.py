"""Who may open what: the data directory is its owner's alone, and whoever may not enter is told whose it is."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from spyweb.errors import NoAccess

PRIVATE = 0o700


def make_private(directory: Path) -> None:
    """Make the directory if it is absent, and keep everybody but its owner out of it."""
    directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(PRIVATE)


def no_access(path: Path) -> NoAccess | None:
    """The error that says whose it is, if this user may not read and write what is there (or make what is not)."""
    there = nearest_visible(path)
    needed = os.R_OK | os.W_OK | (os.X_OK if there.is_dir() else 0)
    return None if os.access(there, needed) else refusal(there)


def refusal(path: Path) -> NoAccess:
    owner = user_name(nearest_visible(path).stat().st_uid)
    return NoAccess(f"{path}: no access as {user_name(os.geteuid())}: it belongs to {owner}; use `sudo -u {owner}`")


def nearest_visible(path: Path) -> Path:
    """The path itself, or the nearest folder above it that this user can see."""
    for candidate in (path, *path.absolute().parents):
        try:
            candidate.stat()
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            continue
        return candidate
    return Path("/")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may know no names
        return str(uid)
