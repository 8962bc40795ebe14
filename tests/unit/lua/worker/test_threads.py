from __future__ import annotations

import os
from collections.abc import Iterator
from threading import get_ident

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import OVER_TIMEOUT, Ended
from spyweb.lua.worker import limits
from spyweb.lua.worker.runs import Closing, Registry
from spyweb.lua.worker.threads import ThreadSlots, has_endless_closing
from tests.fakes.worker_threads import AFTERMATH, OP, WAIT, HeldVm, HeldWorker, end, new_slots, turn


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """How much each thread has used."""
    used = {get_ident(): 100.0}
    monkeypatch.setattr(limits, "cpu_since", used.__getitem__)
    return used


@pytest.mark.parametrize(("size", "allowed"), [(0, limits.CLOSING), (10 * limits.CLOSING_RATE, limits.CLOSING + 9)])
def test_a_vm_that_is_being_closed_for_too_long_is_reported_once_and_a_large_one_may_take_longer(
    cpu: dict[int, float], size: int, allowed: float
) -> None:
    registry = Registry()
    cpu[get_ident()] = 3600.0  # what the thread used before does not count
    registry.closings[get_ident()] = Closing(size)

    assert not has_endless_closing(registry)
    cpu[get_ident()] += allowed
    assert not has_endless_closing(registry)
    cpu[get_ident()] += 0.1 if size == 0 else 2
    assert has_endless_closing(registry)
    assert not has_endless_closing(registry)


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = os.memfd_create("slots")
    os.ftruncate(descriptor, wire.SLOT_BYTES)
    yield descriptor
    os.close(descriptor)


def test_what_a_thread_writes_is_seen_in_the_shared_memory_until_its_slot_is_given_back(descriptor: int) -> None:
    slots = ThreadSlots(descriptor)
    slot = slots.take()
    slots.runs[slot] = 77
    assert memoryview(os.pread(descriptor, wire.SLOT_BYTES, 0)).cast("Q").tolist() == [77] + [0] * (2 * wire.SLOTS - 1)

    slots.give_back(slot)
    assert slots.runs[slot] == 0
    assert slots.take() == slot


def test_more_threads_than_slots_share_the_last_one(descriptor: int) -> None:
    slots = ThreadSlots(descriptor)
    taken = [slots.take() for _ in range(wire.SLOTS + 2)]

    assert taken[-2:] == [wire.SLOTS - 1] * 2


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldWorker]:
    slots = new_slots()
    worker = HeldWorker(monkeypatch, slots)
    yield worker
    worker.close()
    os.close(slots)


def begin_long_step(worker: HeldWorker, *messages: wire.ToWorker) -> None:
    """Say these, the first of which begins run 1 in VM 1: while it is stepped, another thread leads."""
    worker.say(*messages)
    worker.vms[1].wait_for_call("start 1")
    worker.look()


def test_a_leader_in_a_long_step_is_replaced_and_its_run_ends_where_it_began(worker: HeldWorker) -> None:
    begin_long_step(worker, worker.begin(1, 1))
    worker.say(worker.begin(2, 2))
    worker.vms[2].wait_for_call("start 2")
    assert sorted(worker.stepped_runs()) == [1, 2]

    worker.vms[2].go_on(end())
    assert worker.hear() == "end 2 success"
    worker.vms[1].go_on(end())
    assert worker.hear() == "end 1 success"

    worker.threads[0].join(10)
    assert not worker.threads[0].is_alive()
    assert worker.stepped_runs() == []


def test_the_rest_of_a_batch_is_done_by_whoever_leads_next_and_done_once(worker: HeldWorker) -> None:
    begin_long_step(worker, worker.begin(1, 1), worker.begin(2, 2), worker.begin(3, 2))
    worker.vms[2].wait_for_call("start 2")
    worker.vms[1].go_on(end())
    worker.vms[2].go_on(end())
    worker.vms[2].answer("start 3", end())

    assert sorted(worker.hear() for _ in range(3)) == ["end 1 success", "end 2 success", "end 3 success"]
    assert (worker.vms[1].story, worker.vms[2].story) == (["start 1"], ["start 2", "start 3"])


def test_what_waits_for_the_vm_of_a_replaced_leader_is_done_after_its_step(worker: HeldWorker) -> None:
    begin_long_step(worker, worker.begin(1, 1), worker.begin(2, 1))
    worker.tell()  # by the new leader, which has left the second run where it must wait
    assert worker.vms[1].story == ["start 1"]

    worker.vms[1].go_on(end())
    worker.vms[1].answer("start 2", end())
    assert [worker.hear(), worker.hear()] == ["end 1 success", "end 2 success"]


