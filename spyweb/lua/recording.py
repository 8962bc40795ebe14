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
OP_COST = 512  # bytes that an op takes besides
PACKED = (Form.PACKED, Form.RAISE_PACKED)

Asked = OpCall | PackedOpCall
TOO_LARGE: list[wire.Scalar] = []  # in place of values


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
    engine: Mapping[str, object]  # its table
    reads: wire.Reads
    ops: Sequence[RecordedOp]  # in the order of their answers
    left_out: int  # ops after these


decode_record = msgspec.msgpack.Decoder(RunRecord).decode


class HeldBytes:
    count = 0  # by all recordings of runs under way


class Recording:
    def __init__(self, of_all: HeldBytes) -> None:
        self.left_out = 0
        self.reads: wire.Reads = {}
        self.held_bytes = 0
        self._of_all = of_all
        self._began = perf_counter()
        self._noted: list[tuple[Asked, tuple[int, ...], float, float, ResumeRun | None]] = []

    def note(self, call: Asked, lineage: tuple[int, ...], asked: float, end: ResumeRun | None, size: int) -> None:
        """Note an op as it is answered, with the size of the answer; without one, it was dropped."""
        given = len(call.packed) if isinstance(call, PackedOpCall) else size_of(call.values)
        if given > OP_BYTES:
            call, given = OpCall(call.run, call.number, call.name, TOO_LARGE), 0
        if end is not None and size > OP_BYTES:
            end, size = ResumeRun(end.run, end.number, end.form, TOO_LARGE), 0
        cost = OP_COST + given + size
        if self.left_out or self.held_bytes + cost > RUN_BYTES or self._of_all.count + cost > ALL_BYTES:
            self.left_out += 1
            return
        self.held_bytes += cost
        self._of_all.count += cost
        self._noted.append((call, lineage, asked, perf_counter(), end))

    def close(self) -> None:
        """Note that the run is over, so that others have the room."""
        self._of_all.count -= self.held_bytes

    @property
    def ops(self) -> list[RecordedOp]:
        return [self._recorded(*noted) for noted in self._noted]

    def _recorded(
        self, call: Asked, lineage: tuple[int, ...], asked: float, ended: float, end: ResumeRun | None
    ) -> RecordedOp:
        is_error, times = end is not None and end.form >= Form.RAISE, (asked - self._began, ended - asked)
        given = call.packed if isinstance(call, PackedOpCall) else packed(call.values, Form.PLAIN)
        answer = None if end is None else packed(end.values, end.form)
        return RecordedOp(call.number, call.name, lineage, *times, given, answer, is_error, is_answered=end is not None)


def size_of(values: Sequence[wire.Scalar]) -> int:
    size = 0
    for value in values:  # a generator would take longer than all else here
        if type(value) is bytes:
            size += len(value)
    return size


def packed(values: list[wire.Scalar], form: int) -> bytes | None:
    if values is TOO_LARGE:
        return None
    return cast("bytes", values[0]) if form in PACKED else wire.pack(values)
