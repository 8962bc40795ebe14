"""Run a program under the filter of system calls that a unit file asks systemd for.

    python tests/fakes/unit_filter.py UNIT PROGRAM [ARGUMENT ...]

Needs systemd-analyze, which knows what its groups of calls stand for, and libseccomp.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ALLOW = 0x7FFF_0000
EPERM = 0x0005_0000 | errno.EPERM
SETTING = re.compile(r"^SystemCallFilter=(~?)(.*)$", re.MULTILINE)


def is_possible() -> bool:
    return bool(shutil.which("systemd-analyze") and ctypes.util.find_library("seccomp"))


def allowed(unit: str) -> set[str]:
    """Return the allowed system calls as systemd reads them: each line adds to the ones before, or takes from them."""
    found = members("@default")
    for is_taken, words in SETTING.findall(unit):
        names = {name for word in words.split() for name in members(word)}
        found = found - names if is_taken else found | names
    return found


def members(word: str) -> set[str]:
    """Return the system calls of a group, or the one itself."""
    if not word.startswith("@"):
        return {word}
    shown = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True)
    inner = [line.strip() for line in shown.stdout.splitlines()[1:]]
    return {name for each in inner if each and not each.startswith("#") for name in members(each)}


def confine(names: set[str]) -> None:
    """Confine this process and what it starts; calls that this machine does not have are left out."""
    seccomp = ctypes.CDLL(ctypes.util.find_library("seccomp"))
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(EPERM))
    for name in sorted(names):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            seccomp.seccomp_rule_add(context, ALLOW, number, 0)
    assert seccomp.seccomp_load(context) == 0


if __name__ == "__main__":
    confine(allowed(Path(sys.argv[1]).read_text()))
    os.execvp(sys.argv[2], sys.argv[2:])