def test_what_a_replaced_leader_had_to_say_leaves_before_its_step_is_over(worker: HeldWorker) -> None:
    worker.say(worker.begin(1, 1), worker.begin(2, 2))
    worker.vms[1].answer("start 1", OP)
    worker.vms[2].wait_for_call("start 2")
    worker.look()

    assert worker.hear() == "op 1"
    worker.vms[2].go_on(end())
    assert worker.hear() == "end 2 success"


def test_a_run_that_is_cancelled_while_it_waits_for_an_op_never_sees_the_answer(worker: HeldWorker) -> None:
    worker.say(worker.begin(1, 1))
    worker.vms[1].answer("start 1", OP)
    assert worker.hear() == "op 1"

    worker.say(worker.cancel(1), worker.resume(1))
    worker.vms[1].answer("kill 1 cancelled", end(Ended.CANCELLED))
    assert worker.hear() == "end 1 cancelled"
    worker.vms[1].wait_for_call("close")  # a killed run takes its VM with it
    worker.vms[1].go_on()
    assert worker.vms[1].story == ["start 1", "kill 1 cancelled", "close"]


def cancel_behind_another_run(worker: HeldWorker) -> None:
    """Answer a run and cancel it while another one is in its VM."""
    worker.say(worker.begin(1, 1))
    worker.vms[1].answer("start 1", OP)
    assert worker.hear() == "op 1"
    worker.say(worker.begin(2, 1))
    worker.vms[1].wait_for_call("start 2")
    worker.look()
    worker.tell(worker.resume(1), worker.cancel(1))


def test_a_cancel_that_overtakes_an_answer_waiting_behind_another_run_ends_the_run_once(worker: HeldWorker) -> None:
    cancel_behind_another_run(worker)
    worker.vms[1].go_on(OP)
    assert worker.hear() == "op 2"
    worker.vms[1].answer("kill 1 cancelled", end(Ended.CANCELLED))
    assert worker.hear() == "end 1 cancelled"
    worker.say(worker.resume(2))
    worker.vms[1].answer("step 2 1", end())
    assert worker.hear() == "end 2 success"
    worker.vms[1].answer("close")
    assert worker.vms[1].story == ["start 1", "start 2", "kill 1 cancelled", "step 2 1", "close"]


def test_a_cancel_that_waited_behind_the_end_it_caused_does_not_end_what_follows(worker: HeldWorker) -> None:
    cancel_behind_another_run(worker)
    worker.vms[1].go_on(end())
    assert worker.hear() == "end 2 success"

    worker.vms[1].answer("kill 1 cancelled", AFTERMATH)
    worker.vms[1].answer("start 1", OP)  # of its on_error
    assert worker.hear() == "op 1"
    worker.say(worker.resume(1), worker.resume(1, op=2))  # the first is an answer to what it has given up
    worker.vms[1].answer("step 1 2", end(Ended.CANCELLED))
    assert worker.hear() == "end 1 cancelled"
    worker.vms[1].answer("close")
    assert worker.vms[1].story == ["start 1", "start 2", "kill 1 cancelled", "start 1", "step 1 2", "close"]


def test_an_op_is_not_sent_of_a_run_that_was_cancelled_before_it_yielded(worker: HeldWorker) -> None:
    begin_long_step(worker, worker.begin(1, 1))
    worker.tell(worker.cancel(1))

    worker.vms[1].go_on(OP)
    worker.vms[1].answer("kill 1 cancelled", end(Ended.CANCELLED))
    assert worker.hear() == "end 1 cancelled"


def test_a_vm_that_is_dropped_while_a_run_is_in_it_is_closed_after_that_run(worker: HeldWorker) -> None:
    begin_long_step(worker, worker.begin(1, 1))
    worker.say(worker.drop(1), worker.begin(2, 1), worker.ping())
    assert [worker.hear(), worker.hear()] == ["end 2 unbegun", "pong 200 bytes"]
    assert worker.vms[1].story == ["start 1"]

    worker.vms[1].go_on(OP)  # its run goes on, although the VM takes no other
    assert worker.hear() == "op 1"
    worker.say(worker.resume(1))
    worker.vms[1].answer("step 1 1", end())
    assert worker.hear() == "end 1 success"
    worker.vms[1].answer("close")
    assert worker.vms[1].story == ["start 1", "step 1 1", "close"]


def test_what_is_said_of_a_vm_that_is_being_closed_changes_nothing(worker: HeldWorker) -> None:
    worker.vms[1].size = limits.LARGE + 1  # a helper closes it
    worker.say(worker.drop(1))
    worker.vms[1].wait_for_call("close")
    worker.say(worker.drop(1), worker.begin(1, 1), worker.resume(1), worker.cancel(1), worker.ping())

    assert [worker.hear(), worker.hear()] == ["end 1 unbegun", f"pong {limits.LARGE + 101} bytes"]  # it still counts
    worker.vms[1].go_on()
    worker.say(worker.begin(2, 2))
    worker.vms[2].answer("start 2", end())
    assert worker.hear() == "end 2 success"
    assert worker.vms[1].story == ["close"]


