"""Give up rights that a worker does not need: files, network, other processes.  A script acts through ops alone.

In the order that works: the user and its capabilities, no new privileges, no core and no ptrace, resource limits,
Landlock, and last a seccomp allow-list, as raw BPF through ctypes.  It must be called before any thread is started and
after everything is imported.  What this kernel or system can't do is skipped and reported.  Known traps: RLIMIT_NPROC
forbids threads, RLIMIT_AS fails every VM, RLIMIT_FSIZE 0 forbids a stderr that is a file, and with `stat` denied local
time is UTC unless TZ was read before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

from spyweb.confined.parent import die_with_parent

_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_VERSION = 1  # flag
_EXECUTE = 1  # the right to
_MOST_FILES = 16  # a worker has two sockets and stderr

_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF
_ALLOW, _KILL, _FAIL = 0x7FFF_0000, 0x8000_0000, 0x0005_0000  # _FAIL | errno
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_CLONE_THREAD = 0x0001_0000
_PROT_EXEC = 4
_NICE_LEVELS = 0x1F  # bits of a level above 0; otherwise a thread of root could rise above the daemon

# Names of the system calls that a worker may still make, with their numbers on x86_64 and aarch64.
_ALLOWED = {
    "brk": (12, 214),
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "close": (3, 57),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "futex": (202, 98),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "madvise": (28, 233),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "read": (0, 63),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "set_robust_list": (273, 99),
    "sigaltstack": (131, 132),
    "sysinfo": (99, 179),
    "write": (1, 64),
    "writev": (20, 66),
}
_NO_CODE = {"mmap": (9, 222), "mprotect": (10, 226)}  # allowed unless the memory is to be executable
_OWN_PRIORITY = {"getpriority": (140, 141), "setpriority": (141, 140)}  # of the calling thread, and only downwards
_TGKILL = (234, 131)  # allowed among the worker's own threads
_CLONE = (56, 220)  # allowed for threads
_CLONE3 = 435  # a filter can't see its flags: glibc falls back to clone when it does not exist
_MACHINES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}  # column above, AUDIT_ARCH

_libc = ctypes.CDLL(None, use_errno=True)

# The user, and its capabilities

FIRST_USER = 1_879_048_192  # plus the pid; systemd's list of user ids leaves these unused
NOBODY = 65_534  # used when only the usual user ids are mapped, as in a container

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 24, 47, 4
_HEADER = struct.pack("=Ii", 0x2008_0522, 0)  # of capget and capset: their version, this thread
_SETS = "=6I"  # effective, permitted, inheritable: the lower halves, then the upper ones
_NONE = struct.pack(_SETS, *[0] * 6)
_MOST_CAPABILITIES = 64


def give_up_rights() -> list[str]:
    """Give up this process's rights; return descriptions of those in force and of failed steps."""
    limits = _limit_resources()
    if sys.platform != "linux":
        return [*limits, f"no system-call filter and no Landlock: {sys.platform} has none"]
    return [become_nobody(), _renounce_privileges(), *limits, _restrict(None, "no files"), _filter_system_calls()]


