"""Try what a policy promises: programs can be executed, folders can be written; where not, say what stands in the way.

Under systemd that is often a directive of the unit: `spyweb check`, started under it, names that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from spyweb.errors import Problem
from spyweb.model import JobSpec

HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
STATUS = Path("/proc/self/status")


def find_broken_promises(
    specs: Iterable[JobSpec], environment: Mapping[str, str], data: Path | None = None
) -> list[Problem]:
    """Return a warning for each program and folder that a job may use and can't, or that has more than is meant.

    `data` is where spyweb keeps what is stored.
    """
    is_unit = "INVOCATION_ID" in environment
    found: dict[Problem, None] = {}
    for spec in specs:
        reasons = [
            ("permissions.exec", program, why_not_executable(program, is_unit=is_unit))
            for program in spec.policy.programs
        ]
        reasons += [("permissions.files", root, why_not_writable(root, is_unit=is_unit)) for root in spec.policy.roots]
        reasons += [("permissions.files", root, why_too_wide(root, data)) for root in spec.policy.roots]
        for key, path, reason in reasons:
            if reason:
                found[Problem(spec.path, None, key, f"{path}: {reason}", is_warning=True)] = None
    return list(found)


def why_not_executable(path: str, *, is_unit: bool) -> str:
    """Return why a program can't be executed; empty if it can."""
    try:
        status = os.stat(path)
    except OSError as error:
        return _why_absent(path, error, is_unit=is_unit)
    if not stat.S_ISREG(status.st_mode) or not os.access(path, os.X_OK):
        is_mount = bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
        return "its file system is mounted with noexec (NoExecPaths= in a unit)" if is_mount else "it is not executable"
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID) and _has_no_new_privileges():
        return "it changes its user or group, which NoNewPrivileges=yes of the unit does not allow"
    return ""


def why_not_writable(path: str, *, is_unit: bool) -> str:
    """Return why files below a folder can't be written; empty if they can."""
    try:
        status = os.stat(path)
    except OSError as error:
        return _why_absent(path, error, is_unit=is_unit)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "it is read-only" + (": add it to ReadWritePaths= of the unit" if is_unit else "")
    return "" if os.access(path, os.W_OK | os.X_OK) else "this user may not write there"


def why_too_wide(path: str, data: Path | None) -> str:
    """Return what is said of a folder that has what spyweb stores; empty if it has not."""
    root, kept = Path(os.path.realpath(path)), data and Path(os.path.realpath(data))
    if kept is None or not (kept.is_relative_to(root) or root.is_relative_to(kept)):
        return ""
    return f"{kept.name}/ of this project is below it: file.* writes nothing there, but reads what is"


def _why_absent(path: str, error: OSError, *, is_unit: bool) -> str:
    if is_unit and any(Path(path).is_relative_to(home) for home in HOMES):
        return "it can't be seen: ProtectHome= of the unit hides homes"
    return str(error.strerror)


def _has_no_new_privileges() -> bool:
    try:
        return "NoNewPrivs:\t1" in STATUS.read_text()
    except OSError:
        return False