def test_a_run_that_does_not_heed_its_limit_is_reported_once_and_holds_up_no_other(
    worker: HeldWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATIENCE", -1.0)
    worker.say(worker.begin(1, 1, cpu_ms=-1))
    worker.vms[1].wait_for_call("start 1")
    worker.look()  # the leader is replaced
    worker.look()  # the run is over its limit, and told to end
    worker.look()  # it has not ended
    worker.look()  # that is sent
    assert worker.hear() == "stuck 1 cpu"
    worker.look()
    worker.say(worker.begin(2, 2))
    worker.vms[2].answer("start 2", end())
    assert worker.hear() == "end 2 success"
    assert worker.heard_nothing()


# Branches
def launch(worker: HeldWorker) -> HeldVm:
    """Begin a run whose branches 1 and 2 wait for their ops, which have these numbers."""
    vm = worker.vms[1]
    worker.say(worker.begin(1, 1))
    for branch, call in ((1, "start 1"), (2, "next 1 1")):
        vm.answer(call, turn(branch))
        vm.answer("start 1", OP)
    vm.answer("next 1 2", WAIT)
    assert [worker.hear(), worker.hear()] == ["op 1.1", "op 1.2"]
    return vm


def finish(worker: HeldWorker, vm: HeldVm) -> None:
    """Let the step under way end the last branch, and the run after it."""
    vm.go_on(turn(0, is_alone=True))
    vm.answer("start 1", end())
    assert worker.hear() == "end 1 success"


def test_answers_to_branches_that_come_while_one_is_stepped_have_their_turn_after_it(worker: HeldWorker) -> None:
    vm = launch(worker)
    worker.say(worker.resume(1, 2))
    vm.wait_for_call("turn 1 2")
    worker.look()
    worker.tell(worker.resume(1, 1))

    vm.go_on(turn(2))
    vm.answer("step 1 2", WAIT)
    vm.answer("turn 1 1", turn(1))
    vm.wait_for_call("step 1 1")
    finish(worker, vm)


def test_an_answer_that_its_branch_no_longer_waits_for_steps_nobody(worker: HeldWorker) -> None:
    vm = launch(worker)
    worker.say(worker.resume(1, 1))
    vm.answer("turn 1 1", WAIT)

    worker.say(worker.resume(1, 2))
    vm.answer("turn 1 2", turn(2))
    vm.wait_for_call("step 1 2")
    finish(worker, vm)


def test_the_time_of_a_branch_that_waits_is_up(worker: HeldWorker) -> None:
    vm = launch(worker)
    worker.say(worker.end_branch(1, 1))

    vm.wait_for_call("next 1 0")
    assert worker.registry.vms[1].overdue_branch(1) == 1
    assert (worker.registry.vms[1].overdue_branch(0), worker.registry.vms[1].overdue_branch(0)) == (1, 0)
    finish(worker, vm)


def test_the_time_of_a_branch_is_up_in_the_very_step_after_which_all_wait(worker: HeldWorker) -> None:
    """Else it would be ended at the next answer, which may never come."""
    vm = launch(worker)
    worker.say(worker.resume(1, 2))
    vm.answer("turn 1 2", turn(2))
    vm.wait_for_call("step 1 2")
    worker.look()
    worker.tell(worker.end_branch(1, 1))
    assert worker.registry.vms[1].why() == OVER_TIMEOUT

    vm.go_on(WAIT)
    vm.wait_for_call("next 1 0")
    assert worker.registry.vms[1].overdue_branch(0) == 1
    finish(worker, vm)


def test_a_cancel_in_the_very_step_after_which_all_wait_ends_the_run(worker: HeldWorker) -> None:
    vm = launch(worker)
    worker.say(worker.resume(1, 2))
    vm.wait_for_call("turn 1 2")
    worker.look()
    worker.tell(worker.cancel(1), worker.end_branch(1, 1))

    vm.go_on(WAIT)
    vm.answer("kill 1 cancelled", end(Ended.CANCELLED))
    assert worker.hear() == "end 1 cancelled"


def test_what_is_said_of_branches_to_a_run_that_has_none_does_nothing(worker: HeldWorker) -> None:
    vm = launch(worker)
    worker.say(worker.resume(1, 2))
    vm.answer("turn 1 2", turn(0, is_alone=True))
    vm.answer("step 1 2", OP)
    assert worker.hear() == "op 1"

    worker.say(worker.end_branch(1, 1), worker.resume(1, 1), worker.end_branch(9, 1), worker.resume(1, 3))
    vm.answer("step 1 3", end())
    assert worker.hear() == "end 1 success"
