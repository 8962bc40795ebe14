"""Keep the data directory private to its owner, and tell other users who owns it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from spyweb.errors import NoAccess, Refused, StoreError
from spyweb.settings.sections import DATABASE, LOCK_NAME, MARKER, USER_DB

PRIVATE = 0o700
OURS = frozenset({LOCK_NAME, DATABASE, USER_DB, MARKER})  # a directory with one of them is a data directory
OF_A_DISK = frozenset({"lost+found"})  # when a disk is mounted there


def make_private(directory: Path) -> None:
    """Make the directory, private; refuse one that is there, open to others and with other files, as `/tmp` is."""
    directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        names = set(os.listdir(directory))
        if names.isdisjoint(OURS) and (foreign := sorted(names - OF_A_DISK)):
            raise Refused(f"{directory}: holds {foreign[0]}, which is not spyweb's: data_dir must be a separate folder")
        directory.chmod(PRIVATE)


def no_access(path: Path) -> NoAccess | None:
    """Return an error that names the owner if this user may not read and write there, otherwise None."""
    visible = next(place for place in (path, *path.absolute().parents, Path("/")) if os.path.exists(place))
    # SQLite makes files beside the database.
    places = [visible] if visible.is_dir() else [visible, visible.parent]
    effective = os.access in os.supports_effective_ids
    for place in places:
        needed = os.R_OK | os.W_OK | (os.X_OK if place.is_dir() else 0)
        if not os.access(place, needed, effective_ids=effective):
            return refusal(path, user_name(visible.stat().st_uid))
    return None


def explain(error: OSError, path: Path) -> NoAccess | StoreError:
    """Return the spyweb error for an error of the operating system."""
    return no_access(path) or StoreError(f"{path}: {error.strerror}")


def refusal(path: Path, owner: str) -> NoAccess:
    user = user_name(os.geteuid())
    if user == owner:
        return NoAccess(f"{path}: no access as {user}, who owns it: see its permissions, or a read-only disk")
    return NoAccess(f"{path}: no access as {user}: it belongs to {owner}; use `sudo -u {owner}`")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may have no user names
        return str(uid)
