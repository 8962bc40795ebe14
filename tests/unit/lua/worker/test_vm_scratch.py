from __future__ import annotations

import pytest

from spyweb.lua.worker.vm import VM, Bytecode, Scratch, init_of
from tests.fakes.vm import FakeCallbacks

LIMIT = 1 << 20


@pytest.mark.parametrize(
    "source",
    [b"return 1", b"x = = 1", b"\xef\xbb\xbf#!lua\nreturn 1", b"goto nowhere", b"\x1bLua", b"", b"return '\\q'"],
)
def test_it_says_what_a_vm_says(bytecode: Bytecode, source: bytes) -> None:
    vm = VM(bytecode, init_of({"ops": [], "engine": {}}), LIMIT, FakeCallbacks(), main_count=0)

    assert Scratch(bytecode, LIMIT).compile(b"x.lua", source) == vm.compile(b"x.lua", source)
    vm.close()


def test_nothing_of_what_it_compiles_runs(bytecode: Bytecode) -> None:
    assert Scratch(bytecode, LIMIT).compile(b"x.lua", b"error('it ran')") is None


def test_it_has_the_room_that_a_vm_has(bytecode: Bytecode) -> None:
    scratch = Scratch(bytecode, LIMIT)
    vm = VM(bytecode, init_of({"ops": [], "engine": {}}), LIMIT, FakeCallbacks(), main_count=0)
    both = range(0, LIMIT, 1024)

    most, most_of_a_vm = max(filter(scratch.has_room, both)), max(filter(vm.has_room, both))

    assert abs(most - most_of_a_vm) <= 8 * 1024
    vm.close()


def test_files_that_fit_one_by_one_may_not_fit_together(bytecode: Bytecode) -> None:
    scratch = Scratch(bytecode, LIMIT)
    source = b"return {'" + b"x" * 100_000 + b"'}"

    assert scratch.has_room(LIMIT - 100_000)
    assert scratch.compile(b"a.lua", source) is None
    assert not scratch.has_room(LIMIT - 100_000)


def test_what_takes_more_than_there_is_ends_for_lack_of_memory(bytecode: Bytecode) -> None:
    assert Scratch(bytecode, LIMIT).compile(b"x.lua", b"return {" + b"1.5," * 200_000 + b"}") == b"not enough memory"
