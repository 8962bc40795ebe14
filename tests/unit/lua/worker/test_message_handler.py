"""Each message of the daemon: the task that it leaves, and what the daemon is told.  The VMs are real."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form, Why
from spyweb.lua.worker import limits
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.message_handler import MessageHandler
from spyweb.lua.worker.runs import HostedVm, Phase, Registry, Task, WorkerRun
from spyweb.lua.worker.vm import Bytecode
from tests.fakes.worker_threads import PATIENCE, FakeSender

LIMIT = 4 << 20  # bytes
TOO_LARGE = f"jobs/a.lua: does not fit into its memory limit of {LIMIT} bytes"
FILES: wire.Files = [("jobs/a.lua", b"function run() end")]


class Worker:
    def __init__(self, bytecode: Bytecode) -> None:
        self.registry = Registry()
        self.sender = FakeSender()
        self.handler = MessageHandler(self.registry, self.sender, Console(self.sender), bytecode)
        self.handler.receive(wire.InitWorker(["echo"], {}))

    def load(self, vm: int = 1, files: wire.Files = FILES, limit: int = LIMIT) -> str | None:
        """Return why there is no such VM, if there is none."""
        self.handler.receive(wire.LoadVm(vm, files, limit))
        (loaded,) = self.told()
        assert isinstance(loaded, wire.VmLoaded)
        assert loaded.vm == vm
        return loaded.reason

    def begin(self, run: int, vm: int = 1) -> Task | None:
        return self.handler.receive(wire.BeginRun(run, vm, "run", b"", 10_000))

    def begin_fresh(self, run: int, template: int = 5) -> Task | None:
        return self.handler.receive(wire.BeginRun(run, 100 + run, "request", b"", 10_000, template))

    def keep(self, files: wire.Files = FILES, *, spares: int = 0, limit: int = LIMIT) -> None:
        self.handler.receive(wire.KeepTemplate(5, files, limit, spares))

    def cancel(self, run: int, why: Why = Why.CANCELLED) -> Task | None:
        return self.handler.receive(wire.CancelRun(run, int(why)))

    def resume(self, run: int, number: int) -> Task | None:
        return self.handler.receive(wire.ResumeRun(run, number, int(Form.PLAIN), [b"answer"]))

    def told(self) -> Sequence[wire.FromWorker]:
        """What the daemon is told, since it was last asked for."""
        self.sender.flush()
        told = []
        while not self.sender.sent.empty():
            told.append(self.sender.sent.get())
        return told

    def told_end(self) -> wire.RunEnd:
        (end,) = self.told()
        assert isinstance(end, wire.RunEnd)
        return end

    def run_of(self, task: Task | None) -> WorkerRun:
        assert task
        assert task.run
        return task.run


@pytest.fixture
def worker(bytecode: Bytecode) -> Worker:
    return Worker(bytecode)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set as soon as a thread waits for a condition, whose lock it holds until then."""
    is_waiting = threading.Event()
    wait_for = threading.Condition.wait_for

    def wait(condition: threading.Condition, predicate: Callable[[], Any]) -> Any:
        is_waiting.set()
        return wait_for(condition, predicate)

    monkeypatch.setattr(threading.Condition, "wait_for", wait)
    return is_waiting


def asks(run: WorkerRun, number: int) -> None:
    """As after a step that ended in an op: its VM is free."""
    run.phase, run.asks = Phase.BEGUN, number
    run.hosted.busy = False


# VMs


@pytest.mark.parametrize("limit", [LIMIT, 1])
def test_a_vm_is_there_as_soon_as_the_daemon_is_told_so_with_the_least_that_will_do(worker: Worker, limit: int) -> None:
    assert worker.load(limit=limit) is None
    assert worker.begin(7)


@pytest.mark.parametrize(
    ("files", "limit", "reason"),
    [
        ([("jobs/a.lua", b"x = = 1")], LIMIT, "jobs/a.lua:1: unexpected symbol near '='"),
        ([*FILES, ("lib/b.lua", b"\n(")], LIMIT, "lib/b.lua:2: unexpected symbol near <eof>"),
        ([("jobs/a.lua", b"-- " + b"x" * LIMIT)], LIMIT, TOO_LARGE),
    ],
)
def test_what_does_not_compile_is_no_vm_and_the_reason_is_told(
    worker: Worker, files: wire.Files, limit: int, reason: str
) -> None:
    assert worker.load(1, files, limit) == reason
    assert worker.begin(7) is None
    assert not worker.registry.vms


def test_a_reason_is_cut_to_what_the_daemon_accepts(worker: Worker) -> None:
    assert len(worker.load(1, [("jobs/a.lua", b"goto " + b"x" * 100_000)]) or "") == wire.REASON


def test_a_vm_without_runs_is_closed_when_it_is_dropped(worker: Worker) -> None:
    worker.load()
    task = worker.handler.receive(wire.DropVm(1))
    assert task
    assert task.run is None
    assert worker.begin(7) is None


def test_a_ping_is_answered_with_what_all_vms_use_and_which_use_most(worker: Worker) -> None:
    for vm in range(1, wire.MOST_VMS + 3):
        worker.load(vm, [("jobs/a.lua", b"x = '" + b"x" * vm * 10_000 + b"'")])
    worker.begin(7, vm=2)
    worker.handler.receive(wire.DropVm(2))  # which goes with its run

    worker.handler.receive(wire.PingWorker(3))

    (pong,) = worker.told()
    assert isinstance(pong, wire.Pong)
    assert pong.number == 3
    assert [vm for vm, _ in pong.largest] == [*range(wire.MOST_VMS + 2, 2, -1)]
    assert pong.used > sum(size for _, size in pong.largest)


# Runs


