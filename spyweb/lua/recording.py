"""The record of what a run asks for and is answered, as it is noted while the run lasts, and as it is stored.

What is over a bound, of an op, of a run or of all runs together, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import cast

import msgspec
from msgspec import Struct

from spyweb.lua import wire
from spyweb.lua.wire import Form, OpCall, PackedOpCall, ResumeRun

OP_BYTES = 65_536  # of the arguments of an op, and of its answer
RUN_BYTES = 1 << 20
ALL_BYTES = 64 << 20  # of all runs under way
OP_COST = 256  # bytes that an op takes besides
PACKED = (Form.PACKED, Form.RAISE_PACKED)


class RecordedOp(Struct, frozen=True):
    number: int  # in the order in which the run asked
    name: str
    lineage: tuple[int, ...]  # of the branch that asked
    asked_s: float  # after the run began
    took_s: float
    given: bytes | None  # its arguments, packed; None: too large
    answer: bytes | None  # its results, packed, or its error; None: too large, or there was none
    is_error: bool
    is_answered: bool  # else the run or its branch ended meanwhile


class RunRecord(Struct, frozen=True, kw_only=True):
    procedure: str
    arguments: bytes  # packed
    variables: Mapping[str, str]  # what env_get showed
    reads: wire.Reads
    ops: Sequence[RecordedOp]  # in the order of their answers
    left_out: int  # ops after these


decode_record = msgspec.msgpack.Decoder(RunRecord).decode


class HeldBytes:
    count = 0  # by all recordings of runs under way


class Recording:
    def __init__(self, of_all: HeldBytes) -> None:
        self.ops: list[RecordedOp] = []
        self.left_out = 0
        self.reads: wire.Reads = {}
        self.held_bytes = 0
        self._of_all = of_all
        self._began = perf_counter()

    def note(self, call: OpCall | PackedOpCall, lineage: tuple[int, ...], asked: float, end: ResumeRun | None) -> None:
        """Note an op as it is answered; without an answer, it was dropped."""
        given = kept([call.packed], is_packed=True) if isinstance(call, PackedOpCall) else kept(call.values)
        answer = None if end is None else kept(end.values, is_packed=end.form in PACKED)
        cost = OP_COST + len(given or b"") + len(answer or b"")
        if self.left_out or self.held_bytes + cost > RUN_BYTES or self._of_all.count + cost > ALL_BYTES:
            self.left_out += 1
            return
        self.held_bytes += cost
        self._of_all.count += cost
        times, is_error = (asked - self._began, perf_counter() - asked), end is not None and end.form >= Form.RAISE
        self.ops.append(
            RecordedOp(call.number, call.name, lineage, *times, given, answer, is_error, is_answered=end is not None)
        )

    def close(self) -> None:
        """Note that the run is over, so that others have the room."""
        self._of_all.count -= self.held_bytes


def kept(values: Sequence[wire.Scalar], *, is_packed: bool = False) -> bytes | None:
    if sum(len(value) for value in values if isinstance(value, bytes)) > OP_BYTES:
        return None
    return cast("bytes", values[0]) if is_packed else wire.pack(values)
