from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import ABSENT_FAMILIES
from spyweb.specs.linting.undefined import find_undefined


def find_absent(source: bytes) -> list[tuple[int, str]]:
    found = find_undefined(LuaFile(source), read=lambda _: None)
    suffix = " is not part of this version"
    return [(line, reason.removesuffix(suffix)) for line, reason in found if reason.endswith(suffix)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('cdp.open("x")', [(1, "cdp.open")]),
        ("log(1)\ncdp 'ls'\ncdp('ls')", [(2, "cdp")]),
        ("cdp.open { a = 1 }", [(1, "cdp.open")]),
        ("return cdp:read()", [(1, "cdp.read")]),
        ("cdp{}", [(1, "cdp")]),
    ],
)
def test_the_first_use_of_each_absent_family_is_found_with_its_line(source: str, found: list[tuple[int, str]]) -> None:
    assert find_absent(source.encode()) == found


@pytest.mark.parametrize(
    "source",
    [
        "local task = {} task.go()",
        "task = require('task') task.go()",
        "function cdp(x) end cdp('ls')",
        "for _, cdp in ipairs(files) do cdp.close() end",
        "local function show(cdp, name) return cdp.name end",
        "job.task.go() job:cdp('ls')",
        "-- cdp.open()\nlocal s = 'cdp.open()'",
        "taskforce.go() print(type(cdp))",
        "",
    ],
)
def test_what_the_file_defines_itself_or_only_mentions_is_not(source: str) -> None:
    assert find_absent(source.encode()) == []


PIECES = st.sampled_from(
    [*ABSENT_FAMILIES, b".", b":", b"(", b")", b"{", b'"', b"=", b",", b"local", b" ", b"\n", b"[[", b"x"]
)


@given(st.lists(PIECES).map(b"".join))
def test_any_text_gets_an_answer(source: bytes) -> None:
    assert len(find_absent(source)) <= len(ABSENT_FAMILIES)
