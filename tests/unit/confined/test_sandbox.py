from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spyweb.confined import sandbox
from spyweb.confined.sandbox import FIRST_USER, NOBODY

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF_0000, 0x0005_0001, 0x0005_0026, 0x8000_0000
X86_64, AARCH64 = 0xC000_003E, 0xC000_00B7
PID = 4711
MINUS_5 = 0xFFFF_FFFB  # as the register holds it


def verdict(column: int, own: int, *, number: int, architecture: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would decide: the program, interpreted."""
    steps = [struct.unpack("HBBI", step) for step in sandbox._program(column, own, PID)]
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *([0] * (6 - len(arguments))))
    accumulator = at = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x15:
            at += if_true if accumulator == value else if_false
        elif code == 0x45:
            at += if_true if accumulator & value else if_false
        else:
            raise AssertionError(f"unknown instruction {code:#x}")


X86, ARM = (0, X86_64), (1, AARCH64)
PRIORITIES = [  # a thread can only lower its own
    ((0, 0, 10), ALLOW), ((0, 0, 19), ALLOW), ((0, 0, 0), EPERM), ((0, 0, MINUS_5), EPERM), ((0, 4711, 10), EPERM),
    ((1, 0, 10), EPERM), ((2, 0, 10), EPERM),
]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "number", "arguments", "expected"),
    [
        (X86, 202, (), ALLOW),  # futex
        (ARM, 98, (), ALLOW),
        (X86, 257, (), EPERM),  # openat
        (ARM, 56, (), EPERM),
        (X86, 56, (0x0001_0000 | 0xF00,), ALLOW),  # clone makes threads only
        (X86, 56, (0x11,), EPERM),
        (X86, 435, (), ENOSYS),  # clone3 seems not to exist
        (X86, 9, (0, 4096, 3), ALLOW),  # memory is never executable
        (X86, 9, (0, 4096, 5), EPERM),
        (X86, 234, (PID, 5, 10), ALLOW),  # threads of this process can be signalled
        (X86, 234, (PID + 1, 5, 10), EPERM),
        (X86, 234, (0, 5, 10), EPERM),
        *((X86, 141, arguments, expected) for arguments, expected in PRIORITIES),
        *((ARM, 140, arguments, expected) for arguments, expected in PRIORITIES),
        (X86, 140, (0, 0), ALLOW),  # and only ask for its own
        (X86, 140, (0, 1), EPERM),
    ],
)
def test_only_what_is_listed_is_allowed(
    machine: tuple[int, int], number: int, arguments: tuple[int, ...], expected: int
) -> None:
    column, architecture = machine
    assert verdict(column, architecture, number=number, architecture=architecture, arguments=arguments) == expected


def test_another_architectures_calls_end_the_process() -> None:
    assert verdict(0, X86_64, number=202, architecture=0x4000_0003) == KILL


def test_the_numbers_of_one_machine_are_all_different() -> None:
    listed = (sandbox._ALLOWED, sandbox._NO_CODE, sandbox._OWN_PRIORITY)
    for column in (0, 1):
        numbers = [entry[column] for entries in listed for entry in entries.values()]
        numbers += [sandbox._TGKILL[column], sandbox._CLONE[column]]
        assert len(numbers) == len(set(numbers))


CLOSED_UP = """
import os, socket
from spyweb.confined.sandbox import forbid_programs_and_network

there = socket.create_server(("127.0.0.1", 0))
print("; ".join(forbid_programs_and_network()))
open("/proc/self/status").close()
for reach in (lambda: os.execv("/bin/true", ["true"]), lambda: socket.create_connection(there.getsockname())):
    try:
        reach()
        print("reached")
    except PermissionError:
        print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_what_must_open_files_starts_no_program_and_reaches_no_network() -> None:
    ran = subprocess.run([sys.executable, "-c", CLOSED_UP], capture_output=True, text=True, check=True)
    in_force, program, network = ran.stdout.splitlines()
    if "Landlock: not in force" in in_force or int(in_force.rsplit(" ", 1)[1]) < 4:
        pytest.skip(in_force)
    assert "no programs and no network, by Landlock" in in_force
    assert (program, network) == ("refused", "refused")


# What is left of root, tried in a process of its own

only_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root, on Linux, has something to give up"
)

AS_NOBODY = """
import ctypes, json, os, re, struct, sys
from spyweb.confined import sandbox
from spyweb.confined.parent import die_with_parent

libc = ctypes.CDLL(None, use_errno=True)

def without(*capabilities):
    sets = ctypes.create_string_buffer(24)
    libc.capget(sandbox._HEADER, sets)
    numbers = list(struct.unpack("=6I", sets.raw))
    for capability in capabilities:
        numbers = [numbers[0] & ~(1 << capability), numbers[1] & ~(1 << capability), *numbers[2:]]
    assert libc.capset(sandbox._HEADER, struct.pack("=6I", *numbers)) == 0

die_with_parent()
BEFORE
words = sandbox.become_nobody()
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
    program = [sys.executable, "-c", AS_NOBODY.replace("BEFORE", before)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=20, check=True, cwd=root)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@only_root
def test_root_becomes_a_user_of_its_own_without_capabilities() -> None:
    found = report()

    assert found["words"] == "own user, no capabilities"
    assert set(found["users"]) <= {FIRST_USER + found["pid"], NOBODY}
    assert 0 not in found["groups"]
    assert {int(each, 16) for each in (*found["capabilities"], *found["bounding"])} == {0}
    assert found["refused"] == [True, True, True]


@only_root
def test_it_still_dies_with_its_parent() -> None:
    assert report()["signal"] == 9


@only_root
@pytest.mark.parametrize("missing", ["sandbox._CAP_SETUID", "sandbox._CAP_SETGID", "sandbox._CAP_KILL"])
def test_where_the_user_can_not_be_changed_the_capabilities_go_nevertheless(missing: str) -> None:
    found = report(f"without({missing})")

    assert found["words"].startswith("still root (")
    assert found["words"].endswith("), no capabilities")
    assert found["users"] == [0, 0, 0]
    assert {int(each, 16) for each in found["capabilities"]} == {0}
    assert found["signal"] == 9


@only_root
def test_who_has_nothing_to_give_up_goes_on_as_it_is() -> None:
    found = report("os.setresuid(12345, 12345, 12345)")

    assert (found["words"], found["users"]) == ("no capabilities", [12345] * 3)
