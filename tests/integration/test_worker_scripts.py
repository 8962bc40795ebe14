"""What a script may do in a real worker: results, ops, hooks, deferred functions."""

from __future__ import annotations

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form
from tests.fakes.worker_driver import WorkerDriver, ZygoteDriver

# Scripts and their results


def test_the_values_a_chunk_returns_come_with_its_end(worker: WorkerDriver) -> None:
    end = worker.run("return 1, 'two', {3}, nil, true")

    assert (end.ended, end.result, end.discarded) == (Ended.SUCCESS, [1, b"two", [3], None, True], False)


CHANCE = "function run() return os.time(), os.clock(), math.random(1e9), crypto.uuid(), #crypto.random_string(99) end"


def test_a_run_that_reads_again_what_another_has_read_of_clocks_and_chance_has_the_same_result(
    worker: WorkerDriver,
) -> None:
    worker.load(1, CHANCE)
    ends = []
    for run in (1, 2):
        worker.begin(run, 1)
        ends.append(worker.end(run))
    worker.load(2, CHANCE)
    for number, end in enumerate(ends, 3):
        worker.begin(number, 2, reads=end.reads)
        again = worker.end(number)
        assert again.result is not None
        assert again.result[:4] == (end.result or [])[:4]
        assert again.reads == {}, "it reads nothing itself"
    assert ends[0].result != ends[1].result


def test_a_seed_that_a_script_has_chosen_is_not_changed_by_its_next_run(worker: WorkerDriver) -> None:
    worker.load(1, "math.randomseed(7) function run() return math.random(1e9) end")
    worker.load(2, "math.randomseed(7) return {math.random(1e9), math.random(1e9)}")
    numbers = []
    for run, vm in ((1, 1), (2, 1), (3, 2)):
        worker.begin(run, vm)
        numbers.append((worker.end(run).result or [])[0])

    assert numbers[:2] == numbers[2]


@pytest.mark.parametrize(
    "source", ["while os.clock() < 1e9 and n < 5000 do n = n + 1 end", "for _ = 1, 5000 do os.time() end"]
)
def test_only_the_first_reads_of_a_run_are_told(worker: WorkerDriver, source: str) -> None:
    assert [len(reads) for reads in worker.run(f"n = 0 {source}").reads.values()] == [wire.MOST_READS]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("visits = (visits or 0) + 1 return visits", [[1], [2], [3]]),
        ("loads = (loads or 0) + 1 function run(ctx) return loads, ctx.job end", [[1, b"x"]] * 3),
    ],
)
def test_a_chunk_is_executed_for_every_run_in_the_same_vm_unless_it_defines_run(
    worker: WorkerDriver, source: str, expected: list[list[object]]
) -> None:
    worker.load(1, source)
    results = []
    for run in (1, 2, 3):
        worker.begin(run, 1)
        results.append(worker.end(run).result)

    assert results == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("return false", "returned false"),
        ("return false, 'no luck'", "no luck"),
        ("return nil, 'gone'", "gone"),
        ("return nil, 404", "404"),
        ("return nil, 3.0", "3"),
        ("return nil, true", "true"),
        ("return false, false", "false"),
        ("return nil, {message = 'told'}", "told"),
        ("return nil, 'not enough memory'", "not enough memory"),
        ("error(3.0)", "3"),
        ("error({code = 3.0})", "(error object is a table value: {code = 3})"),
        ("error('boom')", "jobs/x.lua:1: boom"),
        ("error({code = 1})", "(error object is a table value: {code = 1})"),
        ("error({})", "(error object is a table value: {})"),
        (
            "error({'first', [1.5] = true, ['a b'] = {}, why = 'x\\ny' .. ('z'):rep(100)})",
            "(error object is a table value: "
            f'{{["a b"] = <table>, [1.5] = true, [1] = "first", why = "x?y{"z" * 77}..."}})',
        ),
        (
            "error(setmetatable({1, 2, 3, 4, 5, 6, 7, 8, more = 9}, {__pairs = error, __index = error}))",
            "(error object is a table value: "
            "{[1] = 1, [2] = 2, [3] = 3, [4] = 4, [5] = 5, [6] = 6, [7] = 7, [8] = 8, ...})",
        ),
        ("error({message = 'told'})", "told"),
        ("error(setmetatable({}, {__tostring = function() return 'shown' end}))", "shown"),
        ("error(setmetatable({message = 'told'}, {__tostring = function() return 'shown' end}))", "shown"),
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


def test_a_table_that_is_too_large_is_not_shown(worker: WorkerDriver) -> None:
    end = worker.run(f"return {{('x'):rep({wire.RESULT})}}")

    assert (end.ended, end.result) == (Ended.SUCCESS, None)


