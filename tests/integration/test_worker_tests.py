"""Lua tests and what they assert: in a real worker, with the test in the daemon's place."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import End, WorkerDriver


@pytest.fixture
def worker(worker: WorkerDriver) -> WorkerDriver:
    worker.handlers["sleep"] = lambda _: []
    return worker


def names_in(worker: WorkerDriver, source: str, more: Sequence[tuple[str, str]] = ()) -> End:
    assert worker.load(1, source, more=more) is None
    worker.call(1, 1, "tests", {})
    return worker.end(1)


def run_test(worker: WorkerDriver, source: str, name: str = "test_x", **options: object) -> End:
    assert worker.load(1, source, name="jobs/x/tests.lua") is None
    worker.call(1, 1, "test", name, options)
    return worker.end(1)


def failure_of(worker: WorkerDriver, body: str) -> End:
    end = run_test(worker, f"function test_x()\n  {body}\nend")
    assert end.ended == Ended.ERROR, end
    return end


# Finding and calling


def test_tests_are_the_global_functions_of_all_files_by_name(worker: WorkerDriver) -> None:
    end = names_in(
        worker,
        "function test_c() end local function test_local() end test_value = 5",
        [
            ("a.lua", "function test_a() end function helper() end"),
            ("b.lua", "test_b = test_a function on_test_z() end"),
        ],
    )

    assert (end.ended, end.result) == (Ended.SUCCESS, [[b"test_a", b"test_b", b"test_c"]])


def test_any_number_of_tests_is_found(worker: WorkerDriver) -> None:
    end = names_in(worker, "for i = 1, 9000 do _G['test_number_' .. i] = print end")

    assert end.result is not None
    assert len(end.result[0]) == 9000


def test_more_tests_than_fit_into_a_message_are_an_error_and_cost_no_worker(worker: WorkerDriver) -> None:
    end = names_in(worker, "for i = 1, 90000 do _G['test_number_' .. i] = print end")

    assert (end.ended, end.reason) == (Ended.ERROR, "too many tests: their names fill more than 180,000 bytes")


def test_a_file_that_fails_says_where(worker: WorkerDriver) -> None:
    end = names_in(worker, "x = 1", [("jobs/x/tests.lua", "\nerror('no luck')")])

    assert (end.ended, end.reason) == (Ended.ERROR, "jobs/x/tests.lua:2: no luck")


def test_a_test_has_a_ctx_and_may_defer_and_call_ops(worker: WorkerDriver) -> None:
    end = run_test(
        worker,
        "function test_x(ctx) defer(function() print('deferred', ctx.shared.a) end) ctx.shared.a = echo(ctx.job) end",
        ctx={"job": "x"},
    )

    assert (end.ended, worker.lines) == (Ended.SUCCESS, ["deferred\tx"])


def test_what_a_failed_test_deferred_runs_and_no_hook_does(worker: WorkerDriver) -> None:
    end = run_test(
        worker,
        "function on_error() print('hook') end function on_finally() print('hook') end\n"
        "function test_x() defer(function() print('deferred') end) error('no luck') end",
    )

    assert (end.reason, worker.lines) == ("jobs/x/tests.lua:2: no luck", ["deferred"])
    assert "jobs/x/tests.lua:2: in function 'test_x'" in end.traceback


def test_no_hook_follows_a_test_that_passes(worker: WorkerDriver) -> None:
    run_test(worker, "function on_success() print('hook') end function test_x() end")

    assert worker.lines == []


def test_a_test_that_never_ends_is_killed(worker: WorkerDriver) -> None:
    worker.load(1, "function test_x() while true do end end function on_error() print('hook') end")
    worker.call(1, 1, "test", "test_x", {}, cpu_ms=50)

    assert (worker.end(1).ended, worker.lines) == (Ended.CPU, [])


def test_a_test_that_is_not_there_is_named(worker: WorkerDriver) -> None:
    assert run_test(worker, "").reason == "there is no test test_x"


def test_there_are_no_assertions_outside_of_tests(worker: WorkerDriver) -> None:
    assert worker.evaluate("spyweb == nil, get == nil") == [True, True]


# Assertions


@pytest.mark.parametrize(
    "body",
    [
        "spyweb.assert_eq(1, 1.0)",
        "spyweb.assert_eq({1, {a = 'x'}}, {1, {a = 'x'}})",
        "spyweb.assert_eq(nil, nil)",
        "local a, b = {}, {} a.a, b.a = a, b spyweb.assert_eq(a, b)",
        "spyweb.assert_eq(table.freeze({1}), {1})",
        "spyweb.assert_ne({}, json_decode('null'))",
        "spyweb.assert_ne(1, '1')",
        "spyweb.assert_ne({1}, {1, 2})",
        "spyweb.assert_ne({1, 2}, {1})",
        "spyweb.assert_ne(0/0, 0/0)",
        "local t = {} spyweb.assert_ne({[t] = 1}, {[{}] = 1})",
        "spyweb.assert_eq(skip('open'), skip('open')) spyweb.assert_ne(skip('open'), skip('no')) "
        "spyweb.assert_eq(skip('open').skipped, 'open')",
    ],
)
def test_assertions_hold(worker: WorkerDriver, body: str) -> None:
    end = run_test(worker, f"function test_x() {body} end")

    assert end.ended == Ended.SUCCESS, end


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("spyweb.assert_eq(1, 2)", "1 is not equal to 2"),
        ("spyweb.assert_eq('a', nil)", '"a" is not equal to nil'),
        ("spyweb.assert_eq(1, 2, 'price')", "price: 1 is not equal to 2"),
        ("spyweb.assert_eq({a = {1, 2}}, {a = {1, 3}})", "they differ at .a[2]: 2 is not equal to 3"),
        ("spyweb.assert_eq({}, {['x y'] = 1})", 'they differ at ["x y"]: nil is not equal to 1'),
        ("spyweb.assert_eq({1}, 1)", "a table is not equal to 1"),
        ("spyweb.assert_ne(1, 1)", "both are 1"),
        ("spyweb.assert_ne({1}, {1}, 'm')", "m: both are a table"),
    ],
)
def test_a_failed_assertion_shows_both_values_at_its_own_line(worker: WorkerDriver, body: str, reason: str) -> None:
    end = failure_of(worker, body)

    assert end.reason == f"jobs/x/tests.lua:2: {reason}"
    assert "jobs/x/tests.lua:2: in function 'test_x'" in end.traceback


def test_values_that_do_not_fit_into_a_line_are_shown_whole_before_the_traceback(worker: WorkerDriver) -> None:
    end = failure_of(worker, "spyweb.assert_eq({a = 1}, {a = 2})")

    assert end.traceback.splitlines()[:8] == [
        "jobs/x/tests.lua:2: they differ at .a: 1 is not equal to 2",
        "  left:  {",
        "    a = 1,",
        "  }",
        "  right: {",
        "    a = 2,",
        "  }",
        "stack traceback:",
    ]


def test_long_values_are_cut(worker: WorkerDriver) -> None:
    end = failure_of(worker, "spyweb.assert_eq(('a'):rep(9000), ('b'):rep(9000))")

    assert end.traceback.count("4906 bytes cut") == 2
    assert len(end.traceback) < 10_000


def test_an_assertion_in_a_helper_is_found_in_the_traceback(worker: WorkerDriver) -> None:
    end = run_test(
        worker, "local function same(a)\n  spyweb.assert_eq(a, 1)\nend\nfunction test_x()\n  same(2) return\nend"
    )

    assert end.reason == "jobs/x/tests.lua:2: 2 is not equal to 1"
    assert "jobs/x/tests.lua:5: in function 'test_x'" in end.traceback


# Time


def test_virtual_time_moves_with_each_sleep_that_is_answered(worker: WorkerDriver) -> None:
    end = run_test(
        worker,
        "local t, c, d = os.time(), os.clock(), os.time(os.date('*t')) "
        "function test_x() sleep(3600500) sleep('99500') "
        "local dt, dc, dd = os.time() - t, os.clock() - c, os.time(os.date('*t')) - d "
        "for _, moved in ipairs({dt, dc, dd}) do assert(moved >= 3700 and moved < 3710, moved) end "
        "spyweb.assert_eq(math.type(os.time()), 'integer') "
        "spyweb.assert_eq(os.time({year = 2026, month = 1, day = 1, hour = 0}), 1767225600) "
        "spyweb.assert_eq(os.date('!%Y', 0), '1970') end",
        virtual_time=True,
    )

    assert end.ended == Ended.SUCCESS, end
    assert [arguments for _, name, arguments in worker.asked if name == "sleep"] == [[3600500], [b"99500"]]


def test_time_is_real_otherwise(worker: WorkerDriver) -> None:
    end = run_test(worker, "local t = os.time() function test_x() sleep(3600000) assert(os.time() - t < 10) end")

    assert end.ended == Ended.SUCCESS, end
