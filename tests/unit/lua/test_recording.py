"""What a recording holds of a run, and of a run that asks for too much."""

from __future__ import annotations

import tracemalloc
from time import perf_counter

from spyweb.lua import wire
from spyweb.lua.recording import ALL_BYTES, OP_BYTES, RUN_BYTES, HeldBytes, Recording
from spyweb.lua.wire import Form, OpCall, PackedOpCall, ResumeRun


def answer(number: int, *values: wire.Scalar, form: Form = Form.PLAIN) -> ResumeRun:
    return ResumeRun(1, number, form, list(values))


def test_an_op_is_noted_with_what_it_was_given_and_answered_and_when_in_its_run() -> None:
    noted = Recording(HeldBytes(), ago_s=60.0)
    noted.note(OpCall(1, 1, "get", [b"k"]), (), 0.0, answer(1, b"v", None), 1)
    noted.note(PackedOpCall(1, 2, "put", wire.pack([{b"a": 1}]), 1), (4, 2), 0.0, answer(2, b"bad", form=Form.RAISE), 3)
    noted.note(OpCall(1, 3, "wait", []), (), perf_counter(), None, 0)

    assert [(op.number, op.name, op.lineage, op.status) for op in noted.ops] == [
        (1, "get", (), "ok"),
        (2, "put", (4, 2), "error"),
        (3, "wait", (), "unanswered"),
    ]
    assert 60 <= noted.ops[2].asked_s < 90
    values = wire.unpack(wire.pack([[op.given, op.answer] for op in noted.ops]))
    assert values == [[[b"k"], [b"v", None]], [[{b"a": 1}], [b"bad"]], [[], None]]


def test_a_run_with_100_000_ops_holds_no_more_than_its_bound() -> None:
    held = HeldBytes()
    noted = Recording(held)
    tracemalloc.start()
    for number in range(100_000):
        noted.note(OpCall(1, number, "get", [b"key"]), (), 0.0, answer(number, b"value"), 5)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(noted.ops) + noted.left_out == 100_000
    assert [op.number for op in noted.ops] == list(range(len(noted.ops))), "the first ones, without a gap"
    assert held.count == noted.held_bytes <= RUN_BYTES
    assert used < 2 * RUN_BYTES
    noted.close()
    assert held.count == 0


def test_a_body_of_50_mb_is_left_out_and_the_op_is_not() -> None:
    noted, body = Recording(HeldBytes()), bytes(50 << 20)
    noted.note(OpCall(1, 1, "http_get", [b"u"]), (), 0.0, answer(1, body), len(body))
    noted.note(PackedOpCall(1, 2, "http_post", body, 1), (), 0.0, answer(2, b"ok"), 2)
    noted.note(OpCall(1, 3, "store_set", [b"k", body]), (), 0.0, answer(3), 0)

    assert [(op.given is None, op.answer is None, op.status) for op in noted.ops] == [
        (False, True, "ok"),
        (True, False, "ok"),
        (True, False, "ok"),
    ]
    assert noted.held_bytes < OP_BYTES


def test_all_runs_together_hold_no_more_than_their_bound() -> None:
    held, body = HeldBytes(), bytes(OP_BYTES)
    runs = [Recording(held) for _ in range(ALL_BYTES // RUN_BYTES + 20)]
    for each in runs:
        for number in range(20):
            each.note(OpCall(1, number, "get", []), (), 0.0, answer(number, body), len(body))

    assert held.count <= ALL_BYTES
    assert runs[-1].left_out == 20
    runs[0].close()
    runs.append(Recording(held))
    runs[-1].note(OpCall(1, 1, "get", []), (), 0.0, answer(1, body), len(body))
    assert runs[-1].ops, "a run that is over makes room"
