from __future__ import annotations

from collections.abc import Iterator

import pytest

from spyweb.lua import wire
from spyweb.lua.procedures import Procedure
from spyweb.lua.worker.vm import VM, Bytecode, init_of
from tests.fakes.vm import FakeCallbacks

INIT = init_of({"ops": [], "engine": {}})


@pytest.fixture
def vm(bytecode: Bytecode) -> Iterator[VM]:
    vm = VM(bytecode, INIT, 4 << 20, FakeCallbacks(), main_count=1000)
    yield vm
    vm.close()


@pytest.mark.parametrize("procedure", Procedure)
def test_a_vm_knows_each_procedure(vm: VM, procedure: Procedure) -> None:
    assert vm.begin(1, procedure, wire.pack([{}])).startswith(b"0x")


@pytest.mark.parametrize("name", ["", "execute", "find", "procedures"])
def test_a_vm_knows_no_other(vm: VM, name: str) -> None:
    with pytest.raises(Exception, match="there is no procedure"):
        vm.begin(1, name, b"\x90")


def test_a_name_crosses_the_wire_as_text() -> None:
    assert wire.unpack(wire.pack([Procedure.LOAD])) == ["load"]
