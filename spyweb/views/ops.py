"""The recorded ops of a run, as people and programs see them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.json import encode

from spyweb.errors import Absent
from spyweb.lua import wire
from spyweb.lua.endings import as_text, first_value, show_value
from spyweb.lua.recording import RecordedOp, decode_record
from spyweb.model import Run, RunId
from spyweb.words import cut

if TYPE_CHECKING:
    from spyweb.store.sqlite.store import Store

WHICH_HAVE = "the last 5 failed runs of a script job have one, unless its `record` says otherwise"
SHOWN = 200  # characters of a call


class OpView(Struct, frozen=True, kw_only=True):
    number: int  # in the order in which the run asked
    call: str  # with its arguments, shortened
    branch: int  # that asked; 0: the run itself
    start_ms: float  # after the run began
    took_ms: float
    status: str  # "ok", "error", or "unanswered": the run or its branch ended meanwhile
    error: str = ""


class RunOps(Struct, frozen=True, kw_only=True):
    run: Run
    ops: Sequence[OpView]  # in the order of their answers
    left_out: int  # ops after these
    record: bytes | None = None  # by which the run can be replayed


async def recorded_ops(store: Store, number: RunId) -> RunOps:
    """Return the recorded ops of a run, with its record.  Raises Absent where there are none."""
    run, data = await store.past_runs.find(number), await store.recordings.find(number)
    if run is None:
        raise Absent(f"there is no run {number}: it may have been pruned")
    if data is None:
        raise Absent(f"run {number} of {run.job} has no record: {WHICH_HAVE}")
    return await asyncio.to_thread(view_ops, run, data)


def view_ops(run: Run, data: bytes) -> RunOps:
    record = decode_record(data)
    return RunOps(run=run, ops=[*map(view_op, record.ops)], left_out=record.left_out, record=data)


def view_op(op: RecordedOp) -> OpView:
    return OpView(
        number=op.number,
        call=call_text(op.name, op.given),
        branch=op.lineage[0] if op.lineage else 0,
        start_ms=round(op.asked_s * 1000, 3),
        took_ms=round(op.took_s * 1000, 3),
        status="error" if op.is_error else "ok" if op.is_answered else "unanswered",
        error=cut(as_text(first_value(op.answer)), SHOWN) if op.is_error else "",
    )


def call_text(name: str, given: bytes | None) -> str:
    """Return an op as its call: `http_get("https://…")`."""
    values = (
        ["…"] if given is None else [encode(show_value(value), order="sorted").decode() for value in wire.unpack(given)]
    )
    return cut(f"{name}({', '.join(values)})", SHOWN)
