"""`return skip(reason)`: the run decided that there was nothing to do, in a real worker."""

from __future__ import annotations

import pytest

from spyweb.lua.wire import Ended
from tests.fakes.worker_driver import WorkerDriver

HOOKS = """
function on_success() log("success") end
function on_error(err) log("error " .. err) end
function on_finally() log("finally") end
"""


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
    worker.start(HOOKS + "function run() defer(function() log('deferred') end) return skip('no') end")
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


def test_it_takes_a_text(worker: WorkerDriver) -> None:
    worker.start("function run() return skip({}) end")
    assert worker.end(1).reason == "jobs/x.lua:1: bad argument #1 to 'skip' (string expected, got table)"


def test_a_hook_can_not_skip_what_has_ended(worker: WorkerDriver) -> None:
    worker.start("function on_success() skip('too late') end function run() end")
    assert worker.end(1).ended == Ended.SUCCESS
    assert b"skip is for the run of a job" in worker.logs[0][2]
