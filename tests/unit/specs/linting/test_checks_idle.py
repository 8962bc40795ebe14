from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.specs.linting.checks import find_idle
from spyweb.specs.linting.lua_file import LuaFile

NOTHING = "a run of this file does nothing: it only defines"


def told(source: str) -> str | None:
    line, reason = find_idle(LuaFile(source.encode()))
    return f"{line}: {reason}" if line else None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("function main()\n  log('x')\nend", f"1: {NOTHING} main; spyweb calls the global function run(ctx)"),
        ("\nlocal ModernDSLs = { a = { run = function() log(1) end } }", f"2: {NOTHING} ModernDSLs; spyweb calls the"),
        ("a, b, c, d = {}, {}, {}, {} e = {}", f"1: {NOTHING} d, e;"),
        ("a = {} b = {} c = {} d = {}", f"1: {NOTHING} a, b, c, …; spyweb calls"),
        (
            "\nreturn { name = 'x', execute = function(this) end }",
            "2: a run of this file does nothing: it returns a table",
        ),
        (
            "local M = {}\nreturn {\n  go = function() return { 1 } end,\n};\n",
            "2: a run of this file does nothing: it r",
        ),
        (
            "local log = require('log')\nlocal M = {}\nfunction M.execute() log.info('x') end\nreturn M",
            "4: a run of this",
        ),
        ("local function run() log('x') end", f"1: {NOTHING} run; spyweb calls the global function run, and this one"),
        ("local t = {} t.x = function() f() end", f"1: {NOTHING} t;"),
        ("if true then x = {} end", f"1: {NOTHING} x;"),
    ],
)
def test_a_file_that_only_defines_things_is_told(source: str, expected: str) -> None:
    assert (told(source) or "").startswith(expected)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "-- only a comment",
        "x = 1",
        "visits = (visits or 0) + 1",
        "function run() end",
        "run = function() end",
        "function on_state() end",
        "function on_success() end x = {}",
        "local function f() end f()",
        "return {}",
        "return { at = os.time() }",
        "function f() end\nreturn false",
        "task('a'):command(print)\nreturn { f = function() end }",
        "function run() end\nreturn { f = function() end }",
        "if x then\nreturn { f = function() end }\nend\nlog('y')",
        "log'x' t = {}",
        "log{} t = {}",
        "log[[x]] t = {}",
        "(function() end)()",
        "for i = 1, 3 do log(i) end t = {}",
        "repeat t = {} until done()",
        "t = setmetatable({}, {})",
        "t = {} t:start()",
        "t = { start() }",
        "_G.run = function() end",
        "local run function run() end run()",
    ],
)
def test_a_file_that_does_something_is_not(source: str) -> None:
    assert told(source) is None


@given(st.text(alphabet="function end{}()='\"do if a.:[]\n-"))
def test_any_text_is_looked_at(source: str) -> None:
    told(source)
