from __future__ import annotations

import pytest

from spyweb.specs.linting.checks import find_own_call
from spyweb.specs.linting.lua_file import LuaFile


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("function run(ctx)\nend\nrun({})\n", 3),
        ("function run(ctx)\nend\nreturn run(...)", 3),
        ("run = function() end\nrun()", 2),
        ("function run()\n if x then for i=1,2 do f() end elseif y then g() end\nend\n\nrun()", 5),
        ("function run() repeat x() until y end\nprint(run())", 2),
        ("function run() end run{}", 1),
        ("function run() end run 'x'", 1),
        ("function run() end\nlocal s = [[ end ]]\nrun()", 3),
    ],
)
def test_a_file_that_defines_and_calls_run_is_found_with_the_line(source: str, line: int) -> None:
    assert find_own_call(LuaFile(source.encode())) == line


@pytest.mark.parametrize(
    "source",
    [
        "function run() end",
        "run()",
        "function run() run() end",
        "local function run() end\nrun()",
        "function run() end\nother.run()",
        "function run() end\nother:run()",
        "function run() end\n-- run()",
        "function run() end\n--[[ run() ]]",
        "function run() end\nprint('run()')",
        "function run() end\nlocal s = [==[\nrun()\n]==]",
        "function run() end\nlocal function g() run() end",
        "function run() end\nrunner()",
        "function run() end\npcall(run)",
        "function M.run() end\nrun()",
    ],
)
def test_anything_else_gives_no_warning(source: str) -> None:
    assert find_own_call(LuaFile(source.encode())) is None


@pytest.mark.parametrize(
    "source",
    [b"function run() end run(" * 3 + b"[[" * 50_000, b"run( run( '" * 20_000, b"run = [=[ run(", b"\xff run( run("],
)
def test_hostile_text_is_read_to_an_end(source: bytes) -> None:
    find_own_call(LuaFile(source))
