"""Branches whose end comes from outside, and those that are launched one by one; scripts see the rest in
tests/integration/test_worker_branches.py."""

from __future__ import annotations

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import BranchBegan, BranchEnded, Ended, Why
from spyweb.lua.worker.vm import Bytecode
from tests.fakes.inline_worker import InlineWorker


@pytest.fixture
def worker(bytecode: Bytecode) -> InlineWorker:
    return InlineWorker(bytecode)


def test_a_function_within_its_time_gives_all_its_results(worker: InlineWorker) -> None:
    worker.begin("return timed(2.5, function(a) wait('x') return a, 2, nil end, 1)")

    worker.answer(b"x")

    assert worker.result == [1, 2, None]
    assert worker.told(BranchBegan) == [BranchBegan(1, 1, 0, 2500)]
    assert worker.told(BranchEnded) == [BranchEnded(1, 1, 1)]


def test_a_function_that_waits_is_ended_when_its_time_is_up(worker: InlineWorker) -> None:
    worker.begin(
        "mark = 1\nlocal ok, e = pcall(timed, 1, function() pcall(wait, 'x') end)\nwait('then') return e, mark"
    )

    worker.end_branch(1)

    assert worker.told(BranchEnded) == [BranchEnded(1, 1, 1)]
    worker.answer(b"then")
    assert worker.result == [b"over its timeout", 1]
    worker.answer(b"x")  # too late: the daemon had sent it


@pytest.mark.parametrize(
    "spin",
    [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local co = coroutine.wrap(function() while true do end end) co()",
        "local co = coroutine.wrap(function() while true do pcall(error) end end) pcall(co)",
        "timed(60, function() while true do end end)",
        "pcall(parallel, function() while true do end end, function() while true do end end)",
    ],
)
def test_a_function_that_spins_is_ended_when_its_time_is_up(worker: InlineWorker, spin: str) -> None:
    worker.on_line = lambda _: worker.end_branch(1)

    worker.begin(f"local ok, e = pcall(timed, 1, function() log('spinning') {spin} end) return e, type(wait)")

    assert worker.result == [b"over its timeout", b"function"]


def test_where_it_spun_is_told(worker: InlineWorker) -> None:
    worker.on_line = lambda _: worker.end_branch(1)

    worker.begin("timed(1, function()\nlog('spinning')\nwhile true do\nend\nend)")

    assert worker.reason == "over its timeout"
    assert worker.end is not None
    assert (
        b"jobs/x.lua:3: in function <jobs/x.lua:1>" in worker.end.traceback or b"jobs/x.lua:2" in worker.end.traceback
    )
    assert b"jobs/x.lua:1: in main chunk" in worker.end.traceback


def test_the_time_of_another_function_does_not_end_the_one_that_runs(worker: InlineWorker) -> None:
    """Both are timed; it is told of the end of the one that waits while the other is stepped."""
    worker.begin(
        """
        local group = group()
        group:launch(function() wait('a') end, 1)
        group:launch(function()
          wait('b')
          log('now')
          local n = 0
          for i = 1, 100000 do n = n + 1 end
          return n
        end, 1)
        local _, _, first = group:next()
        local _, _, second = group:next()
        return first, second
        """
    )
    worker.on_line = lambda _: worker.end_branch(1)

    worker.answer(b"b")

    assert worker.result == [100_000, b"over its timeout"]


def test_a_run_that_is_told_of_an_end_while_it_is_stepped_is_not_slowed_down(worker: InlineWorker) -> None:
    """The hook that was armed for another's sake is off again."""
    worker.begin(
        """
        local function spin() local n = 0 for i = 1, 3e6 do n = n + 1 end end
        local began = os.clock() spin() local plain = os.clock() - began
        local group, armed = group(), nil
        group:launch(function() wait('a') end, 1)
        group:launch(function() wait('b') log('now') began = os.clock() spin() armed = os.clock() - began end, 1)
        group:next() group:next()
        return armed / plain
        """
    )
    worker.on_line = lambda _: worker.end_branch(1)

    worker.answer(b"b")

    (ratio,) = worker.result
    assert isinstance(ratio, float)
    assert ratio < 5  # with the hook at each instruction it is over 20


