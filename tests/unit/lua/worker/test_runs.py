from __future__ import annotations

from spyweb.lua.wire import FromWorker, Why
from spyweb.lua.worker.runs import HostedVm, Registry


def silent(hosted: HostedVm, level: bytes, text: bytes) -> int:
    return 0


def unheard(message: FromWorker) -> None: ...


def test_an_early_cancel_is_remembered_once_and_only_the_latest_ones_are() -> None:
    registry = Registry()
    for run in range(2000):
        registry.note_early(run, Why.CANCELLED)

    assert [registry.take_early(run) for run in (0, 1999, 1999)] == [0, Why.CANCELLED, 0]


def test_a_retired_vm_takes_no_run_and_is_known_until_closed() -> None:
    registry, hosted = Registry(), HostedVm(3, "jobs/x.lua", silent, unheard)
    registry.vms[3] = hosted
    registry.retire(hosted)

    assert (registry.vms, registry.closing, hosted.closing) == ({}, {hosted}, True)


def test_a_script_with_long_steps_has_its_next_vm_in_the_slow_lane_too_until_it_is_found_light() -> None:
    registry = Registry()
    hosted = registry.new_vm(1, "jobs/hog.lua", silent, unheard)
    registry.set_heavy(hosted, heavy=True)
    assert registry.new_vm(2, "jobs/hog.lua", silent, unheard).heavy
    assert not registry.new_vm(3, "jobs/other.lua", silent, unheard).heavy

    registry.set_heavy(hosted, heavy=False)
    assert (hosted.heavy, registry.new_vm(2, "jobs/hog.lua", silent, unheard).heavy) == (False, False)


def test_only_the_latest_heavy_scripts_are_remembered() -> None:
    registry = Registry()
    for number in range(2000):
        registry.set_heavy(registry.new_vm(number, f"jobs/{number}.lua", silent, unheard), heavy=True)

    heavy = [registry.new_vm(1, f"jobs/{number}.lua", silent, unheard).heavy for number in (0, 1999)]
    assert heavy == [False, True]
