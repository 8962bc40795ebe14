"""Misspelt methods of tasks, and tasks that depend on each other, are told from the text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.specs.linting.lua_file import LuaFile
from spyweb.specs.linting.names import TASK_METHODS
from spyweb.specs.linting.task_checks import find_task_faults
from tests.fakes.repository import read


def told(source: str) -> list[str]:
    return [f"{line}: {reason}" for line, reason in find_task_faults(LuaFile(source.encode()))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('task("a")\n  :comand(f):build()', ['2: a task has no method comand; did you mean "command"?']),
        ('local t = task("a")\nt:depend_on("b")', ['2: a task has no method depend_on; did you mean "depends_on"?']),
        (
            'local a = task("a"):depends_on("b"):build()\ntask("b"):depends_on({ "c" })\ntask("c"):depends_on(a)',
            ["1: these tasks depend on each other: a -> b -> c -> a"],
        ),
        (
            'ModernDSLs = { g = { tasks = {\n{ name = "a", depends_on = { "b" } }, b = { depends_on = "a" } } } }',
            ["2: these tasks depend on each other: a -> b -> a"],
        ),
        (
            'task{ name = "a", depends_on = "b" }\ntask "b" :depends_on "a" :timout("1s")',
            [
                '2: a task has no method timout; did you mean "timeout"?',
                "1: these tasks depend on each other: a -> b -> a",
            ],
        ),
        ('task("a"):depends_on("a")', ["1: these tasks depend on each other: a -> a"]),
    ],
)
def test_a_fault_is_told_with_its_line(source: str, expected: list[str]) -> None:
    assert told(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        'task("a"):command(function(this) this:comand() end):depends_on("b"):build() task("b")',
        'local a = task("a"):build() task("b"):depends_on(a):build() task("c"):depends_on({ a, "b" })',
        'my.task("a"):comand()',
        'task("a"):notify()',
        'local name, depends_on = "a", "a" name = "a" depends_on = "a"',
        'for i = 1, 3 do task{ name = "a" .. i, depends_on = "a" .. i } end',
        'task("a" .. i):depends_on("a" .. j) task("b"):depends_on({ "b" .. j })',
        'task("a"):depends_on("nobody")',
    ],
)
def test_what_may_be_meant_so_is_not(source: str) -> None:
    assert told(source) == []


@given(st.text(alphabet="task(\"'a):depends_on{}= \n"))
def test_any_text_is_looked_at(source: str) -> None:
    told(source)


def test_the_methods_are_those_that_tasks_have() -> None:
    source = read("spyweb/lua/worker/library/tasks.lua")
    keys = source.partition("local task_keys = {")[2].partition("local task_methods")[0]
    assert {*re.findall(r"(?:^|[,{])\s*([a-z_]+) = ", keys, re.MULTILINE), "build"} - {"definition"} == {
        name.decode() for name in TASK_METHODS
    }