def test_the_end_of_a_function_ends_what_it_has_launched(worker: InlineWorker) -> None:
    worker.begin(
        """
        local ok, e = pcall(timed, 1, function()
          parallel(function() wait('x') end, function() timed(1, function() wait('y') end) end)
        end)
        return wait('z'), e
        """
    )
    assert sorted(map(str, worker.open)) == ["b'x'", "b'y'"]

    worker.end_branch(1)

    assert {message.branch for message in worker.told(BranchEnded)} == {1, 2, 3, 4}
    worker.answer(b"z", 5)
    assert worker.result == [5, b"over its timeout"]


def test_an_end_that_comes_when_the_branch_has_ended_counts_for_nothing(worker: InlineWorker) -> None:
    worker.begin("parallel(function() timed(1, function() end) end, function() wait('x') end) return wait('y')")
    worker.end_branch(3)
    worker.answer(b"x")
    worker.end_branch(3)

    worker.answer(b"y", 1)
    worker.end_branch(3)

    assert worker.result == [1]


def test_functions_are_launched_one_by_one_and_an_error_ends_none_of_the_others(worker: InlineWorker) -> None:
    worker.begin(
        """
        local group, told = group(), {}
        for i = 1, 3 do group:launch(function()
          wait('f' .. i)
          if i == 2 then error('boom ' .. i, 0) end
          return i, 'of three'
        end) end
        wait('own')
        while true do
          local id, ok, first, second, frames = group:next()
          if not id then break end
          told[#told + 1] = id
          told[#told + 1] = tostring(ok) .. ' ' .. tostring(first) .. ' ' .. tostring(second)
        end
        return told
        """
    )
    assert set(worker.open) == {b"f1", b"f2", b"f3", b"own"}

    for name in (b"f2", b"f3", b"own", b"f1"):
        worker.answer(name)

    assert worker.result == [[2, b"false boom 2 false", 3, b"true 3 of three", 1, b"true 1 of three"]]


@pytest.mark.parametrize(
    ("then", "result"), [("g:stop() return g.live, g:next()", [0, None]), ("return 'over'", [b"over"])]
)
def test_a_group_is_stopped_or_ends_with_the_run_that_has_not_waited_for_it(
    worker: InlineWorker, then: str, result: list[object]
) -> None:
    launch = "g:launch(function() wait('a') end) g:launch(function() wait('b') end)"
    worker.begin(f"local g = group() {launch} wait('own') {then}")
    worker.answer(b"own")

    assert worker.result == result
    assert {message.branch for message in worker.told(BranchEnded)} == {1, 2}


def test_a_run_whose_branches_wait_can_be_cancelled_and_its_hooks_may_have_branches(worker: InlineWorker) -> None:
    worker.begin(
        """
        function on_finally()
          log(table.concat({parallel(function() return 'a' end, function() return 'b' end)}, ' '))
        end
        function run() pcall(parallel, function() wait('x') end, function() wait('y') end) end
        """
    )

    worker.cancel()

    assert worker.end is not None
    assert worker.end.ended == Ended.CANCELLED
    assert worker.lines == ["a b"]


def test_a_cancel_while_a_branch_is_stepped_ends_the_run(worker: InlineWorker) -> None:
    worker.on_line = lambda _: worker.cancel(Why.TIMEOUT)

    worker.begin("parallel(function() wait('x') end, function() log('now') while true do pcall(error) end end)")

    assert worker.end is not None
    assert worker.end.ended == Ended.TIMEOUT
    assert worker.reason == "jobs/x.lua:1: timed out"


