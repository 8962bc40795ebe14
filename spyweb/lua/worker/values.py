"""What crosses between Lua and Python inside a worker, checked: the one place where `Any` lives.

Only scalars cross lupa.  What a step tells comes as a tuple of them and leaves here as a message for the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, TypeGuard

from spyweb.lua import wire

Scalar = bool | int | float | bytes | str | None
Function = Callable[..., Any]  # a Lua function, as lupa shows it


class Told(IntEnum):
    """What a step of a run tells."""

    OP = 0  # name, Form, value...
    END = 1  # Ended, reason, traceback, packed result or None, is its VM discarded
    AFTERMATH = 2  # address of a new coroutine, Ended: start it, with a budget of its own


_OP = int(wire.FromWorker.OP)
_END = int(wire.FromWorker.END)
_SCALARS = frozenset({bool, int, float, bytes, str, type(None)})


def is_told(result: Any) -> TypeGuard[tuple[Any, ...]]:
    return type(result) is tuple and len(result) > 2


def op_message(run: int, told: Sequence[Any]) -> list[object]:
    return [_OP, run, told[1].decode("utf-8", "replace"), *told[2:]]


def end_message(run: int, told: Sequence[Any], cpu: float) -> list[object]:
    _, ended, reason, traceback, packed, discarded = told
    return [_END, run, ended, reason, traceback, round(cpu * 1000), packed, discarded]


def weight(values: Sequence[object]) -> int:
    """How many bytes of strings these are: what counts towards memory, and what makes a message big."""
    total = 0
    for value in values:
        if type(value) is bytes or type(value) is str:
            total += len(value)
    return total


def are_scalars(values: Sequence[object]) -> bool:
    return all(type(value) in _SCALARS for value in values)


def address(pointer: bytes) -> int:
    """Where a coroutine lies in memory, from what Lua's %p shows."""
    return int(pointer, 16)
