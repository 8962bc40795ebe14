from __future__ import annotations

import pytest

from spyweb.lua import wire
from spyweb.lua.wire import Ended, FromWorker, OpCall, RunEnd
from spyweb.lua.worker.executor import Executor, ThreadState
from spyweb.lua.worker.runs import Registry, Task, WorkerRun
from spyweb.lua.worker.vm import VM, Bytecode, init_of
from tests.fakes.inline_worker import TellingSender


def run_to_its_end(bytecode: Bytecode, source: bytes) -> list[FromWorker]:
    """What a script that calls no op, or none that leaves, has its worker say."""
    sent: list[FromWorker] = []
    registry, sender = Registry(), TellingSender(lambda message, _is_bulk: sent.append(message))
    hosted = registry.new_vm(1, "jobs/x.lua", lambda *_: 0, sender.post)
    init = init_of({"ops": ["store_set"], "engine": {}})
    hosted.vm = VM(bytecode, init, 4 << 20, hosted, main_count=0)
    assert hosted.vm.compile(b"jobs/x.lua", source) is None
    run = WorkerRun(id=7, hosted=hosted, procedure="run", arguments=wire.pack([{"job": "x"}, False]), cpu_limit=10.0)
    executor = Executor(registry, sender, memoryview(bytearray(wire.SLOT_BYTES)).cast("Q"))
    executor.perform(Task(hosted, run), ThreadState(ident=0, slot=0, cpu=0.0))
    return sent


def test_what_an_op_is_passed_and_is_too_large_for_a_message_is_an_error_that_the_script_may_catch(
    bytecode: Bytecode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LARGEST", 1000)

    (end,) = run_to_its_end(bytecode, b"\nstore_set('k', ('x'):rep(1000))")
    assert isinstance(end, RunEnd)
    assert (end.run, end.ended) == (7, Ended.ERROR)
    assert end.reason == b"jobs/x.lua:2: store_set: 1001 bytes can't be handed over at once, 1000 at most"

    (op,) = run_to_its_end(bytecode, b"assert(not pcall(store_set, 'k', ('x'):rep(1000))) store_set('k', 'x')")
    assert op == OpCall(7, 1, "store_set", [b"k", b"x"])


def test_what_a_script_chose_of_a_failure_is_cut(bytecode: Bytecode) -> None:
    source = b"local t = {} t." + b"x" * 100_000 + b" = function() local y = nil + 1 end t." + b"x" * 100_000 + b"()"
    (end,) = run_to_its_end(bytecode, source)

    assert isinstance(end, RunEnd)
    assert len(end.reason) <= wire.REASON
    assert 0 < len(end.traceback) <= wire.TRACEBACK
