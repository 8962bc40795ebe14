from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.mark.parametrize(
    ("call", "level", "text"),
    [
        ("log('hello')", "info", b"hello"),
        ("log.debug('a')", "debug", b"a"),
        ("log.info('a')", "info", b"a"),
        ("log.warn('a')", "warn", b"a"),
        ("log.error('a')", "error", b"a"),
        ("print('a', 1, 2.0, nil, true)", "print", b"a\t1\t2\tnil\ttrue"),
        ("log('a', 1.0)", "info", b"a\t1"),
        ("log()", "info", b""),
        ("print(nil)", "print", b"nil"),
        ("log('two\\nlines\\0\\255')", "info", b"two\nlines\0\xff"),
        ("print(1e15)", "print", b"1000000000000000"),
        ("log(setmetatable({}, {__tostring = function() return 'me' end}))", "info", b"me"),
        ("log(setmetatable({}, {__tostring = function() return 5 end}))", "info", b"5"),
    ],
)
def test_a_line_has_its_level_and_the_text_of_its_values(call: str, level: str, text: bytes) -> None:
    vm = LuaLibrary()
    vm.run(call)
    assert vm.lines == [(level, text)]


def test_logging_works_inside_callbacks_of_c_functions() -> None:
    vm = LuaLibrary()
    vm.run("table.sort({2, 1}, function(a, b) log(a) return a < b end); ('ab'):gsub('.', print)")
    assert [level for level, _ in vm.lines] == ["info", "print", "print"]


BAD_TOSTRINGS = pytest.mark.parametrize(
    ("body", "message"),
    [
        ("error('boom')", "script.lua:1: boom"),
        ("error({message = 'told'})", "told"),
        ("return {}", "'__tostring' must return a string"),
    ],
)


def bad(body: str) -> str:
    return f"setmetatable({{}}, {{__tostring = function() {body} end}})"


@BAD_TOSTRINGS
@pytest.mark.parametrize(("call", "level"), [("log", "info"), ("print", "print"), ("log.warn", "warn")])
def test_logging_raises_nothing_where_a_tostring_fails(call: str, level: str, body: str, message: str) -> None:
    vm = LuaLibrary()
    vm.run(f"{call}('a', {bad(body)}, 'b')")
    assert vm.lines == [(level, f"a\ttable (its __tostring failed: {message})\tb".encode())]


def test_a_bad_tostring_is_the_scripts_own_error() -> None:
    script = f"tostring({bad('error(1)')})"
    assert LuaLibrary().error(script) == "1"
