from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import Problem
from spyweb.specs.linting.luau import explain, with_hint

NOT_LUA = "is Luau, not Lua 5.4"


@pytest.mark.parametrize(
    ("source", "line", "hint"),
    [
        ("count += 1", 1, f"`+=` {NOT_LUA}: write count = count + 1"),
        ("local x = 1\nx -= step", 2, f"`-=` {NOT_LUA}: write x = x - step"),
        ("name ..= 'a'", 1, f"`..=` {NOT_LUA}: write name = name .. ..."),
        ("t.total //= 2", 1, f"`//=` {NOT_LUA}: write x = x // 2"),
        ("for i = 1, 3 do\n  if i == 2 then continue end\nend", 2, "`continue`"),
        ("for i = 1, 3 do\n  continue\n\n  -- done\nend", 5, "`continue`"),
        ("while true do continue", 2, "`continue`"),
        ("log(`hello {name}`)", 1, "a backtick string"),
        ("local a = `two\nlines`", 1, "a backtick string"),
        ("local x: number = 5", 1, f"a type annotation {NOT_LUA}: leave `: number` out"),
        ("local a, b: string = f()", 1, "leave `: string` out"),
        ("for key: string, value in pairs(t) do end", 1, "leave `: string` out"),
        ("function add(a: number, b) end", 1, "leave `: number` out"),
        ("local function f(\n  first,\n  second: {string}\n) end", 3, "leave `: ...` out"),
        ("function m.n:go(a): boolean return a end", 1, "leave `: boolean` out"),
        ("call(function(x: any) end)", 1, "leave `: any` out"),
        ("type Point = { x: number }", 1, "`type Point`"),
        ("export type Box<T> = { value: T }", 1, "`type Box`"),
        ("local x = if a then b else c", 1, "an if-expression"),
        ("return if ready then 1 else 2", 1, "an if-expression"),
        ("f(1, if ready then 1 else 2)", 1, "an if-expression"),
        ("local n = value :: number", 1, "a type cast"),
        ("local n = value :: number\nprint(n)", 2, "a type cast"),
        ("local n = 1_000_000", 1, "the number 1_000_000"),
        ("local n = 0b1010", 1, "the number 0b1010"),
    ],
)
def test_the_construct_is_named(source: str, line: int, hint: str) -> None:
    assert hint in (explain(source.encode(), line) or "")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("local x = = 1", 1),
        ("x = 'a += 1' 5", 1),
        ('x = "`continue`" 5', 1),
        ("-- x += 1\nend", 2),
        ("--[[ continue\nlocal x: number ]] end", 2),
        ("x = [==[ a += 1 ]] `b` ]==] end", 1),
        ("x = 'it\\'s += 1' end", 1),
        ("object:method() end", 1),
        ("local x = object:method() end", 1),
        ("call(object:method(), object:other()) end", 1),
        ("function f(a) object:method() end end", 1),
        ("function f() return object:method() end end", 1),
        ("goto continue ::continue:: end", 1),
        ("goto done\n::done::\nend end", 3),
        ("goto done ::done:: x end", 1),
        ("local continue = 1; t.continue = continue; continue = 2 end", 1),
        ("if a then b() else if c then d() end end end end", 1),
        ("print(type(x), type 'x', t.type) end", 1),
        ("local a <const> = 1 // 2 end", 1),
        ("x = 0xff + 1e-5 + 3. + .5 end", 1),
        ("x += 1\n\n\n\nlocal y = = 2", 5),
        ("", 1),
        ("x += 1", -5),
        ("x = 1", 10**9),
    ],
)
def test_what_is_lua_or_plainly_wrong_gets_no_hint(source: str, line: int) -> None:
    assert explain(source.encode(), line) is None


SIGNS = ["+=", "..", "`", '"', "'", "\\", "--", "[[", "]]", "[=[", "]=]", "(", ")", "{", "}", ":", "::", ",", "=", "<"]
WORDS = [
    "x", " ", "\n", "function", "local", "for", "if", "then", "continue", "type", "return", "end", "1_0", "é", "\0",
]  # fmt: skip
PIECES = st.sampled_from(SIGNS + WORDS)


@given(st.one_of(st.text(), st.lists(PIECES).map("".join)), st.integers(-2, 20))
def test_any_text_gets_a_hint_or_none(source: str, line: int) -> None:
    assert explain(source.encode(), line) is None or NOT_LUA in str(explain(source.encode(), line))


@pytest.mark.parametrize("piece", ["a:", "(:", "`", "'", "[[", "local a,", "1_"])
def test_a_huge_line_is_answered_soon(piece: str) -> None:
    """Without a bound on what is looked at, these take seconds, and the runner's timeout ends them."""
    assert explain(piece.encode() * 20_000, 1) is None or NOT_LUA in str(explain(piece.encode() * 20_000, 1))


def test_a_problem_says_so_itself() -> None:
    problem = Problem("jobs/a.lua", 1, None, "syntax error near '+'")
    assert with_hint(problem, b"count += 1").reason.startswith("syntax error near '+' (`+=` is Luau")
    assert with_hint(problem, b"count + 1") == problem


@pytest.mark.parametrize("source", ["x = 1" + "_0" * 9_000, f"{'a' * 9_000} += 1", f"type {'a' * 9_000} = b"])
def test_a_hint_is_short_however_long_the_text(source: str) -> None:
    assert len(explain(source.encode(), 1) or "") in range(40, 250)
