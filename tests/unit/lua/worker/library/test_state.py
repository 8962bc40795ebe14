"""The global `state` as a script sees it; its ops are answered by the test."""

from __future__ import annotations

import pytest

from spyweb.errors import OpError
from spyweb.model import NULL
from tests.fakes.lua_library import LuaLibrary


class Locks:
    """Says yes to every lock, unless told otherwise, and keeps the story."""

    def __init__(self, answer: list[object] | None = None) -> None:
        self.answer = answer or [True]
        self.unlocked: list[object] = [True]
        self.story: list[list[object]] = []

    def lock(self, *arguments: object) -> list[object]:
        self.story.append(["lock", *arguments])
        return self.answer

    def unlock(self, *arguments: object) -> list[object]:
        self.story.append(["unlock", *arguments])
        return self.unlocked

    def vm(self) -> LuaLibrary:
        return LuaLibrary(ops={"state.lock": self.lock, "state.unlock": self.unlock})


def stored(value: object) -> LuaLibrary:
    return LuaLibrary(ops={"state.get": lambda *key: [value, *key[1:]], "state.set": lambda *given: list(given)})


def test_it_costs_nothing_until_it_is_used() -> None:
    vm = LuaLibrary(ops={"state.get": lambda *_: [1]})
    vm.run("local kept = state")
    assert "state" not in vm.parts
    assert vm.value("state.get('k')") == 1
    assert vm.parts.count("state") == 1


def test_every_op_of_the_family_is_a_function_of_it() -> None:
    names = ("get", "set", "increment", "list_push")
    vm = LuaLibrary(ops={f"state.{name}": lambda *given: list(given) for name in names})
    listed = "local n = {} for k in pairs(state) do n[#n + 1] = k end table.sort(n) return table.concat(n, ' ')"
    assert vm.run(listed) == [b"get increment list_push null set with_lock"]
    assert vm.run("return state.set('k', nil, 5)") == [b"k", None, 5]
    assert vm.run("return select('#', state.set('k', nil))") == [2]
    for name in ("get", "set"):
        assert vm.run(f"return (state.{name}{{scope = 's', key = 'k'}})") == [{b"scope": b"s", b"key": b"k"}]


def test_it_is_an_ordinary_global() -> None:
    vm = stored(1)
    vm.run("state.get = function() return 'mocked' end")
    assert vm.run("return state.get('k'), state.set('a')") == [b"mocked", b"a"]
    vm.run("state = {get = 'all mine'}")
    assert vm.value("state.get") == b"all mine"


@pytest.mark.parametrize(("value", "seen"), [(None, 7), (False, False), (0, 0), (b"", b"")])
def test_a_default_stands_in_for_nil_alone(value: object, seen: object) -> None:
    assert stored(value).run("return state.get('k', 7)") == [seen]


def test_a_default_does_not_leave_the_vm_and_an_error_of_the_store_comes_after_it() -> None:
    vm = stored(None)
    assert vm.run("local t = {} return state.get('k', t) == t, state.get('k', print) == print") == [True, True]
    assert vm.run("return select('#', state.get('k', {}))") == [1]
    vm = LuaLibrary(ops={"state.get": lambda *_: [None, b"disk"]})
    assert vm.run("return state.get('k', 7)") == [7, b"disk"]


def test_null_is_one_sentinel_that_crosses_as_null() -> None:
    vm = stored(None)
    assert vm.run("return state.null ~= nil, state.null == state.null, type(state.null)") == [True, True, b"table"]
    assert vm.run("return state.set('k', {a = state.null})") == [b"k", {b"a": NULL}]
    assert vm.error("state.null.x = 1") == "script.lua:1: attempt to modify a readonly table"


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ("f", [None]),
        ("f, 15", [15]),
        ("15, f", [15]),
        ("'me', 300, f", [b"me", 300]),
        ("f, 300, 'me'", [b"me", 300]),
        ("'me', f", [b"me", 30]),
        ("'60', f", [b"60", 30]),
        ("nil, f, 15", [15]),
        ("f, 15, 'me', print, 16, 'you'", [b"me", 15]),
    ],
)
def test_with_lock_tells_its_arguments_apart_by_their_types(arguments: str, asked: list[object]) -> None:
    locks = Locks()
    ran = locks.vm().run(
        f"local ran = 0 local function f() ran = ran + 1 end state.with_lock('l', {arguments}) return ran"
    )
    holder = asked[0] if isinstance(asked[0], bytes) else None
    assert ran == [1]
    assert locks.story == [["lock", b"l", *asked], ["unlock", b"l", holder]]


