"""A real worker, forked by a real zygote, driven over its sockets: what a run may do, and what ends it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form, FromWorker, FromZygote, ToWorker, Why
from tests.fakes.worker_driver import WorkerDriver, ZygoteDriver, a_zygote

SPIN = "while true do end"
C_LOOP = "string.find(('a'):rep(30000), '.-.-.-b')"
BLOAT = "local t = {} for i = 1, 1e9 do t[i] = {i} end"


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygoteDriver]:
    with a_zygote() as zygote:
        yield zygote


@pytest.fixture
def worker(zygote: ZygoteDriver) -> Iterator[WorkerDriver]:
    worker = zygote.fork().init()
    yield worker
    worker.close()


# Scripts and their results


def test_the_values_a_chunk_returns_come_with_its_end(worker: WorkerDriver) -> None:
    end = worker.run("return 1, 'two', {3}, nil, true")

    assert (end.ended, end.result, end.discarded) == (Ended.SUCCESS, [1, b"two", [3], None, True], False)


def test_a_chunk_without_run_is_executed_for_every_run_in_the_same_vm(worker: WorkerDriver) -> None:
    worker.load(1, "visits = (visits or 0) + 1 return visits")
    results = []
    for run in (1, 2, 3):
        worker.begin(run, 1)
        results.append(worker.end(run).result)

    assert results == [[1], [2], [3]]


def test_a_chunk_that_defines_run_is_executed_once(worker: WorkerDriver) -> None:
    worker.load(1, "loads = (loads or 0) + 1 function run(ctx) return loads, ctx.job end")
    results = []
    for run in (1, 2):
        worker.begin(run, 1)
        results.append(worker.end(run).result)

    assert results == [[1, b"x"], [1, b"x"]]


def test_the_chunk_gets_the_context_with_a_table_to_share(worker: WorkerDriver) -> None:
    assert worker.run("local ctx = ... return ctx.job, type(ctx.shared)").result == [b"x", b"table"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("return false", "returned false"),
        ("return false, 'no luck'", "no luck"),
        ("return nil, 'gone'", "gone"),
        ("return nil, 404", "404"),
        ("error('boom')", "jobs/x.lua:1: boom"),
        ("error({code = 1})", "(error object is a table value)"),
        ("error({message = 'told'})", "told"),
        ("error(setmetatable({}, {__tostring = function() return 'shown' end}))", "shown"),
        ("error()", "(error object is a nil value)"),
        ("error('\\255', 0)", "\ufffd"),
    ],
)
def test_a_run_fails_with_a_reason(worker: WorkerDriver, source: str, reason: str) -> None:
    end = worker.run(source)

    assert (end.ended, end.reason, end.discarded) == (Ended.ERROR, reason, False)


@pytest.mark.parametrize("source", ["return nil", "return nil, nil, 3", "return 0", "return ''", ""])
def test_anything_else_is_a_success(worker: WorkerDriver, source: str) -> None:
    assert worker.run(source).ended == Ended.SUCCESS


def test_a_result_that_is_too_large_is_not_shown(worker: WorkerDriver) -> None:
    end = worker.run(f"return ('x'):rep({wire.RESULT})")

    assert (end.ended, end.result) == (Ended.SUCCESS, None)


def test_a_script_that_does_not_compile_says_where(worker: WorkerDriver) -> None:
    assert worker.load(1, "local x = 1\nlocal y = = 2") == "jobs/x.lua:2: unexpected symbol near '='"


def test_luau_syntax_is_named(worker: WorkerDriver) -> None:
    reason = worker.load(1, "local x = 1\nx += 1")

    assert reason is not None
    assert "compound assignment (`+=`) is Luau" in reason


def test_bytecode_does_not_load(worker: WorkerDriver) -> None:
    reason = worker.load(1, b"\x1bLua\x54")

    assert reason is not None
    assert "attempt to load a binary chunk" in reason


def test_a_traceback_names_lines_of_the_script_only(worker: WorkerDriver) -> None:
    end = worker.run(
        "local function inner() error('boom') end\n"
        "local function middle() local ok, e = pcall(echo, 1) inner() end\n"
        "function run(ctx)\n  local co = coroutine.wrap(middle)\n  co()\n  return 1\nend"
    )

    assert end.traceback.splitlines() == [
        "stack traceback:",
        "\tjobs/x.lua:1: in upvalue 'inner'",
        "\tjobs/x.lua:2: in function <jobs/x.lua:2>",
        "\tjobs/x.lua:5: in function 'run'",
    ]


# Ops


def test_an_op_carries_any_values_there_and_back(worker: WorkerDriver) -> None:
    end = worker.run("return echo(1, 2.5, 'a\\0\\255', nil, true, {1, {k = 'v'}})")

    assert end.result == [1, 2.5, b"a\0\xff", None, True, [1, {b"k": b"v"}]]


def test_an_op_passes_through_coroutines_and_protected_calls(worker: WorkerDriver) -> None:
    end = worker.run("""
        local sum = 0
        for i = 1, 20 do
            local co = coroutine.wrap(function()
                local ok, v = pcall(function() return echo(i) + echo(1) end)
                coroutine.yield(v)
                return select(2, xpcall(function() return coroutine.wrap(echo)(100) end, print))
            end)
            sum = sum + co() + co()
        end
        return sum""")

    assert end.result == [sum(range(1, 21)) + 20 + 2000]


def test_an_ops_error_is_raised_at_the_line_that_called_it(worker: WorkerDriver) -> None:
    def refuse(_: object) -> list[object]:
        raise ValueError("bad argument #1 to 'echo' (string expected, got table)")

    worker.handlers["echo"] = refuse
    end = worker.run("local x = 1\nlocal y = echo({})")

    assert end.reason == "jobs/x.lua:2: bad argument #1 to 'echo' (string expected, got table)"


def test_an_op_may_raise_a_table(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.load(1, "local ok, e = pcall(echo) return e.code")
    worker.begin(1, 1)
    worker.wait_until_asked("echo")
    worker.say(ToWorker.RESUME, 1, int(Form.RAISE_PACKED), wire.pack([{b"code": 7}]))

    assert worker.end(1).result == [7]


def test_an_op_in_a_sort_comparator_is_refused_by_name(worker: WorkerDriver) -> None:
    end = worker.run("table.sort({3, 2, 1}, function(a, b) echo() return a < b end)")

    assert end.reason == "jobs/x.lua:1: echo can't be called inside a table.sort comparator or a string.gsub callback"


def test_a_script_can_not_forge_the_answer_to_an_op(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.load(1, "inner = coroutine.create(function() return echo() end) return coroutine.resume(inner)")
    worker.load(2, "main = coroutine.running() return echo()")
    worker.begin(1, 1)
    worker.wait_until_asked("echo", 1)
    worker.load(3, "")
    worker.say(ToWorker.RESUME, 1, int(Form.PLAIN), b"true answer")

    assert worker.end(1).result == [True, b"true answer"]


def test_another_run_in_the_vm_can_not_resume_what_waits_for_an_op(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.load(
        1,
        """
        if main then
            local ok, why = coroutine.resume(main, 'forged')
            local ok2, why2 = coroutine.resume(inner, 'forged')
            return true, ok, why, ok2, why2, coroutine.status(inner), (pcall(coroutine.close, inner))
        end
        main = coroutine.running()
        inner = coroutine.create(function() return echo() end)
        return coroutine.resume(inner)""",
    )
    worker.begin(1, 1)
    worker.wait_until_asked("echo")
    worker.begin(2, 1)
    refusal = b"cannot resume non-suspended coroutine"
    assert worker.end(2).result == [True, False, refusal, False, refusal, b"normal", False]
    worker.answer(1, [b"true"])

    assert worker.end(1).result == [True, b"true"]


def test_an_equality_of_the_scripts_own_does_not_make_an_op(worker: WorkerDriver) -> None:
    end = worker.run("""
        local fake = setmetatable({}, {__eq = function() return true end})
        local co = coroutine.wrap(function() coroutine.yield(fake, 'echo', 0, 1) return 'end' end)
        return rawequal(co(), fake), co()""")

    assert (end.result, worker.asked) == ([True, b"end"], [])


def test_yielding_outside_a_coroutine_is_an_error_there(worker: WorkerDriver) -> None:
    end = worker.run("local ok, e = pcall(coroutine.yield, 1) return e, coroutine.isyieldable()")

    assert end.result == [b"jobs/x.lua:1: attempt to yield from outside a coroutine", False]


def test_values_of_many_bytes_take_the_bulk_socket_both_ways(worker: WorkerDriver) -> None:
    end = worker.run("local s = ('x'):rep(3000000) return #echo(s, {s})")

    assert end.result == [3_000_000]


def test_require_runs_a_module_once_and_reports_its_path(worker: WorkerDriver) -> None:
    worker.handlers["_require"] = lambda arguments: [
        b"lib/" + arguments[0] + b".lua",
        b"n = (n or 0) + 1 return {n = n}",
    ]
    end = worker.run("return require('m').n, require('m').n, n")

    assert end.result == [1, 1, 1]
    assert [asked[1] for asked in worker.asked] == ["_require"]


def test_two_runs_in_one_vm_interleave_at_ops(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.load(1, "local ctx = ... local v = echo(ctx.run_id) return v, ctx.run_id")
    worker.begin(1, 1)
    worker.begin(2, 1)
    worker.wait_until_asked("echo", 2)
    worker.answer(2, [b"second"])
    assert worker.end(2).result == [b"second", 2]
    worker.answer(1, [b"first"])

    assert worker.end(1).result == [b"first", 1]


# Hooks and deferred functions


def test_hooks_see_how_the_run_ended_and_defers_follow_last_first(worker: WorkerDriver) -> None:
    worker.run("""
        function on_success(ctx, result) print('success', ctx.final, result) end
        function on_error(err, ctx) print('error', err) end
        function on_finally(ctx) print('finally', ctx.job) end
        defer(function() print('first') end)
        defer(function() print('second') defer(function() print('third') end) end)
        return 42""")

    lines = [text.decode().split("\t") for _, _, text in worker.logs]
    assert [line[0] for line in lines] == ["success", "finally", "second", "third", "first"]
    assert lines[0][1:] == ["true", "42"]


def test_on_error_gets_the_text_and_the_context_the_value(worker: WorkerDriver) -> None:
    source = """
        function on_error(err, ctx) store_set(err, ctx.error.code, ctx.final) end
        error({code = 7, message = 'seven'})"""
    worker.run(source, may_retry=True)
    worker.run(source, may_retry=False, run=2, vm=2)

    assert [asked[2] for asked in worker.asked] == [[b"seven", 7, False], [b"seven", 7, True]]


def test_a_failing_hook_is_logged_and_changes_nothing(worker: WorkerDriver) -> None:
    end = worker.run("function on_success() error('oops') end function on_finally() print('still') end return 1")

    assert (end.ended, end.result) == (Ended.SUCCESS, [1])
    assert [level for _, level, _ in worker.logs] == ["error", "print"]
    assert worker.logs[0][2].startswith(b"on_success: jobs/x.lua:1: oops\nstack traceback:\n\tjobs/x.lua:1: in ")


def test_a_failing_deferred_function_does_not_stop_the_next(worker: WorkerDriver) -> None:
    end = worker.run("defer(function() print('ran') end) defer(function() error('x') end) return 1")

    assert end.ended == Ended.SUCCESS
    assert [level for _, level, _ in worker.logs] == ["error", "print"]


def test_an_op_in_a_deferred_function_is_an_error(worker: WorkerDriver) -> None:
    worker.run("defer(function() echo(1) end)")

    assert b"echo can't be called inside a deferred function" in worker.logs[0][2]


def test_in_the_server_a_deferred_function_may_call_ops(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init(server=True)
    worker.run("defer(function() echo(1) end)")

    assert [asked[1] for asked in worker.asked] == ["echo"]
    worker.close()


def test_there_is_a_limit_to_what_one_run_defers(worker: WorkerDriver) -> None:
    end = worker.run("local function again() defer(again) end again()")

    assert (end.ended, len(worker.logs)) == (Ended.SUCCESS, 1)
    assert b"more than 1000 deferred functions" in worker.logs[0][2]


# Limits


@pytest.mark.parametrize(
    "source",
    [
        SPIN,
        "local function f() while true do pcall(f) end end f()",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "while true do local co = coroutine.wrap(function() while true do pcall(function() while true do end end) end end) co() end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "while true do xpcall(error, function() while true do end end) end",
        "local function f() while true do pcall(coroutine.wrap(f)) end end f()",
        "local x <close> = setmetatable({}, {__close = function() while true do end end}) while true do end",
        "local x <close> = setmetatable({}, {__close = function() while true do end end}) error('x')",
        "while true do load(function() while true do end end) end",
        "local co = coroutine.create(function() local x <close> = setmetatable({}, {__close = function() while true do end end})"
        " coroutine.yield() end) coroutine.resume(co) while true do coroutine.close(co) end",
        "while true do local s = ('a'):rep(1000000) end",
        "while true do string.gsub(('a'):rep(1000), '.', function() while true do end end) end",
        "while true do pcall(table.sort, {3, 2, 1}, function() while true do end end) end",
        "setmetatable(_G, {__index = function() while true do end end}) local x = nothing",
    ],
)
def test_what_spins_is_ended_by_its_cpu_limit(worker: WorkerDriver, source: str) -> None:
    end = worker.run(source, cpu_ms=100)

    assert (end.ended, end.discarded) == (Ended.CPU, True)
    assert end.reason == "jobs/x.lua:1: cpu limit exceeded"
    assert end.traceback.startswith("stack traceback:\n\tjobs/x.lua:1: in ")
    assert end.cpu_ms >= 90
    assert worker.evaluate("pcall(error, 1)", run=2, vm=2) == [False, 1]


def test_cpu_is_summed_over_the_steps_of_a_run(worker: WorkerDriver) -> None:
    end = worker.run("while true do echo() for i = 1, 50000 do end end", cpu_ms=100)

    assert end.ended == Ended.CPU
    assert len(worker.asked) > 2


@pytest.mark.parametrize("why", [Why.TIMEOUT, Why.CANCELLED, Why.STOPPED])
def test_a_spinner_is_ended_by_a_cancel(worker: WorkerDriver, why: Why) -> None:
    worker.load(1, f"echo() {SPIN}")
    worker.begin(1, 1)
    worker.wait_until_asked("echo")
    worker.cancel(1, why)

    assert worker.end(1).ended.name == why.name


def test_a_run_that_waits_for_an_op_ends_at_once_when_cancelled(worker: WorkerDriver) -> None:
    worker.load(
        1,
        "function on_finally() print('finally') end\nlocal co = coroutine.wrap(function() pcall(sleep, 1e6) end) co()",
    )
    worker.begin(1, 1)
    worker.wait_until_asked("sleep")
    worker.cancel(1, Why.TIMEOUT)
    end = worker.end(1)

    assert (end.ended, end.reason, end.discarded) == (Ended.TIMEOUT, "jobs/x.lua:2: timed out", True)
    assert [text for _, _, text in worker.logs] == [b"finally"]


def test_a_cancel_that_overtakes_its_begin_is_remembered(worker: WorkerDriver) -> None:
    worker.load(1, SPIN)
    worker.cancel(9)
    worker.begin(9, 1)

    assert worker.end(9).ended == Ended.CANCELLED


def test_after_a_kill_hooks_and_defers_run_with_a_budget_of_their_own(worker: WorkerDriver) -> None:
    end = worker.run(
        "function on_error(err, ctx) print(err) store_set('k', ctx.error) end function on_finally() print('finally') end"
        f" defer(function() print('deferred') end) {SPIN}",
        cpu_ms=50,
    )

    assert end.ended == Ended.CPU
    assert [text for _, _, text in worker.logs] == [b"jobs/x.lua:1: cpu limit exceeded", b"finally", b"deferred"]
    assert [asked[1] for asked in worker.asked] == ["store_set"]


@pytest.mark.parametrize(
    "hooks",
    [
        f"function on_error() {SPIN} end",
        "function on_finally() sleep(1) end",
        f"defer(function() {SPIN} end)",
        f"defer(function() pcall(function() {SPIN} end) end)",
    ],
)
def test_what_follows_a_kill_is_ended_as_well(worker: WorkerDriver, hooks: str) -> None:
    end = worker.run(f"{hooks} {SPIN}", cpu_ms=50)

    assert (end.ended, end.discarded) == (Ended.CPU, True)
    assert b"took too long" in worker.logs[-1][2]


def test_defers_that_overrun_alone_cost_the_run_and_the_vm(worker: WorkerDriver) -> None:
    end = worker.run(f"defer(function() print('second') end) defer(function() {SPIN} end) return 1", cpu_ms=50)

    assert (end.ended, end.discarded, end.result) == (Ended.CPU, True, None)
    assert [text for _, _, text in worker.logs] == [b"second"]


@pytest.mark.parametrize(
    "source",
    [
        BLOAT,
        "local s = ('x'):rep(1e9)",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
        "local s = string.gsub(('x'):rep(1e6), '.', ('y'):rep(1e4))",
        "return table.concat(setmetatable({}, {__len = function() return 1e9 end, __index = function() return 'xxxx' end}))",
    ],
)
def test_what_needs_too_much_memory_ends(worker: WorkerDriver, source: str) -> None:
    end = worker.run(f"function on_error(err, ctx) print(err) end\n{source}", limit=16 << 20)

    assert (end.ended, end.reason, end.discarded) == (Ended.MEMORY, "not enough memory", True)
    assert worker.logs == [(1, "print", b"not enough memory")]


def test_an_answer_that_does_not_fit_ends_the_run_not_the_worker(worker: WorkerDriver) -> None:
    worker.handlers["echo"] = lambda _: [b"x" * (12 << 20)]
    end = worker.run("local s = echo() local t = echo() local u = echo() return 1", limit=16 << 20)

    assert (end.ended, end.reason) == (Ended.MEMORY, "jobs/x.lua:1: not enough memory")
    assert worker.run("return 1", run=2, vm=2).result == [1]


def test_garbage_makes_room_for_an_answer(worker: WorkerDriver) -> None:
    worker.handlers["echo"] = lambda _: [b"x" * (12 << 20)]

    assert worker.run("for i = 1, 5 do echo() end return 1", limit=20 << 20).result == [1]


def test_a_c_loop_is_reported_as_stuck_while_others_run_on(worker: WorkerDriver) -> None:
    worker.load(1, C_LOOP)
    worker.begin(1, 1, cpu_ms=50)
    assert worker.run("return 1", run=2, vm=2).result == [1]
    assert worker.stepped_runs() == {1}
    worker.wait_for(FromWorker.STUCK, 1)

    assert worker.run("return 1", run=3, vm=3).result == [1]


def test_pings_are_answered_while_a_script_spins(worker: WorkerDriver) -> None:
    worker.load(1, SPIN)
    worker.begin(1, 1)
    worker.say(ToWorker.PING, 5)
    _, number, used, largest = worker.wait_for(FromWorker.PONG)

    assert number == 5
    assert largest[0] == [1, used]
    assert 10_000 < used < 200_000


def test_several_spinners_leave_room_for_others(worker: WorkerDriver) -> None:
    for run in range(1, 7):
        worker.load(run, SPIN)
        worker.begin(run, run, cpu_ms=400)

    assert worker.run("return echo(1)", run=100, vm=100).result == [1]
    assert [worker.end(run).ended for run in range(1, 7)] == [Ended.CPU] * 6


# Logs


def test_a_flood_of_log_lines_waits_for_credit_and_leaves_some_to_others(worker: WorkerDriver) -> None:
    worker.credits_logs = False
    worker.load(1, "while true do print('x') end")
    worker.begin(1, 1)
    worker.expect_silence(FromWorker.END, 0.3)
    assert len(worker.logs) <= wire.LOG_CREDIT
    worker.cancel(1)

    assert worker.end(1).ended == Ended.CANCELLED


def test_credit_lets_a_flood_go_on(worker: WorkerDriver) -> None:
    end = worker.run("for i = 1, 2000 do print(i) end")

    assert end.ended == Ended.SUCCESS
    assert [int(text) for _, _, text in worker.logs] == list(range(1, 2001))


def test_a_long_log_line_is_cut_and_says_so(worker: WorkerDriver) -> None:
    worker.run("print(('x'):rep(20000))")

    assert worker.logs[0][2] == b"x" * wire.LOG_LINE + b"... (3616 bytes cut)"


# Isolation


@pytest.mark.parametrize(
    "poison",
    [
        "string.rep = nil string.sub = nil string.format = nil table.concat = nil",
        "getmetatable('').__index = {}",
        "pcall, error, type, select, next, tostring = nil",
        "coroutine.yield = nil coroutine.resume = nil",
        "setmetatable(_G, {__index = error, __newindex = error})",
        "for k in pairs(_G) do _G[k] = nil end",
    ],
)
def test_a_script_can_spoil_only_its_own_vm(worker: WorkerDriver, poison: str) -> None:
    worker.load(
        1,
        f"local echo = echo local function poison() {poison} end pcall and pcall(poison) return echo({{1}})".replace(
            "pcall and pcall(poison)", "pcall(poison)"
        ),
    )
    worker.begin(1, 1)

    assert worker.end(1).ended == Ended.SUCCESS
    assert worker.evaluate("('x'):rep(2), pcall(error, 'e')", run=2, vm=2) == [b"xx", False, b"e"]


def test_what_is_dangerous_is_absent(worker: WorkerDriver) -> None:
    names = "io package debug python dofile loadfile newproxy warn".split()

    assert worker.evaluate(", ".join([*names, "os.exit, os.execute, os.getenv, string.dump"])) == [None] * (
        len(names) + 4
    )


@pytest.mark.parametrize(
    ("expressions", "values"),
    [
        ("load('\\27Lua')", [None, b"attempt to load a binary chunk (mode is 't')"]),
        ("load('return 1', 'n', 'b')", [None, b"attempt to load a text chunk (mode is 'b')"]),
        ("load('return 1', 'n', 'bt')()", [1]),
        ("load('x = 5 return x')(), load('return x', 'n', 't', {x = 6})(), x", [5, 6, 5]),
        ("pcall(setmetatable, {}, {__gc = print})", [False, b"jobs/x.lua:1: __gc is not available"]),
        ("getmetatable('')", [False]),
        ("collectgarbage('collect'), collectgarbage('count') > 10", [0, True]),
        ("_G == _ENV, _G._G == _G", [True, True]),
        ("getmetatable(setmetatable({}, {__metatable = 'locked'}))", [b"locked"]),
    ],
)
def test_what_is_left_of_lua_is_harmless(worker: WorkerDriver, expressions: str, values: list[object]) -> None:
    assert worker.evaluate(expressions) == values


def test_nested_protected_calls_are_bounded_so_that_a_kill_finds_room(worker: WorkerDriver) -> None:
    deep = "local function nest(n) if n == 0 then return 'deep' end return select(2, pcall(nest, n - 1)) end return nest(%d)"

    assert worker.run(deep % 140).result == [b"deep"]
    end = worker.run(deep % 200, run=2, vm=2)
    assert b"too many nested protected calls" in str(end.result).encode()


def test_runs_abandoned_half_way_leave_nothing_behind(worker: WorkerDriver) -> None:
    worker.load(
        1,
        "if ... and (...).run_id == 500 then return pcall(function() return 'fine' end) end pcall(function() wait() end)",
    )
    for run in range(1, 200):
        worker.begin(run, 1)
        worker.wait_until_asked("wait", run)
    worker.begin(500, 1)

    assert worker.end(500).result == [True, b"fine"]


# VMs and workers


def test_a_dropped_vm_lets_its_run_end_and_takes_no_other(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.load(1, "return echo()")
    worker.begin(1, 1)
    worker.wait_until_asked("echo")
    worker.say(ToWorker.DROP, 1)
    worker.begin(2, 1)
    assert worker.end(2).ended == Ended.UNBEGUN
    worker.answer(1, [1])

    assert worker.end(1).result == [1]


def test_dropping_a_vm_of_60_mb_frees_it_without_holding_up_others(worker: WorkerDriver) -> None:
    worker.load(2, "return 1")
    end = worker.run("t = {} for i = 1, 600000 do t[i] = {i} end return #t", limit=96 << 20)
    assert end.result == [600_000]
    worker.say(ToWorker.DROP, 1)
    worker.begin(2, 2)
    assert worker.end(2).result == [1]
    used = 1 << 30
    for number in range(100):
        worker.say(ToWorker.PING, number)
        used = worker.wait_for(FromWorker.PONG, number)[2]
        if used < 1 << 20:
            break
        time.sleep(0.02)

    assert used < 1 << 20


def test_the_slots_show_which_run_was_being_stepped_when_a_worker_died(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.load(1, C_LOOP)
    worker.begin(77, 1)
    worker.load(2, "wait()")
    worker.begin(78, 2)
    worker.wait_until_asked("wait")
    zygote.kill(worker.pid)

    assert zygote.wait_for(FromZygote.EXITED, worker.pid)[2] == -signal.SIGKILL
    assert worker.stepped_runs() == {77}
    worker.close()


def test_a_worker_ends_when_the_daemon_hangs_up(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.close()

    assert zygote.wait_for(FromZygote.EXITED, worker.pid)[2] == 0


def test_a_worker_that_is_told_nonsense_ends_loudly(zygote: ZygoteDriver) -> None:
    worker = zygote.fork().init()
    worker.say(ToWorker.RESUME)

    assert zygote.wait_for(FromZygote.EXITED, worker.pid)[2] == 70
    worker.close()


def test_the_zygote_takes_its_workers_with_it() -> None:
    with a_zygote() as zygote:
        worker = zygote.fork().init()
        worker.load(1, SPIN)
        worker.begin(1, 1)
        zygote.process.kill()
        zygote.process.wait()
        with pytest.raises(AssertionError):
            worker.end(1)

    assert worker.is_gone
    worker.close()


def test_the_zygote_ends_when_the_daemon_hangs_up() -> None:
    with a_zygote() as zygote:
        worker = zygote.fork().init()

    assert zygote.process.returncode == 0
    worker.wait_until_gone()
    worker.close()


def test_a_worker_knows_the_time_zone_but_nothing_else_of_the_environment() -> None:
    with a_zygote({"TZ": "Asia/Tokyo", "SECRET": "x"}) as zygote:
        worker = zygote.fork().init()
        end = worker.run("return os.date('%H', 0)")
        assert end.result == [b"09"]
        with open(f"/proc/{worker.pid}/environ", "rb") as environment:
            assert environment.read(0) == b""
        worker.close()
