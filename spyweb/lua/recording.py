"""The record of what a run asks for and is answered, as it is noted while the run lasts, and as it is stored.

What is over a bound, of an op, of a run or of all runs together, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Raw, Struct

from spyweb.lua import wire
from spyweb.lua.wire import Form, OpCall, PackedOpCall, ResumeRun

OP_BYTES = 65_536  # of the arguments of an op, and of its answer
RUN_BYTES = 1 << 20
ALL_BYTES = 64 << 20  # of all runs under way
OP_COST = 512  # bytes that an op takes besides
_, PACKED, RAISE, RAISE_PACKED = map(int, Form)


class RecordedOp(Struct, frozen=True, gc=False):
    number: int  # in the order in which the run asked
    name: str
    lineage: tuple[int, ...]  # of the branch that asked
    asked_s: float  # after the run began
    took_s: float
    given: Any  # the list of its arguments; None: too large
    answer: Any  # the list of its results, or of its error; None: too large, or there was none
    status: str  # "ok", "error", or "unanswered": the run or its branch ended meanwhile


class RunRecord(Struct, frozen=True, kw_only=True):
    procedure: str
    arguments: Any  # a list
    variables: Mapping[str, str]  # what env_get showed
    engine: Mapping[str, object]  # its table
    reads: wire.Reads
    ops: Sequence[RecordedOp]  # in the order of their answers
    left_out: int  # ops after these


def decode_record(data: bytes) -> RunRecord:
    return msgspec.convert(wire.unpack(data), RunRecord)


class HeldBytes:
    count = 0  # by all recordings of runs under way


class Recording:
    def __init__(self, of_all: HeldBytes, ago_s: float = 0) -> None:
        """Take how long ago the run began."""
        self.ops: list[RecordedOp] = []
        self.left_out = 0
        self.reads: wire.Reads = {}
        self.held_bytes = 0
        self._of_all = of_all
        self._began = perf_counter() - ago_s

    def note(
        self, call: OpCall | PackedOpCall, lineage: tuple[int, ...], asked: float, end: ResumeRun | None, size: int
    ) -> None:
        """Note an op as it is answered, with the size of the answer; without one, it was dropped."""
        ended = perf_counter()
        given: object
        answer: object = None
        if isinstance(call, PackedOpCall):
            given, given_size = Raw(call.packed), len(call.packed)
        else:
            given, given_size = call.values, 0
            for value in call.values:  # a generator would take longer than all else here
                if type(value) is bytes:
                    given_size += len(value)
        if end is not None:
            answer = Raw(end.values[0]) if end.form in (PACKED, RAISE_PACKED) else end.values  # type: ignore[arg-type]
        if given_size > OP_BYTES:
            given, given_size = None, 0
        if size > OP_BYTES:
            answer, size = None, 0
        cost = OP_COST + given_size + size
        if self.left_out or self.held_bytes + cost > RUN_BYTES or self._of_all.count + cost > ALL_BYTES:
            self.left_out += 1
            return
        self.held_bytes += cost
        self._of_all.count += cost
        status = "unanswered" if end is None else "error" if end.form >= RAISE else "ok"
        asked_s, took_s = asked - self._began, ended - asked
        self.ops.append(RecordedOp(call.number, call.name, lineage, asked_s, took_s, given, answer, status))

    def close(self) -> None:
        """Note that the run is over, so that others have the room."""
        self._of_all.count -= self.held_bytes
