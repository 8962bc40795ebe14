"""The names that are written down are those that a VM has."""

from __future__ import annotations

from spyweb.lua import wire
from spyweb.lua.worker.values import StepKind
from spyweb.lua.worker.vm import VM, compile_lua_files, init_of
from spyweb.ops.catalog import names
from spyweb.specs.linting.names import ABSENT, GLOBALS, INSTEAD, MEMBERS
from tests.fakes.vm import FakeCallbacks

LIST = b"""
local names = {}
for name, value in pairs(_G) do
  names[#names + 1] = name
  for member in pairs(type(value) == "table" and name ~= "_G" and value or {}) do
    names[#names + 1] = name .. "." .. tostring(member)
  end
end
for _, level in ipairs({"debug", "info", "warn", "error"}) do -- `log` is a function, whose fields can't be listed
  if log[level] then names[#names + 1] = "log." .. level end
end
print(table.concat(names, " "))
"""


def names_of_a_vm() -> set[bytes]:
    """`http_get`, `state`, `state.get` and so on, as a script finds them by looking at its globals."""
    callbacks = FakeCallbacks()
    ops = [name for name in names() if not name.startswith("_")]
    vm = VM(compile_lua_files(), init_of({"ops": ops, "engine": {}}), 64 << 20, callbacks, main_count=0)
    assert vm.compile(b"x.lua", LIST) is None
    vm.begin(1, "run", wire.pack([{"job": "x"}, False]))
    assert vm.start(1)[0] == StepKind.END
    return {name for _, line in callbacks.lines for name in line.split()}


def test_every_global_and_every_member_of_a_library_is_written_down() -> None:
    found = names_of_a_vm()
    assert {name for name in found if b"." not in name} | {b"_ENV"} == GLOBALS
    for table, members in MEMBERS.items():
        assert {name.partition(b".")[2] for name in found if name.startswith(table + b".")} == members


def test_what_is_said_to_be_absent_is_absent() -> None:
    known = {name.decode() for name in GLOBALS | {b".".join((t, m)) for t in MEMBERS for m in MEMBERS[t]}}
    assert not known & (INSTEAD.keys() | ABSENT.keys())
