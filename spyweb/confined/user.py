"""Turn a process that root started into one of an unused user without any capability.

It must be called before any thread is started, and before the system-call filter.  What this system does not allow is
skipped and reported.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

from spyweb.confined.parent import die_with_parent

FIRST_USER = 1_879_048_192  # plus the pid; systemd's list of user ids leaves these unused
NOBODY = 65_534  # used when only the usual user ids are mapped, as in a container

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 24, 47, 4
_HEADER = struct.pack("=Ii", 0x2008_0522, 0)  # of capget and capset: their version, this thread
_SETS = "=6I"  # effective, permitted, inheritable: the lower halves, then the upper ones
_NONE = struct.pack(_SETS, *[0] * 6)
_MOST_CAPABILITIES = 64


def become_nobody() -> str:
    """Change to a user without rights; return a description of the result."""
    if sys.platform != "linux":
        return f"the daemon's own user: {sys.platform} has no capabilities"
    libc = ctypes.CDLL(None, use_errno=True)
    held = _capabilities(libc)
    is_root = os.geteuid() == 0
    if not is_root and not held:
        return "no capabilities"
    for number in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
            break  # that was the last one, or it is not allowed: the process never executes a program anyway
    libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    user = _change_user(held) if is_root else ""
    if held and libc.capset(_HEADER, _NONE):
        return f"{user}, but with capabilities: {errno.errorcode.get(ctypes.get_errno(), 'unknown')}".lstrip(", ")
    return f"{user}, no capabilities".lstrip(", ")


def _capabilities(libc: ctypes.CDLL) -> int:
    """Return the permitted capabilities as bits; 0 if they are unknown."""
    sets = ctypes.create_string_buffer(struct.calcsize(_SETS))
    if libc.capget(_HEADER, sets):
        return 0
    _, lower, _, _, upper, _ = struct.unpack(_SETS, sets.raw)
    return int(upper << 32 | lower)


def _change_user(held: int) -> str:
    """Change the user, unless the daemon, which has the same rights, could then not end this process any more."""
    needed = 1 << _CAP_KILL | 1 << _CAP_SETGID | 1 << _CAP_SETUID
    if held & needed != needed:
        return "still root (no right to change the user, or to end other users' processes)"
    parent = os.getppid()
    reason = "unknown"
    for user in (FIRST_USER + os.getpid(), NOBODY):
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError as error:
            reason = errno.errorcode.get(error.errno or 0, "unknown")
            continue
        die_with_parent()  # the change of user has reset it
        if os.getppid() != parent:
            os._exit(0)
        return "a user of its own"
    return f"still root ({reason})"
