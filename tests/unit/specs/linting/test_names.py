"""The names that are written down are those that a VM has."""

from __future__ import annotations

from spyweb.specs.linting.names import ABSENT, GLOBALS, INSTEAD, MEMBERS
from tests.fakes.lua_library import globals_of_a_vm


def test_every_global_and_every_member_of_a_library_is_written_down() -> None:
    found = {name.encode() for name in globals_of_a_vm()}
    assert {name for name in found if b"." not in name} | {b"_ENV"} == GLOBALS
    for table, members in MEMBERS.items():
        assert {name.partition(b".")[2] for name in found if name.startswith(table + b".")} == members


def test_what_is_said_to_be_absent_is_absent() -> None:
    known = {name.decode() for name in GLOBALS | {b".".join((t, m)) for t in MEMBERS for m in MEMBERS[t]}}
    assert not known & (INSTEAD.keys() | ABSENT.keys())
