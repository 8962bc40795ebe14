from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.specs.linting.checks import ABSENT_FAMILIES, find_absent


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('cdp.open("x")', [(1, "cdp.open")]),
        ("log(1)\nfile 'ls'\nfile('ls')", [(2, "file")]),
        ("template.render { a = 1 }", [(1, "template.render")]),
        ("return file:read()", [(1, "file.read")]),
        ("template{}", [(1, "template")]),
        ("cdp('a') file('b')", [(1, "cdp"), (1, "file")]),
    ],
)
def test_the_first_use_of_each_absent_family_is_found_with_its_line(source: str, found: list[tuple[int, str]]) -> None:
    assert find_absent(source.encode()) == found


@pytest.mark.parametrize(
    "source",
    [
        "local task = {} task.go()",
        "task = require('task') task.go()",
        "function file(x) end file('ls')",
        "for _, file in ipairs(files) do file.close() end",
        "local function show(file, name) return file.name end",
        "job.task.go() job:file('ls')",
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
