"""Several runs in one VM while its file, or a module, is still loading: in a real worker."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended, Why
from tests.fakes.worker_driver import WorkerDriver

SLOW = "loads = (loads or 0) + 1 "


@pytest.fixture
def waiting(worker: WorkerDriver) -> WorkerDriver:
    """Its sleeps end at once, its echoes when the test says so."""
    worker.handlers["sleep"] = lambda _: []
    del worker.handlers["echo"]
    return worker


@pytest.mark.parametrize("definition", ["function run() return loads end", "run = function() return loads end"])
def test_runs_wait_for_the_one_that_is_executing_their_file(waiting: WorkerDriver, definition: str) -> None:
    waiting.start(f"{SLOW} echo() {definition}", until="echo")
    for run in (2, 3):
        waiting.begin(run, 1, until="sleep")
    waiting.answer(1, [])

    assert [waiting.end(run).result for run in (1, 2, 3)] == [[1], [1], [1]]


@pytest.mark.parametrize("failure", ["error('no')", "error(setmetatable({}, {__close = 1}))"])
def test_where_a_file_fails_the_next_run_that_waits_executes_it(waiting: WorkerDriver, failure: str) -> None:
    waiting.start(f"{SLOW} echo() if loads == 1 then {failure} end function run() return loads end", until="echo")
    waiting.begin(2, 1, until="sleep")
    waiting.answer(1, [])
    waiting.wait_until_asked("echo", 2)
    waiting.answer(2, [])

    assert (waiting.end(1).ended, waiting.end(2).result) == (Ended.ERROR, [2])


def test_where_a_load_is_killed_the_next_run_that_waits_takes_over(waiting: WorkerDriver) -> None:
    waiting.start(f"{SLOW} echo() function run() return loads end function on_finally() sleep(1) end", until="echo")
    waiting.begin(2, 1, until="sleep")
    waiting.cancel(1)
    waiting.wait_until_asked("echo", 2)
    waiting.answer(2, [])

    assert (waiting.end(1).ended, waiting.end(2).result) == (Ended.CANCELLED, [2])


def test_a_run_that_waits_for_a_load_can_be_ended(waiting: WorkerDriver) -> None:
    waiting.start(f"{SLOW} echo() function run() return loads end", until="echo")
    waiting.begin(2, 1, until="sleep")
    waiting.cancel(2, Why.TIMEOUT)

    assert waiting.end(2).ended == Ended.TIMEOUT


def test_a_file_without_run_is_executed_by_several_runs_at_a_time(waiting: WorkerDriver) -> None:
    waiting.load(1, f"{SLOW} echo() return loads")
    for run in (1, 2):
        waiting.begin(run, 1, until="echo")
    for run in (1, 2):
        waiting.answer(run, [])

    assert [waiting.end(run).result for run in (1, 2)] == [[2], [2]]


MODULES = {
    b"slow": b"loads = (loads or 0) + 1 store_get() if loads == fails then error('no') end return loads",
    b"left": b"store_get() return require('right') or 1",
    b"right": b"store_get() return require('left') or 1",
}


@pytest.fixture
def modules(waiting: WorkerDriver) -> WorkerDriver:
    """Its modules wait for a store_get."""
    waiting.handlers["_require"] = lambda arguments: [b"lib/%s.lua" % arguments[0], MODULES[arguments[0]]]
    del waiting.handlers["store_get"]
    return waiting


@pytest.mark.parametrize("call", ["require('slow')", "coroutine.wrap(require)('slow')"])
def test_runs_wait_for_the_one_that_is_executing_a_module(modules: WorkerDriver, call: str) -> None:
    modules.start(f"return {call}, loads", until="store_get")
    for run in (2, 3):
        modules.begin(run, 1, until="sleep")
    modules.answer(1, [])

    assert [modules.end(run).result for run in (1, 2, 3)] == [[1, 1]] * 3


@pytest.mark.parametrize("is_killed", [False, True])
def test_where_a_module_fails_the_next_run_that_waits_executes_it(modules: WorkerDriver, is_killed: bool) -> None:
    modules.start(f"fails = {'nil' if is_killed else '1'} return require('slow'), loads", until="store_get")
    modules.begin(2, 1, until="sleep")
    if is_killed:
        modules.cancel(1)
    else:
        modules.answer(1, [])
    modules.wait_until_asked("store_get", 2)
    modules.answer(2, [])

    assert modules.end(1).ended == (Ended.CANCELLED if is_killed else Ended.ERROR)
    assert modules.end(2).result == [2, 2]


def test_two_runs_never_wait_for_each_other(modules: WorkerDriver) -> None:
    modules.load(1, "local ctx = ... return pcall(require, ctx.first)")
    for run, first in ((1, b"left"), (2, b"right")):
        modules.begin(run, 1, ctx={"first": first}, until="store_get")
    modules.answer(1, [])
    modules.wait_until_asked("sleep", 1)
    modules.handlers["store_get"] = lambda _: []
    modules.answer(2, [])

    assert all("requires itself" in modules.end(run).reason for run in (1, 2))


def test_a_monitor_s_files_are_executed_once_where_two_loads_meet(waiting: WorkerDriver) -> None:
    waiting.load(1, "print('hooks') echo()", more=[("jobs/x/defer.lua", "print('defer')")])
    waiting.call(1, 1, "load", until="echo")
    waiting.call(2, 1, "load", until="sleep")
    waiting.answer(1, [])

    assert [waiting.end(run).ended for run in (1, 2)] == [Ended.SUCCESS] * 2
    assert waiting.lines == ["hooks", "defer"]


def test_a_monitor_s_files_are_tried_again_by_the_load_that_waited(waiting: WorkerDriver) -> None:
    waiting.load(1, f"{SLOW} echo() if loads == 1 then error('no') end")
    waiting.call(1, 1, "load", until="echo")
    waiting.call(2, 1, "load", until="sleep")
    waiting.answer(1, [])
    waiting.wait_until_asked("echo", 2)
    waiting.answer(2, [])

    assert [waiting.end(run).ended for run in (1, 2)] == [Ended.ERROR, Ended.SUCCESS]
