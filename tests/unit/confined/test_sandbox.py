from __future__ import annotations

import struct

import pytest

from spyweb.confined import sandbox

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF_0000, 0x0005_0001, 0x0005_0026, 0x8000_0000
X86_64, AARCH64 = 0xC000_003E, 0xC000_00B7


def verdict(column: int, own: int, *, number: int, architecture: int, arguments: tuple[int, ...] = ()) -> int:
    """What the kernel would decide: the program, interpreted."""
    steps = [struct.unpack("HBBI", step) for step in sandbox._program(column, own)]
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


@pytest.mark.parametrize(("column", "architecture", "futex", "open_at"), [(0, X86_64, 202, 257), (1, AARCH64, 98, 56)])
def test_only_what_is_listed_is_allowed(column: int, architecture: int, futex: int, open_at: int) -> None:
    assert verdict(column, architecture, number=futex, architecture=architecture) == ALLOW
    assert verdict(column, architecture, number=open_at, architecture=architecture) == EPERM


def test_another_architectures_calls_end_the_process() -> None:
    assert verdict(0, X86_64, number=202, architecture=0x4000_0003) == KILL


@pytest.mark.parametrize(("flags", "expected"), [(0x0001_0000 | 0xF00, ALLOW), (0x11, EPERM)])
def test_clone_makes_threads_only(flags: int, expected: int) -> None:
    assert verdict(0, X86_64, number=56, architecture=X86_64, arguments=(flags,)) == expected


def test_clone3_seems_not_to_exist() -> None:
    assert verdict(0, X86_64, number=435, architecture=X86_64) == ENOSYS


@pytest.mark.parametrize(("protection", "expected"), [(3, ALLOW), (5, EPERM)])
def test_memory_is_never_executable(protection: int, expected: int) -> None:
    assert verdict(0, X86_64, number=9, architecture=X86_64, arguments=(0, 4096, protection)) == expected


def test_the_numbers_of_one_machine_are_all_different() -> None:
    for column in (0, 1):
        numbers = [entry[column] for entry in (*sandbox._ALLOWED.values(), *sandbox._NO_CODE.values())]
        assert len(numbers) == len(set(numbers))
