"""What is left of root, tried in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spyweb.confined.user import FIRST_USER, NOBODY

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root, on Linux, has something to give up"
)

PROGRAM = """
import ctypes, json, os, re, struct, sys
from spyweb.confined import user
from spyweb.confined.parent import die_with_parent

libc = ctypes.CDLL(None, use_errno=True)

def without(*capabilities):
    sets = ctypes.create_string_buffer(24)
    libc.capget(user._HEADER, sets)
    numbers = list(struct.unpack("=6I", sets.raw))
    for capability in capabilities:
        numbers = [numbers[0] & ~(1 << capability), numbers[1] & ~(1 << capability), *numbers[2:]]
    assert libc.capset(user._HEADER, struct.pack("=6I", *numbers)) == 0

die_with_parent()
BEFORE
words = user.become_nobody()
status = open("/proc/self/status").read()
signal = ctypes.c_int()
libc.prctl(2, ctypes.byref(signal), 0, 0, 0)
def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False
print(json.dumps({
    "words": words, "users": os.getresuid(), "groups": [*os.getresgid(), *os.getgroups()], "pid": os.getpid(),
    "capabilities": re.findall(r"^Cap(?:Inh|Prm|Eff|Amb):\\\\s*(\\\\w+)", status, re.M), "signal": signal.value,
    "bounding": re.findall(r"^CapBnd:\\\\s*(\\\\w+)", status, re.M),
    "refused": [refused(lambda: os.setuid(0)), refused(lambda: open("/etc/shadow")), refused(lambda: os.kill(1, 0))],
}))
""".replace("\\\\", "\\")


def report(before: str = "") -> dict[str, Any]:
    root = Path(__file__).parents[3]
    program = [sys.executable, "-c", PROGRAM.replace("BEFORE", before)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=20, check=True, cwd=root)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_root_becomes_a_user_of_its_own_without_capabilities() -> None:
    found = report()

    assert found["words"] == "a user of its own, no capabilities"
    assert set(found["users"]) <= {FIRST_USER + found["pid"], NOBODY}
    assert 0 not in found["groups"]
    assert {int(each, 16) for each in (*found["capabilities"], *found["bounding"])} == {0}
    assert found["refused"] == [True, True, True]


def test_it_still_dies_with_its_parent() -> None:
    assert report()["signal"] == 9


@pytest.mark.parametrize("missing", ["user._CAP_SETUID", "user._CAP_SETGID", "user._CAP_KILL"])
def test_where_the_user_can_not_be_changed_the_capabilities_go_nevertheless(missing: str) -> None:
    found = report(f"without({missing})")

    assert found["words"].startswith("still root (")
    assert found["words"].endswith("), no capabilities")
    assert found["users"] == [0, 0, 0]
    assert {int(each, 16) for each in found["capabilities"]} == {0}
    assert found["signal"] == 9


def test_who_has_nothing_to_give_up_goes_on_as_it_is() -> None:
    found = report("os.setresuid(12345, 12345, 12345)")

    assert (found["words"], found["users"]) == ("no capabilities", [12345] * 3)