def forbid_programs_and_network() -> list[str]:
    """Forbid programs, TCP and other processes to a process that must still open files; return what came of it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return ["no core", f"no Landlock: {sys.platform} has none"]
    return [_renounce_privileges(), "no core", _restrict(_EXECUTE, "no programs and no network")]


def _renounce_privileges() -> str:
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        return f"no_new_privs: not in force ({_last_error()})"
    return "no new privileges, no ptrace"


def _limit_resources() -> list[str]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = min(_MOST_FILES, most) if most != resource.RLIM_INFINITY else _MOST_FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if any(_is_file(descriptor) for descriptor in (1, 2)):
        return ["no core, no further descriptors"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return ["no core, no further descriptors, no file growth"]


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _restrict(files: int | None, what: str) -> str:
    """Forbid these kinds of access to files (None: all), and the network, by Landlock."""
    version = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    if version < 0:
        return f"Landlock: not in force ({_last_error()})"
    attributes = _landlock_attributes(version, files)
    ruleset = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return f"Landlock: not in force ({_last_error()})"
    failed = _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    reason = _last_error()
    os.close(ruleset)
    return f"Landlock: not in force ({reason})" if failed else f"{what}, by Landlock {version}"


def _landlock_attributes(version: int, files: int | None) -> bytes:
    """Return all that this version can restrict: files (or this access to them), TCP, abstract sockets, signals."""
    if files is None:
        files = (1 << 13) - 1
        for since, bit in ((2, 13), (3, 14), (5, 15)):
            files |= (version >= since) << bit
    network = 3 if version >= 4 else 0
    scopes = 3 if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    return struct.pack("QQQ", files, network, scopes)[:size]


def _filter_system_calls() -> str:
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return f"seccomp: not in force (no table for {platform.machine()})"
    code = b"".join(_program(*machine, os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    program = ctypes.create_string_buffer(header, len(header))
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        return f"seccomp: not in force ({_last_error()})"
    return f"{len(_ALLOWED) + len(_NO_CODE) + len(_OWN_PRIORITY) + 2} system calls, by seccomp"


class _Check(NamedTuple):
    """A check of the lower half of an argument; the calls that are checked ignore the rest."""

    argument: int
    test: int
    value: int
    passes: bool = True  # when the test holds


def _program(column: int, architecture: int, pid: int) -> list[bytes]:
    steps = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_IF_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        *_when(_CLONE3, [_step(_RETURN, _FAIL | errno.ENOSYS)]),
        *_when(_CLONE[column], _allow_if(_Check(0, _IF_ANY_BIT, _CLONE_THREAD))),
        *_when(_TGKILL[column], _allow_if(_Check(0, _IF_EQUAL, pid))),
    ]
    own = [_Check(0, _IF_EQUAL, os.PRIO_PROCESS), _Check(1, _IF_EQUAL, 0)]
    down = [_Check(2, _IF_ANY_BIT, _NICE_LEVELS), _Check(2, _IF_ANY_BIT, 0xFFFF_FFFF ^ _NICE_LEVELS, passes=False)]
    for name, numbers in _OWN_PRIORITY.items():
        steps += _when(numbers[column], _allow_if(*own, *(down if name == "setpriority" else ())))
    for numbers in _NO_CODE.values():
        steps += _when(numbers[column], _allow_if(_Check(2, _IF_ANY_BIT, _PROT_EXEC, passes=False)))
    for numbers in _ALLOWED.values():
        steps += _when(numbers[column], [_step(_RETURN, _ALLOW)])
    return [*steps, _step(_RETURN, _FAIL | errno.EPERM)]


def _when(number: int, actions: Sequence[bytes]) -> list[bytes]:
    return [_step(_IF_EQUAL, number, 0, len(actions)), *actions]


def _allow_if(*checks: _Check) -> list[bytes]:
    """Return steps that allow the call if all checks pass, and otherwise fail it with EPERM."""
    steps = []
    for position, check in enumerate(checks, start=1):
        refuse = 2 * (len(checks) - position) + 1
        jumps = (0, refuse) if check.passes else (refuse, 0)
        steps += [_step(_LOAD, _ARGUMENTS_AT + 8 * check.argument), _step(check.test, check.value, *jumps)]
    return [*steps, _step(_RETURN, _ALLOW), _step(_RETURN, _FAIL | errno.EPERM)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _last_error() -> str:
    return errno.errorcode.get(ctypes.get_errno(), "unknown")


def become_nobody() -> str:
    """Change to a user without rights; return a description of the result."""
    if sys.platform != "linux":
        return f"the daemon's own user: {sys.platform} has no capabilities"
    held = _capabilities()
    is_root = os.geteuid() == 0
    if not is_root and not held:
        return "no capabilities"
    for number in range(_MOST_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
            break  # that was the last one, or it is not allowed: the process never executes a program anyway
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    user = _change_user(held) if is_root else ""
    if held and _libc.capset(_HEADER, _NONE):
        return f"{user}, but with capabilities: {_last_error()}".lstrip(", ")
    return f"{user}, no capabilities".lstrip(", ")


def _capabilities() -> int:
    """Return the permitted capabilities as bits; 0 if they are unknown."""
    sets = ctypes.create_string_buffer(struct.calcsize(_SETS))
    if _libc.capget(_HEADER, sets):
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
        return "own user"
    return f"still root ({reason})"