def test_memory_that_a_branch_can_not_have_ends_the_run(worker: InlineWorker) -> None:
    worker.begin(
        "parallel(function() wait('x') end, function() local t = {} while true do t[#t + 1] = ('x'):rep(999) .. #t end "
        "end)",
        limit=4 << 20,
    )

    assert worker.end is not None
    assert worker.end.ended == Ended.MEMORY, worker.end


def test_after_its_branches_a_run_is_as_it_was(worker: InlineWorker) -> None:
    worker.begin("parallel(function() wait('x') end) wait('y') return wait('z')")
    worker.answer(b"x")
    worker.answer(b"y")

    assert worker.registry.runs[1].branch is None
    assert worker.open[b"z"].branch == 0
    worker.answer(b"z", 3)
    assert worker.result == [3]


def test_a_module_that_two_branches_require_is_executed_once(worker: InlineWorker) -> None:
    worker.begin("times = 0 return parallel(function() return require('m') end, function() return require('m') end)")
    first, second = worker.told(wire.OpCall)
    source = b"times = times + 1 wait('inside') return times"
    for call in (first, second):
        worker.say(wire.ResumeRun(1, call.number, 0, [b"m.lua", source]))
    assert sorted(map(str, worker.open)) == ["5", "b'inside'", "b'm'"]

    worker.answer(b"inside")
    worker.answer(5)

    assert worker.result == [1, 1]


def test_a_module_that_waits_for_a_function_that_requires_it_is_refused(worker: InlineWorker) -> None:
    worker.begin("require('m')")
    source = b"parallel(function() require('m') end)"
    worker.answer(b"m", b"m.lua", source)
    worker.answer(b"m", b"m.lua", source)

    assert worker.reason.startswith("m.lua:1: module 'm' requires itself: a function that it waits for requires it")


def test_what_a_function_leaves_open_is_closed_when_it_fails_and_not_when_it_is_ended(worker: InlineWorker) -> None:
    worker.begin(
        """
        local function close_with(name)
          return setmetatable({}, { __close = function() wait(name) end })
        end
        local ok, problem = pcall(parallel, function()
          local open <close> = close_with('failed')
          wait('first')
          error('boom')
        end, function()
          local open <close> = close_with('ended')
          wait('second')
        end)
        return problem
        """
    )
    worker.answer(b"first")
    assert sorted(map(str, worker.open)) == ["b'failed'", "b'second'"]

    worker.answer(b"failed")

    assert worker.result == [b"jobs/x.lua:8: boom (function 1 of parallel)"]
    assert b"ended" not in worker.open


def test_where_a_function_failed_is_told_where_something_has_to_be_closed(worker: InlineWorker) -> None:
    worker.begin("parallel(function()\nlocal open <close> = nil\nlocal t = nil\nt.x = 1\nend)")

    assert worker.reason.startswith("jobs/x.lua:4: attempt to index a nil value")
    assert worker.end is not None
    assert b"\tjobs/x.lua:4: in function <jobs/x.lua:1>\n\tjobs/x.lua:1: in main chunk" in worker.end.traceback


def test_a_module_whose_loading_was_ended_is_loaded_by_the_next(worker: InlineWorker) -> None:
    worker.begin("pcall(timed, 1, function() require('m') end) return require('m')")
    worker.answer(b"m", b"m.lua", b"wait('inside') return 5")
    worker.end_branch(1)
    worker.answer(b"m", b"m.lua", b"return 6")

    assert worker.result == [6]


def test_a_time_that_is_up_before_the_function_has_begun_ends_it_all_the_same(worker: InlineWorker) -> None:
    """The first branch of a run: the worker does not yet know that the run has any."""

    def end_it(message: wire.FromWorker, _is_bulk: bool) -> None:
        if isinstance(message, BranchBegan):
            worker.end_branch(message.branch)

    worker.on_message = end_it

    worker.begin("local ok, e = pcall(timed, 0.001, function() while true do end end) return e")

    assert worker.result == [b"over its timeout"]
