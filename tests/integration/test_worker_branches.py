"""Several ops of one run under way at once, in a real worker: `parallel`, `parallel_map`, timeouts of a branch."""

from __future__ import annotations

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended
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


def test_each_function_gives_its_first_result_in_order(worker: WorkerDriver) -> None:
    end = worker.run("return parallel(function() return 1, 2 end, function() end, function() return 'x' end)")

    assert end.result == [1, None, b"x"]


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


def test_the_daemon_hears_of_the_end_of_a_branch_that_has_asked(worker: WorkerDriver) -> None:
    begin(worker, "parallel(function() echo(1) end, function() wait('x') end, function() end)")
    worker.wait_until_open(b"x")
    worker.answer_open(b"x")
    worker.end(1)

    ended = [worker.wait_for(wire.BranchEnded) for _ in range(2)]

    assert sorted(message.branch for message in ended) == [1, 2]


def test_functions_nest(worker: WorkerDriver) -> None:
    end = worker.run(
        """
        return parallel(function()
          local a, b = parallel(function() return echo(1) end, function() return echo(2) end)
          return a + b
        end, function()
          local results, n = parallel_map({10, 20}, function(x) return echo(x) end)
          return results[1] + results[2] + n
        end)
        """
    )

    assert end.result == [3, 32], end


def test_ops_pass_through_coroutines_and_pcalls_of_a_branch(worker: WorkerDriver) -> None:
    end = worker.run(
        """
        return parallel(function()
          local co = coroutine.wrap(function() coroutine.yield(echo(1)) return select(2, pcall(echo, 2)) end)
          return co() + co()
        end, function()
          return coroutine.wrap(function() return (parallel(function() return echo(7) end)) end)()
        end)
        """
    )

    assert end.result == [3, 7], end


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


def test_a_kill_ends_the_branch_that_spins_and_the_run(worker: WorkerDriver) -> None:
    end = worker.run("parallel(function() wait('x') end, function() while true do pcall(error) end end)", cpu_ms=100)

    assert (end.ended, end.discarded) == (Ended.CPU, True), end
    assert "jobs/x.lua:1" in end.reason


def test_a_cancel_ends_a_run_whose_branches_wait(worker: WorkerDriver) -> None:
    begin(
        worker,
        "defer(function() log('deferred') end) pcall(parallel, function() wait('x') end, function() wait('y') end)",
    )
    worker.wait_until_open(b"x", b"y")

    worker.cancel(1)

    end = worker.end(1)
    assert (end.ended, end.reason) == (Ended.CANCELLED, "jobs/x.lua:1: cancelled"), end
    assert worker.logs[0][2] == b"deferred"


def test_an_answer_to_a_branch_that_has_ended_is_dropped(worker: WorkerDriver) -> None:
    begin(
        worker,
        "echo(pcall(parallel, function() wait('x') end, function() wait('y') error('e', 0) end)) return wait('z')",
    )
    worker.wait_until_open(b"x", b"y")
    worker.answer_open(b"y")
    worker.wait_until_open(b"z")

    worker.answer_open(b"x", 1)
    worker.answer_open(b"z", 2)

    assert worker.end(1).result == [2]
    assert worker.asked[-2][2] == [False, b"e (function 2 of parallel)"]


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


def test_more_than_a_thousand_in_one_run_are_refused_before_any_begins(worker: WorkerDriver) -> None:
    end = worker.run(
        """
        local items, begun = {}, 0
        for i = 1, 600 do items[i] = i end
        local ok, problem = pcall(parallel, function()
          parallel_map(items, function() begun = begun + 1 echo() end, 600)
        end, function()
          parallel_map(items, function() begun = begun + 1 echo() end, 600)
        end)
        return {ok, problem, begun}
        """
    )

    refusal = b"jobs/x.lua:7: more than 1000 functions under way in one run (function 2 of parallel)"
    assert end.result == [[False, refusal, 0]], end


def test_a_hundred_thousand_items_are_no_trouble(worker: WorkerDriver) -> None:
    end = worker.run(
        "local t = {} for i = 1, 100000 do t[i] = i end local r, n = parallel_map(t, function(x) return x * 2 end) "
        "return r[100000], n"
    )

    assert end.result == [200_000, 100_000]


def test_defer_in_a_branch_runs_at_the_end_of_the_run(worker: WorkerDriver) -> None:
    worker.run("parallel(function() defer(function() log('deferred') end) end) log('after')")

    assert [line for _, _, line in worker.logs] == [b"after", b"deferred"]


def test_other_values_are_raised_as_they_are(worker: WorkerDriver) -> None:
    end = worker.run("local t = {} local ok, e = pcall(parallel, function() error(t) end) return not ok and e == t")

    assert end.result == [True]