def test_with_lock_that_does_not_get_it_calls_nothing() -> None:
    locks = Locks([False, b"lock 'l' is held by 'x'"])
    script = "local function f() error('called') end return state.with_lock('l', f)"
    assert locks.vm().run(script) == [None, b"lock 'l' is held by 'x'"]
    assert locks.story == [["lock", b"l", None]]


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        ("'boom'", "script.lua:1: boom"),
        ("'boom', 0", "boom"),
        ("{code = 5, message = 'told'}", "told"),
        ("setmetatable({}, {__tostring = function() return 'spelt' end})", "spelt"),
        ("setmetatable({}, {__tostring = function() error('no') end})", "(error object is a table value: {})"),
        ("setmetatable({message = 'told'}, {__tostring = function() return 'spelt' end})", "spelt"),
        ("{code = 3.0}", "(error object is a table value: {code = 3})"),
        ("nil", "(error object is a nil value)"),
        ("7.0", "7"),
    ],
)
def test_an_error_inside_with_lock_gives_the_lock_back_and_is_logged(raised: str, text: str) -> None:
    locks = Locks()
    vm = locks.vm()
    result, message, *_ = vm.run(f"local r, m = state.with_lock('l', function() error({raised}) end) return r, m")
    assert (result, message) == (None, text.encode())
    assert [step[0] for step in locks.story] == ["lock", "unlock"]
    assert vm.lines == [("error", f"state.with_lock: lock 'l': {text}".encode())]


def test_the_error_itself_comes_third() -> None:
    script = "local _, _, err = state.with_lock('l', function() error({code = 'SET_ERROR'}) end) return err.code"
    assert Locks().vm().run(script) == [b"SET_ERROR"]


def test_a_lock_that_was_gone_by_the_end_is_a_warning() -> None:
    locks = Locks()
    locks.unlocked = [False, b"lock 'l' is not held"]
    vm = locks.vm()
    assert vm.run("return state.with_lock('l', function() return 1 end)") == [1]
    assert vm.lines == [("warn", b"lock 'l' is not held")]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("state.with_lock('l')", "bad argument #2 to 'state.with_lock' (function expected, got nil)"),
        ("state.with_lock('l', 5)", "bad argument #2 to 'state.with_lock' (function expected, got number)"),
        ("state.with_lock(nil, print)", "bad argument #1 to 'state.with_lock' (string expected, got nil)"),
        ("state.with_lock({}, print)", "bad argument #1 to 'state.with_lock' (string expected, got table)"),
    ],
)
def test_with_lock_wants_a_name_and_a_function(call: str, text: str) -> None:
    locks = Locks()
    assert locks.vm().error(call) == f"script.lua:1: {text}"
    assert locks.story == []


def test_what_lock_raises_is_raised_by_with_lock() -> None:
    def strict(*_: object) -> list[object]:
        raise OpError("lock 'l' is held by 'x'")

    vm = LuaLibrary(ops={"state.lock": strict})
    assert "lock 'l' is held by 'x'" in vm.error("state.with_lock('l', 'me', 5, print)")


def test_a_script_that_replaced_what_it_found_hurts_only_itself() -> None:
    locks = Locks()
    script = "pcall, select, type, tostring, error = nil return state.with_lock('l', function() return 1 end)"
    assert locks.vm().run(script) == [1]
