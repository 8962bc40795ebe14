"""What a file defines, uses and does is read from its words, with blocks and brackets told apart."""

from __future__ import annotations

import pytest

from spyweb.specs.linting.lua_file import TEXT, LuaFile, line_at, words_of


def used(source: str) -> str:
    return " ".join(use.name.decode() for use in LuaFile(source.encode()).uses)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("for a, b in f(a) do g(a, b) end h(b)", "f a g h b"),
        ("while f(function(a) do g(a) end end) do h(a) end i(a)", "f g h a i a"),
        ("repeat for a = 1, 2 do f(a) end until a", "f a"),
        ("if f then for a in g do end elseif a then h() else i() end", "f g a h i"),
        ("function t.f:g(a, ...) return { a = a, [a] = a.b } end x(a)", "t x a"),
        ("goto a ::a:: local b <const>, c <close> = d.e, f:g()", "d f"),
        ("os.exit() math.floor(1) string.no.way() self:x()", "os.exit string.no"),
    ],
)
def test_parameters_and_variables_of_loops_are_known_in_their_scope_alone(source: str, names: str) -> None:
    assert used(source) == names


def test_keys_of_a_table_are_not_defined_outside_it() -> None:
    file = LuaFile(b"t = { run = function() a = 1 end, on = { b = 2 } } function m.f() end c, d = 1, 2")
    assert [name.decode() for name in file.outside] == ["t", "m", "d"]
    assert {b"t", b"run", b"a", b"b", b"m.f", b"c", b"d"} <= file.defined
    assert file.functions == []


def test_modules_are_required_by_a_text_or_nobody_knows_which() -> None:
    assert [name for name, _ in LuaFile(b"require 'a' require('b').c() x.require('d')").required] == [b"a", b"b"]
    for source in (b"require(a)", b"pcall(require, 'a')", b"require('a.' .. b)", b"load('a = 1')()", b"_G[a] = 1"):
        assert LuaFile(source).is_computed


def words(source: str) -> list[bytes]:
    return [word for word, _ in words_of(source.encode())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.b == 1", [b"a", b".", b"b", b"==", b"1"]),
        ('f \'x y\' [[ long ]] "q\\""', [b"f", b"'x y'", TEXT, rb'"q\""']),
        ("a -- b\nc --[==[ d ]] ]==] e", [b"a", b"c", b"e"]),
        ("a [[ never closed", [b"a"]),
        ("a 'b c\nd", [b"a", b"'b c", b"d"]),
    ],
)
def test_words_and_signs_are_told_apart_from_strings_and_comments(source: str, expected: list[bytes]) -> None:
    assert words(source) == expected


def test_each_word_comes_with_its_offset_and_so_with_its_line() -> None:
    source = b"a\n\nb"
    assert [(word, line_at(source, offset)) for word, offset in words_of(source)] == [(b"a", 1), (b"b", 3)]
