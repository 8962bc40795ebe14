"""What a script's metamethods meet of our own parts: no comparison calls them, no internal table is handed to them."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM
from tests.fakes.vm import FakeCallbacks, run_to_end


def run(lua: VM, source: str) -> tuple[Ended, bytes]:
    """How the script ends, and its reason."""
    return run_to_end(lua, source)[:2]


# Armed, the finalizer would log.
FINALIZER = "function() log('finalized') end"

ARMING = {
    "an __eq of __metatable between the check and the real setmetatable": f"""
        local first, second = {{}}, {{}}
        first.__metatable = setmetatable({{}}, {{ __eq = function()
          first.__metatable = nil
          second.__gc = {FINALIZER}
          return false
        end }})
        local t = setmetatable({{}}, first)
        pcall(setmetatable, t, second)
    """,
    "an internal metatable that an __eq was handed": f"""
        local met
        local first = {{ __metatable = setmetatable({{}}, {{ __eq = function(a, b) met = b return false end }}) }}
        pcall(setmetatable, setmetatable({{}}, first), {{}})
        if met then met.__gc = {FINALIZER} end
        local _ = math.pi, table.concat
    """,
    "a metatable that is shared with a copy": f"""
        local meta = {{}}
        local t = setmetatable({{}}, meta)
        meta.__gc = {FINALIZER}
        for _, f in ipairs {{ copy, deep_copy, table.clone, table.freeze }} do pcall(f, t) end
    """,
    "a metatable that is frozen": f"""
        local meta = {{}}
        table.freeze(meta)
        pcall(rawset, meta, '__gc', {FINALIZER})
        pcall(function() meta.__gc = {FINALIZER} end)
        setmetatable({{}}, meta)
    """,
    "the metatable of a family that is not part of this version": f"""
        local meta = getmetatable(task)
        if meta then meta.__gc = {FINALIZER} end
        local _ = workflow, cdp, cmd, exec, file, template
    """,
    "a field that only __index shows": f"""
        setmetatable({{}}, setmetatable({{}}, {{ __index = {{ __gc = {FINALIZER} }} }}))
    """,
}


@pytest.mark.parametrize("how", ARMING)
def test_no_finalizer_of_a_script_is_ever_armed(lua: VM, callbacks: FakeCallbacks, how: str) -> None:
    assert run(lua, f"local log, _ = log, string.rep log('begun') {ARMING[how]}") == (Ended.SUCCESS, b"")
    lua.close()

    assert callbacks.lines == [(b"info", b"begun")]


def test_getmetatable_calls_no_metamethod_of_what_stands_for_a_metatable(lua: VM) -> None:
    source = """
        local called
        local stand_in = setmetatable({}, { __eq = function() called = true end })
        getmetatable(setmetatable({}, { __metatable = stand_in }))
        assert(not called)
    """
    assert run(lua, source) == (Ended.SUCCESS, b"")


INTERNAL = ["task", "JSON_EMPTY_ARRAY", "state.null", "ctx", "_G", "string", "math", "table", "coroutine", "state"]


@pytest.mark.parametrize("value", INTERNAL)
def test_a_metatable_of_ours_is_not_shown(lua: VM, value: str) -> None:
    source = f"local ctx = ... assert(not getmetatable({value}))"
    assert run(lua, source) == (Ended.SUCCESS, b"")


# Read raw, no metamethod can call an op, fail, or use the same function again in the middle of it.
TRAPPED = {
    "json_encode of a key that is a number": "json_encode(setmetatable({[1.5] = 1}, trap))",
    "json_encode of keys that are integers": "json_encode(setmetatable({[7] = 1, [9] = 2}, trap))",
    "dump of a list with holes": "dump(setmetatable({1, nil, 3}, trap))",
    "dump of an empty table": "dump(setmetatable({}, trap))",
    "copy": "copy(setmetatable({1, x = 2}, trap))",
    "deep_copy": "deep_copy(setmetatable({1, {2}, x = {3}}, trap))",
    "table.clear": "table.clear(setmetatable({1, x = 2}, trap))",
    "table.freeze": "table.freeze(setmetatable({1, x = 2}, trap))",
    "rawget": "rawget(setmetatable({}, trap), 'x')",
    "next": "next(setmetatable({}, trap))",
    "an error that is a table": "pcall(error, setmetatable({}, trap))",
}


@pytest.mark.parametrize("what", TRAPPED)
def test_what_reads_a_table_raw_calls_no_metamethod(lua: VM, what: str) -> None:
    source = f"""
        local called = {{}}
        local trap = {{}}
        for _, name in ipairs {{ 'index', 'newindex', 'eq', 'len', 'lt', 'le', 'concat', 'pairs', 'call' }} do
          trap['__' .. name] = function() called[#called + 1] = name end
        end
        {TRAPPED[what]}
        assert(#called == 0, table.concat(called, ' '))
    """
    assert run(lua, source) == (Ended.SUCCESS, b"")


def test_an_error_that_is_a_table_which_lies_ends_the_run_and_no_more(lua: VM, callbacks: FakeCallbacks) -> None:
    source = """
        local function trap() log('called') end
        error(setmetatable({}, { __index = trap, __eq = trap, __len = trap, __lt = trap, __concat = trap }))
    """
    assert run(lua, source)[0] == Ended.ERROR
    assert callbacks.lines == []
