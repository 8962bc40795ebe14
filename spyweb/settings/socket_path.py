"""Find the path of the daemon's socket.

It is `spyweb.sock` in the data directory.  The kernel takes no path of more than 107 bytes (macOS: 103): for a longer
path, the socket is in a private directory with a short name, and `spyweb.sock` is a symbolic link to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from spyweb.errors import NoAccess
from spyweb.settings.sections import SOCKET

LIMIT = 103 if sys.platform == "darwin" else 107  # bytes


def find_socket(data_dir: Path) -> Path:
    """Return where to connect to, whether or not anything listens there."""
    path = _path_in(data_dir)
    if not path.is_symlink():
        return path
    # Not simply the target of the link: in a copy of the directory that would be the original's daemon.
    return Path(os.readlink(path)).with_name(_short_name(path))


def claim_socket(data_dir: Path) -> Path:
    """Return where to listen, and remove an earlier daemon's socket.  Only for the holder of the lock."""
    path = _path_in(data_dir)
    _remove(path)
    if fits(path):
        return path
    name = _short_name(path)
    directory = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere") / "spyweb"
    if not directory.parent.is_dir() or not fits(directory / name):
        directory = Path(tempfile.gettempdir()) / f"spyweb-{os.getuid()}"
    short = _private(directory) / name
    _remove(short)
    path.symlink_to(short)
    return short


def release_socket(data_dir: Path) -> None:
    with contextlib.suppress(OSError):  # nobody listens there any more: the next daemon removes it
        find_socket(data_dir).unlink(missing_ok=True)
        _path_in(data_dir).unlink(missing_ok=True)


def fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= LIMIT


def _path_in(data_dir: Path) -> Path:
    """Follow links with `realpath`: `Path.resolve` raises RuntimeError for a circle of links."""
    return Path(os.path.realpath(data_dir)) / SOCKET


def _short_name(path: Path) -> str:
    return f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.sock"


def _remove(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISSOCK(mode) or stat.S_ISLNK(mode)):
        raise NoAccess(f"{path} is in the way: it is not a socket of spyweb; move it away")
    path.unlink()


def _private(directory: Path) -> Path:
    """Make a directory, and refuse it unless it is private: in the temporary directory anybody may make names."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise NoAccess(f"{directory} must be a directory that only this user can enter")
    return directory
