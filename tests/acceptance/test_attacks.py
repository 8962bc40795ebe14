"""What hostile or mistaken scripts may try (numbers: the list of attacks), each in a job of its own, all at once.

The daemon lives, each run ends failed or lost with a reason, and a job beside them misses none of its due times.
"""

from __future__ import annotations

import pytest

from spyweb.model import JobId
from tests.fakes.project import Project, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LIMITS = 'every = "never"\ncpu_limit = "1s"\ntimeout = "2s"\nmemory_limit = "32MB"'

# name → a script that must not succeed
FATAL = {
    "a01_newindex": "local t = setmetatable({}, {__newindex = function() error('boom') end}) t.x = 1",
    "a02_index_on_globals": "debug = nil setmetatable(_G, {__index = function() error('x') end}) return missing + 1",
    "a03_nan_key": "local t = {} t[0/0] = 1",
    "a06_traceback_that_never_ends": "debug = {traceback = function() while true do end end} error('x')",
    "a08_exit": "os.exit(7)",
    "a08_execute": "os.execute('true')",
    "a08_popen": "io.popen('true')",
    "a08_loadlib": "package.loadlib('libc.so.6', '*')",
    "a16_python": "return python.eval('1')",
    "a21_pcall": "while true do pcall(function() while true do end end) end",
    "a22_coroutine": "coroutine.wrap(function() while true do end end)()",
    "a22_coroutines": "while true do coroutine.wrap(function() for i = 1, 1e5 do end end)() end",
    "a23_handler": "xpcall(function() while true do end end, function() while true do end end)",
    "a24_gc": "setmetatable({}, {__gc = function() while true do end end})",
    "a24_gc_armed_by_eq": """
      local first, second = {}, {}
      first.__metatable = setmetatable({}, {__eq = function()
        first.__metatable, second.__gc = nil, function() while true do end end
        return false
      end})
      local _, t = string.rep, setmetatable({}, first)
      setmetatable(t, second)""",
    "a25_close": "local x <close> = setmetatable({}, {__close = function() while true do end end})",
    "a26_pattern": "return string.find(('a'):rep(30000), '.-.-.-b')",
    "a26_pattern_2": "return ('a'):rep(1990):find(('.-'):rep(20) .. 'b')",
    "a27_table_move": "table.move({1}, 1, 1e9, 2)",
    "a32_rep": "return #('x'):rep(1e9)",
    "a32_double": "local s = 'x' for _ = 1, 40 do s = s .. s end",
    "a32_table": "local t = {} while true do t[#t + 1] = {} end",
    "a32_rep_with_separator": "return #string.rep('x', 1e8, ('y'):rep(100))",
    "a32_gsub": "return #(('a'):rep(1e5):gsub('a', ('b'):rep(1e6)))",
    "a32_unpack": "return table.unpack({}, 1, 1e8)",
    "a32_fake_length": "return table.concat(setmetatable({}, {__len = function() return 1e9 end}))",
    "a33_coroutines": "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
    "a33_strings": "local t = {} for i = 1, 1e9 do t[i] = 'key' .. i end",
    "a36_poisoned_strings": "getmetatable('').__index = nil",
    "a36_no_pcall": "pcall = nil pcall(error)",
    "a37_bytecode": "return load(string.dump(function() end))()",
    "a38_error_not_utf8": "error('\\255\\254')",
    "a39_error_table": "error({code = 1})",
    "a39_error_nil": "error(nil)",
    "a44_yield_in_sort": "table.sort({3, 2, 1}, function(a, b) store_get('x') return a < b end)",
    "a44_yield_in_gsub": "return (('abc'):gsub('.', function(c) return store_get(c) end))",
    "spin": "while true do end",
    "sleep_past_timeout": "sleep(600000)",
    "deep_recursion": "local function f() return 1 + f() end return f()",
    "deep_pcall": "local function f() while true do pcall(f) end end f()",
    "rep_loop": "while true do local x = ('a'):rep(1000000) end",
    "op_loop": "while true do store_get('x') end",
    "json_deep": "return assert(json_decode(('['):rep(1e5)))",
    "huge_op": "store_set('k', ('x'):rep(31 * 1024 * 1024))",
}

# name → a script that may well succeed, and must hurt nobody
HARMLESS = {
    "a34_log_flood": "for i = 1, 20000 do log(i) end",
    "a34_log_long": "log(('x'):rep(8 * 1024 * 1024))",
    "a36_poisoned_globals": "string.format = nil table.insert = nil tostring = nil log('still here')",
    "a40_require_out": "return pcall(require, '../../etc/passwd')",
    "many_keys": "for i = 1, 2000 do store_set('k' .. i, ('v'):rep(1000)) end",
    "returns_hostile_table": "return setmetatable({}, {__index = error, __pairs = error, __len = error, __name = 1})",
}

CANARY = 'every = "250ms"\nmisfire = "all"\noverlap = "queue"'


def test_attacks_end_in_time_with_a_reason_and_hurt_nobody_else(project: Project) -> None:
    for name, script in {**FATAL, **HARMLESS}.items():
        project.job(name, script, LIMITS)
    project.job("canary", "store_set('alive', tostring(os.time()))", CANARY)
    with project.daemon() as daemon:
        client = project.daemon_client()
        for name in [*FATAL, *HARMLESS]:
            client.trigger(JobId(name))
        eventually(lambda: all(view.last for view in client.jobs()), "an end of every attack", patience=100)
        last = {str(view.id): view.last for view in client.jobs() if view.last}
        survived = [name for name in FATAL if last[name].outcome not in ("failed", "lost")]
        speechless = [name for name in FATAL if not last[name].reason]
        assert (survived, speechless) == ([], [])
        assert daemon.process.poll() is None
        canary = project.runs("canary")
    assert {run.outcome for run in canary if run.outcome} <= {"success", "lost"}
    assert any(run.outcome == "success" for run in canary)