def test_of_a_text_that_is_too_large_the_beginning_is_shown_and_on_success_is_given_all(worker: WorkerDriver) -> None:
    end = worker.run("function on_success(ctx, result) log(#result) end\nfunction run() return ('x'):rep(1000000) end")

    assert (end.ended, end.result) == (Ended.SUCCESS, [b"x" * (wire.RESULT - 16)])
    assert worker.lines == ["1000000"]


def test_a_script_that_does_not_compile_says_where(worker: WorkerDriver) -> None:
    assert worker.load(1, "local x = 1\nlocal y = = 2") == "jobs/x.lua:2: unexpected symbol near '='"


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


NOWHERE = "a table.sort comparator, a string.gsub callback or anything else that a C function of Lua calls"
RESULTS: dict[str, tuple[str, list[object]]] = {
    "the_chunk_gets_the_context_with_a_table_to_share": (
        "local ctx = ... return ctx.job, type(ctx.shared)",
        [b"x", b"table"],
    ),
    "an_op_carries_any_values_there_and_back": (
        "return echo(1, 2.5, 'a\\0\\255', nil, true, {1, {k = 'v'}})",
        [1, 2.5, b"a\0\xff", None, True, [1, {b"k": b"v"}]],
    ),
    "values_of_many_bytes_take_the_bulk_socket_both_ways": (
        "local s = ('x'):rep(3000000) return #echo(s, {s})",
        [3_000_000],
    ),
    "a_handler_that_calls_an_op_fails_by_its_name": (
        "local _, problem = xpcall(error, function(e) echo(e) end) return problem",
        [f"jobs/x.lua:1: echo can't be called inside {NOWHERE}".encode()],
    ),
    "a_handler_that_fails_is_called_for_its_own_error": (
        "n = 0 return {xpcall(error, function(e) n = n + 1 if n < 4 then error(n, 0) end return e end)}",
        [[False, 3]],
    ),
    "yielding_outside_a_coroutine_is_an_error_there": (
        "local ok, e = pcall(coroutine.yield, 1) return e, coroutine.isyieldable()",
        [b"jobs/x.lua:1: attempt to yield from outside a coroutine", False],
    ),
}


@pytest.mark.parametrize(("source", "result"), RESULTS.values(), ids=RESULTS)
def test_what_a_script_gives(worker: WorkerDriver, source: str, result: list[object]) -> None:
    assert worker.run(source).result == result


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
    worker.start("local ok, e = pcall(echo) return e.code", until="echo")
    worker.resume(1, Form.RAISE_PACKED, wire.pack([{b"code": 7}]))

    assert worker.end(1).result == [7]


@pytest.mark.parametrize(
    "source",
    [
        "table.sort({3, 2, 1}, function(a, b) echo() return a < b end)",
        "table.sort({3, 2, 1}, function(a, b) coroutine.wrap(function() echo() end)() return a < b end)",
        "table.sort({2, 1}, function() coroutine.wrap(coroutine.wrap(function() echo() end))() end)",
        "tostring(setmetatable({}, {__tostring = function() echo() end}))",
        "table.unpack(setmetatable({}, {__index = function() echo() end}), 1, 1)",
        "load(function() echo() end)",
    ],
)
def test_an_op_that_a_c_function_would_wait_for_is_refused_by_name(worker: WorkerDriver, source: str) -> None:
    end = worker.run(f"local _, value, problem = pcall(function() return {source} end) return value or problem")

    assert end.result == [f"jobs/x.lua:1: echo can't be called inside {NOWHERE}".encode()]


def test_require_is_refused_by_the_name_that_it_has(worker: WorkerDriver) -> None:
    end = worker.run("defer(function() require('x') end) table.sort({2, 1}, function() require('x') end)")

    assert end.reason == f"jobs/x.lua:1: require can't be called inside {NOWHERE}"
    assert b"defer: jobs/x.lua:1: require can't be called inside a deferred function" in worker.logs[0][2]


def test_a_coroutine_whose_op_was_refused_can_go_on(worker: WorkerDriver) -> None:
    end = worker.run("""
        local co = coroutine.create(function()
            local ok, problem = pcall(echo)
            coroutine.yield(problem)
            return echo(5)
        end)
        local told
        string.gsub("x", "x", function() _, told = coroutine.resume(co) end)
        return told, coroutine.status(co), coroutine.resume(co)""")

    refusal = f"jobs/x.lua:3: echo can't be called inside {NOWHERE}"
    assert end.result == [refusal.encode(), b"suspended", True, 5]