def test_a_run_begins_in_its_vm(worker: Worker) -> None:
    worker.load()

    task = worker.begin(7)

    run = worker.run_of(task)
    assert (run.id, run.hosted, run.cpu_limit, run.why) == (7, worker.registry.vms[1], 10.0, 0)
    assert run.hosted.busy


def test_a_run_whose_vm_is_gone_has_not_begun(worker: Worker) -> None:
    assert worker.begin(7) is None
    end = worker.told_end()
    assert (end.run, end.ended, end.discarded) == (7, Ended.UNBEGUN, True)


def test_an_answer_goes_once_to_the_run_that_waits_for_it_and_one_to_another_op_nowhere(worker: Worker) -> None:
    worker.load()
    run = worker.run_of(worker.begin(7))
    asks(run, 3)

    assert (worker.resume(7, 2), worker.resume(7, 4)) == (None, None)
    assert run.asks == 3
    assert not run.hosted.pending
    task = worker.resume(7, 3)
    assert task
    assert (task.run, task.op, task.values) == (run, 3, [b"answer"])
    assert run.asks == 0
    assert worker.resume(7, 3) is None


# The end of a run


def test_a_run_that_is_being_stepped_is_told_by_its_hook(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    armed: list[int] = []
    monkeypatch.setattr(limits, "arm", armed.append)
    worker.load()
    run = worker.run_of(worker.begin(7))
    run.started, run.address, run.phase = 1.0, 0xF00, Phase.BEGUN

    assert worker.cancel(7) is None

    assert armed == [0xF00]
    assert run.why == Why.CANCELLED


def test_the_first_reason_to_end_stands_and_the_run_is_watched_until_it_has_ended(worker: Worker) -> None:
    worker.load()
    run = worker.run_of(worker.begin(7))
    asks(run, 3)
    worker.cancel(7, Why.TIMEOUT)

    assert worker.cancel(7, Why.CANCELLED) is None
    assert (run.why, run.first_why) == (Why.TIMEOUT, Why.TIMEOUT)
    assert 7 in worker.registry.watched


@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_cancel_that_comes_before_its_run_is_not_lost(worker: Worker, is_fresh: bool) -> None:
    worker.keep()
    worker.load()
    assert worker.cancel(7, Why.STOPPED) is None

    begin = worker.begin_fresh if is_fresh else worker.begin
    assert worker.run_of(begin(7)).why == Why.STOPPED
    begin(8)
    assert worker.registry.runs[8].why == 0, "only that one was meant"


def test_a_run_that_waits_for_log_credit_hears_of_its_cancel(worker: Worker, waits: threading.Event) -> None:
    worker.load()
    run = worker.run_of(worker.begin(7))
    run.hosted.stepped, run.started, run.phase = run, 1.0, Phase.BEGUN
    for _ in range(wire.LOG_CREDIT):
        run.hosted.emit(b"info", b"line")
    worker.told()
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting = threading.Thread(target=lambda: heard.put(run.hosted.emit(b"info", b"late")), daemon=True)
    waiting.start()
    assert waits.wait(PATIENCE)

    worker.cancel(7)

    assert heard.get(timeout=PATIENCE) == Why.CANCELLED
    assert not worker.told(), "the line is not sent"


# VMs for a single run


def test_a_fresh_run_has_a_vm_of_its_own_that_goes_with_it(worker: Worker) -> None:
    worker.keep()

    first, second = worker.run_of(worker.begin_fresh(7)), worker.run_of(worker.begin_fresh(8))

    assert first.hosted is not second.hosted
    assert (first.hosted.id, second.hosted.id) == (107, 108)
    assert first.hosted.closing
    assert worker.begin(9, vm=107) is None, "nothing else begins there"


def test_spares_are_made_one_at_a_time_used_first_and_replaced_when_there_is_nothing_else_to_do(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.keep(spares=2)
    for _ in range(5):
        worker.handler.make_spare()
    made, new_vm = list[int](), worker.registry.new_vm

    def make(number: int, *given: Any) -> HostedVm:
        made.append(number)
        return new_vm(number, *given)

    monkeypatch.setattr(worker.registry, "new_vm", make)

    worker.begin_fresh(7)
    worker.begin_fresh(8)
    assert len(made) == 0
    worker.begin_fresh(9)
    assert len(made) == 1
    worker.handler.make_spare()
    assert len(made) == 2
    for _ in range(5):
        worker.handler.make_spare()
    assert len(made) == 3


def test_a_file_of_which_no_vm_can_be_made_is_told_to_whoever_asks_and_not_tried_in_vain(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.keep([("server/init.lua", b"x = = 1")], spares=1)
    worker.handler.make_spare()
    monkeypatch.setattr(worker.registry, "new_vm", None)
    worker.handler.make_spare()
    monkeypatch.undo()

    assert worker.begin_fresh(7) is None
    end = worker.told_end()
    assert (end.run, end.ended) == (7, Ended.ERROR)
    assert end.reason == b"server/init.lua:1: unexpected symbol near '='"


def test_a_template_that_was_dropped_makes_no_vm_any_more(worker: Worker) -> None:
    worker.keep(spares=1)
    worker.handler.make_spare()

    assert worker.handler.receive(wire.DropVm(5)) is None

    assert worker.begin_fresh(7) is None
    assert worker.told_end().ended is Ended.UNBEGUN


def test_a_fresh_run_that_has_overtaken_its_template_waits_for_it(worker: Worker, waits: threading.Event) -> None:
    begun: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    waiting = threading.Thread(target=lambda: begun.put(worker.begin_fresh(7)), daemon=True)
    waiting.start()
    assert waits.wait(PATIENCE)

    worker.keep()

    assert worker.run_of(begun.get(timeout=PATIENCE)).id == 7
