"""Several ops of one run under way at once, in a real worker: `parallel`, `parallel_map`, timeouts of a branch."""

from __future__ import annotations

import pytest

from tests.fakes.worker_driver import WorkerDriver


def begin(worker: WorkerDriver, source: str, *, run: int = 1, vm: int = 1, cpu_ms: int = 10_000) -> None:
    assert worker.load(vm, source) is None
    worker.begin(run, vm, cpu_ms=cpu_ms)


def test_ops_of_functions_are_under_way_at_once(worker: WorkerDriver) -> None:
    begin(worker, "return parallel(function() return wait('a') end, function() return wait('b') end)")

    worker.wait_until_open(b"a", b"b")
    worker.answer_open(b"b", 2)
    worker.answer_open(b"a", 1)

    assert worker.end(1).result == [1, 2]


def test_a_map_has_so_many_under_way_and_gives_the_length(worker: WorkerDriver) -> None:
    begin(
        worker, "return parallel_map({'a', 'b', 'c'}, function(item, i) wait(item) if i ~= 2 then return i end end, 2)"
    )
    worker.wait_until_open(b"a", b"b")
    assert b"c" not in worker.open

    worker.answer_open(b"a")
    worker.wait_until_open(b"c")
    worker.answer_open(b"b")
    worker.answer_open(b"c")

    end = worker.end(1)
    assert end.result == [{1: 1, 3: 3}, 3], end


def test_the_first_error_ends_those_that_wait_and_is_raised(worker: WorkerDriver) -> None:
    begin(
        worker,
        """
        local function never() pcall(wait, 'never') echo('held') end
        parallel(never, function()
          wait('now')
          error('boom')
        end, never)
        """,
    )
    worker.wait_until_open(b"never", b"now")
    worker.answer_open(b"now")

    end = worker.end(1)

    assert end.reason == "jobs/x.lua:5: boom (function 2 of parallel)"
    assert "jobs/x.lua:5: in" in end.traceback
    assert "jobs/x.lua:3: in" in end.traceback
    assert not [asked for asked in worker.asked if asked[1] == "echo"]


RESULTS = {
    "each_function_gives_its_first_result_in_order": (
        "return parallel(function() return 1, 2 end, function() end, function() return 'x' end)",
        [1, None, b"x"],
    ),
    "functions_nest": (
        """
        return parallel(function()
          local a, b = parallel(function() return echo(1) end, function() return echo(2) end)
          return a + b
        end, function()
          local results, n = parallel_map({10, 20}, function(x) return echo(x) end)
          return results[1] + results[2] + n
        end)
        """,
        [3, 32],
    ),
    "ops_pass_through_coroutines_and_pcalls_of_a_branch": (
        """
        return parallel(function()
          local co = coroutine.wrap(function() coroutine.yield(echo(1)) return select(2, pcall(echo, 2)) end)
          return co() + co()
        end, function()
          return coroutine.wrap(function() return (parallel(function() return echo(7) end)) end)()
        end)
        """,
        [3, 7],
    ),
    "more_than_a_thousand_in_one_run_are_refused_before_any_begins": (
        """
        local items, begun = {}, 0
        for i = 1, 600 do items[i] = i end
        local ok, problem = pcall(parallel, function()
          parallel_map(items, function() begun = begun + 1 echo() end, 600)
        end, function()
          parallel_map(items, function() begun = begun + 1 echo() end, 600)
        end)
        return {ok, problem, begun}
        """,
        [[False, b"jobs/x.lua:7: more than 1000 functions under way in one run (function 2 of parallel)", 0]],
    ),
    "a_hundred_thousand_items_are_no_trouble": (
        "local t = {} for i = 1, 100000 do t[i] = i end local r, n = parallel_map(t, function(x) return x * 2 end) "
        "return r[100000], n",
        [200_000, 100_000],
    ),
    "other_values_are_raised_as_they_are": (
        "local t = {} local ok, e = pcall(parallel, function() error(t) end) return not ok and e == t",
        [True],
    ),
}


@pytest.mark.parametrize(("source", "result"), RESULTS.values(), ids=RESULTS)
def test_what_functions_side_by_side_give(worker: WorkerDriver, source: str, result: list[object]) -> None:
    assert worker.run(source).result == result


def test_a_branch_is_no_coroutine_of_the_script(worker: WorkerDriver) -> None:
    end = worker.run(
        """
        local co
        local seen = {}
        parallel(function() co = coroutine.running() echo(1) seen[1] = select(2, coroutine.running()) end, function()
          seen[2] = coroutine.status(co)
          seen[3] = select(2, coroutine.resume(co))
          seen[4] = select(2, pcall(coroutine.yield))
        end)
        return seen
        """
    )

    assert end.result == [
        [
            True,
            b"normal",
            b"cannot resume non-suspended coroutine",
            b"jobs/x.lua:7: attempt to yield from outside a coroutine",
        ]
    ], end


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("parallel(1)", "bad argument #1 to 'parallel' (function expected, got number)"),
        ("parallel_map(1)", "bad argument #1 to 'parallel_map' (table expected, got number)"),
        ("parallel_map({})", "bad argument #2 to 'parallel_map' (function expected, got nil)"),
        ("parallel_map({}, print, 0)", "bad argument #3 to 'parallel_map' (a whole number from 1 to 1000 expected)"),
        ("parallel_map({}, print, 1001)", "bad argument #3 to 'parallel_map' (a whole number from 1 to 1000 expected)"),
        ("parallel_map({}, print, 1.5)", "bad argument #3 to 'parallel_map' (a whole number from 1 to 1000 expected)"),
        ("parallel_map({}, print, 0/0)", "bad argument #3 to 'parallel_map' (a whole number from 1 to 1000 expected)"),
        (
            "local t = {} for i = 1, 100000 do t[i] = print end parallel(table.unpack(t))",
            "parallel: 100000 functions, at most 1000 can be under way at once",
        ),
        (
            "table.sort({1, 2}, function() parallel(print) end)",
            "parallel can't be called inside a table.sort comparator, a string.gsub callback or anything else that a C "
            "function of Lua calls",
        ),
        (
            "table.sort({1, 2}, function() coroutine.wrap(function() parallel(print) end)() end)",
            "parallel can't be called inside a table.sort comparator, a string.gsub callback or anything else that a C "
            "function of Lua calls",
        ),
    ],
)
def test_what_can_not_be(worker: WorkerDriver, call: str, reason: str) -> None:
    end = worker.run(call)

    assert end.reason == f"jobs/x.lua:1: {reason}", end


def test_defer_in_a_branch_runs_at_the_end_of_the_run(worker: WorkerDriver) -> None:
    worker.run("parallel(function() defer(function() log('deferred') end) end) log('after')")

    assert [line for _, _, line in worker.logs] == [b"after", b"deferred"]