def test_a_script_can_not_forge_the_answer_to_an_op(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.load(1, "inner = coroutine.create(function() return echo() end) return coroutine.resume(inner)")
    worker.load(2, "main = coroutine.running() return echo()")
    worker.begin(1, 1, until="echo")
    worker.load(3, "")
    worker.say(wire.ResumeRun(1, 1, int(Form.PLAIN), [b"true answer"]))

    assert worker.end(1).result == [True, b"true answer"]


def test_another_run_in_the_vm_can_not_resume_what_waits_for_an_op(worker: WorkerDriver) -> None:
    del worker.handlers["echo"]
    worker.start(
        """
        if main then
            local ok, why = coroutine.resume(main, 'forged')
            local ok2, why2 = coroutine.resume(inner, 'forged')
            return true, ok, why, ok2, why2, coroutine.status(inner), (pcall(coroutine.close, inner))
        end
        main = coroutine.running()
        inner = coroutine.create(function() return echo() end)
        return coroutine.resume(inner)""",
        until="echo",
    )
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


# Hooks and deferred functions


def test_hooks_see_how_the_run_ended_and_defers_follow_last_first(worker: WorkerDriver) -> None:
    worker.run("""
        function on_success(ctx, result) print('success', ctx.final, result) end
        function on_error(err, ctx) print('error', err) end
        function on_finally(ctx) print('finally', ctx.job) end
        defer(function() print('first') end)
        defer(function() print('second') defer(function() print('third') end) end)
        return 42""")

    lines = [line.split("\t") for line in worker.lines]
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


def test_an_op_in_a_deferred_function_is_an_error(worker: WorkerDriver) -> None:
    worker.run("defer(function() echo(1) end)")

    assert b"echo can't be called inside a deferred function" in worker.logs[0][2]


def test_there_is_a_limit_to_what_one_run_defers(worker: WorkerDriver) -> None:
    end = worker.run("local function again() defer(again) end again()")

    assert (end.ended, len(worker.logs)) == (Ended.SUCCESS, 1)
    assert b"more than 1000 deferred functions" in worker.logs[0][2]


@pytest.mark.parametrize(
    ("source", "reason", "traceback"),
    [
        ("return nil, '\\n one\\ntwo'", "one", "one\ntwo"),
        (
            "error('one\\ntwo')",
            "jobs/x.lua:1: one",
            "jobs/x.lua:1: one\ntwo\nstack traceback:\n\tjobs/x.lua:1: in main chunk",
        ),
        ("return nil, 'one'", "one", ""),
    ],
)
def test_the_reason_is_one_line_and_what_more_was_said_stands_before_the_traceback(
    worker: WorkerDriver, source: str, reason: str, traceback: str
) -> None:
    end = worker.run(source)
    assert (end.reason, end.traceback) == (reason, traceback)


# `return skip(reason)`: there was nothing to do


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("function run() return skip('open: not asking') end", "open: not asking"),
        ("return skip('at once')", "at once"),
        ("function run() local s = skip() return s, 'more' end", ""),
        ("function run() return parallel(function() return skip('in a branch') end) end", "in a branch"),
    ],
)
def test_a_run_that_returns_it_is_skipped_with_the_reason(worker: WorkerDriver, script: str, reason: str) -> None:
    worker.start(script)
    end = worker.end(1)
    assert (end.ended, end.reason, end.traceback, end.result) == (Ended.SKIPPED, reason, "", None)


def test_neither_hook_of_its_success_or_failure_follows_but_what_always_does(worker: WorkerDriver) -> None:
    hooks = "function on_success() log(1) end function on_error() log(2) end function on_finally() log('finally') end "
    worker.start(hooks + "function run() defer(function() log('deferred') end) return skip('no') end")
    assert worker.end(1).ended == Ended.SKIPPED
    assert worker.lines == ["finally", "deferred"]


def test_what_is_not_returned_skips_nothing_nor_does_that_of_an_earlier_run(worker: WorkerDriver) -> None:
    worker.load(1, "function run() if kept then return kept end kept = skip('first') return 1 end")
    for run in (1, 2):
        worker.begin(run, 1)
        assert worker.end(run).ended == Ended.SUCCESS
    ((_, level, text),) = worker.logs
    assert (level, text[:34]) == ("warn", b"the run has called skip(reason), a")


def test_a_script_may_have_a_skip_of_its_own(worker: WorkerDriver) -> None:
    worker.start("function skip(x) return x + 1 end function run() return skip(1) end")
    assert worker.end(1).result == [2]


def test_skip_takes_a_text(worker: WorkerDriver) -> None:
    worker.start("function run() return skip({}) end")
    assert worker.end(1).reason == "jobs/x.lua:1: bad argument #1 to 'skip' (string expected, got table)"


def test_a_hook_can_not_skip_what_has_ended(worker: WorkerDriver) -> None:
    worker.start("function on_success() skip('too late') end function run() end")
    assert worker.end(1).ended == Ended.SUCCESS
    assert b"skip is for the run of a job" in worker.logs[0][2]


# Chance


def test_workers_of_one_zygote_do_not_draw_the_same_numbers(zygote: ZygoteDriver) -> None:
    drawn = []
    for _ in range(3):
        worker = zygote.fork().init()
        drawn += [worker.run("return math.random(0)", run=number, vm=number).result for number in (1, 2)]
        worker.close()
    assert len(set(map(str, drawn))) == 6
