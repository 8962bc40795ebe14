"""`log` is a function, as scripts written for SpyWeb expect, and has fields nevertheless: no other function has."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM
from tests.fakes.lua_library import LuaLibrary
from tests.fakes.vm import run_to_end


def run(lua: VM, source: str) -> tuple[Ended, bytes]:
    """How the script ends, and its reason."""
    return run_to_end(lua, source)[:2]


@pytest.mark.parametrize(
    "source",
    [
        "assert(type(log) == 'function')",
        "('x'):gsub('x', log)",
        "coroutine.wrap(log)('x')",
        "table.sort({2, 1}, function(a, b) log(a) return a < b end)",
        "xpcall(error, log, 'x')",
        "pcall(log, 'x')",
        "local info = log.info info('x')",
        "assert(log['no such level'] == nil)",
        "function log.audit(text) log.warn('audit: ' .. text) end log.audit('x')",
        "assert(tostring(log):find('^function: '))",
    ],
)
def test_log_can_be_used_as_a_function_and_as_a_table(lua: VM, source: str) -> None:
    assert run(lua, source) == (Ended.SUCCESS, b"")


@pytest.mark.parametrize("used", ["", "log('x')"])
@pytest.mark.parametrize(
    "source",
    [
        "return print.x",
        "return (function() end).x",
        "print.x = 1",
        "return log.info == nil or echo.warn",
        "return ('x').y.z",
    ],
)
def test_no_other_function_has_fields(lua: VM, used: str, source: str) -> None:
    ended, reason = run(lua, f"{used}\n{source}")

    assert ended is Ended.ERROR
    assert reason.startswith((b"x.lua:2: attempt to index a function value", b"x.lua:2: attempt to index a nil value"))


def test_what_gives_it_fields_is_out_of_reach(lua: VM) -> None:
    source = """
        log.warn('x')
        assert(getmetatable(log) == nil and getmetatable(print) == nil)
        assert(not pcall(setmetatable, log, {}))
        assert(not pcall(rawset, log, 'x', 1) and not pcall(rawget, log, 'warn') and not pcall(next, log))
        assert(copy(log) == log and deep_copy({ log })[1] == log and dump(log) == '<function>')
        assert(not pcall(table.freeze, log) and not pcall(table.clone, log))
    """
    assert run(lua, source) == (Ended.SUCCESS, b"")


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
