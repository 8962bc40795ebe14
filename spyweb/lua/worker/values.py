"""Checks the values that cross between Lua and Python inside a worker; the one place that handles `Any`.

Only scalars cross lupa.  The result of a step comes as a tuple of them and leaves here as a message for the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Protocol

from spyweb.lua import wire
from spyweb.lua.wire import OpCall, PackedOpCall, RunEnd

Function = Callable[..., Any]  # a Lua function, as lupa shows it
Passed = Any  # what Lua passes to a function of ours: a scalar


class Runtime(Protocol):
    """The part of lupa's LuaRuntime that we use; its types are published for older versions only."""

    def execute(self, code: str | bytes, *arguments: object, mode: str | None = None) -> Any: ...

    def get_memory_used(self, total: bool = False) -> int: ...

    def set_max_memory(self, limit: int) -> None: ...


class StepKind(IntEnum):
    """The kinds of result that a step of a run can have."""

    OP = 0  # name, Form, value...
    END = 1  # Ended, reason, traceback, packed result or None, is its VM discarded, or the result as a scalar
    AFTERMATH = 2  # address of a new coroutine, Ended: start it, with a budget of its own
    STARVED = 3  # it ended for lack of memory: give it room and start it, to say where
    SEQUEL = 4  # address of a new coroutine: start it, on the budget of the run
    TURN = 5  # branch, address of its coroutine, has the run no other branch: go on with that one
    WAIT = 6  # all branches wait


_PLAIN = int(wire.Form.PLAIN)
_SCALARS = frozenset({bool, int, float, bytes, str, type(None)})


def op_message(run: int, number: int, result: Sequence[Any], branch: int) -> OpCall | PackedOpCall:
    _, name, form, *passed = result
    if form == _PLAIN:
        return OpCall(run, number, _text(name), passed, branch)
    packed, elements = passed
    return PackedOpCall(run, number, _text(name), packed, elements, branch)


@lru_cache
def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def end_message(run: int, result: Sequence[Any], cpu: float) -> RunEnd:
    _, ended, reason, traceback, packed, discarded, scalar = result
    if scalar is not None:
        packed = wire.pack([scalar])
        packed = packed if len(packed) <= wire.RESULT else None
    cpu_ms = max(0, round(cpu * 1000))
    return RunEnd(run, ended, reason[: wire.REASON], traceback[: wire.TRACEBACK], cpu_ms, packed, discarded)


def for_lua(values: list[Any]) -> tuple[list[object], int]:
    """Return the values in a form that can be pushed, and the bytes of their strings.

    Raises TypeError for other types.
    """
    size = 0
    for index, value in enumerate(values):
        kind = type(value)
        if kind is str:
            values[index] = value = value.encode("utf-8", "surrogateescape")
            size += len(value)
        elif kind is bytes:
            size += len(value)
        elif kind not in _SCALARS:
            raise TypeError(f"a {kind.__name__} can't be pushed")
    return values, size


def size_of(call: OpCall | PackedOpCall) -> int:
    """Return about how many bytes an op takes."""
    if isinstance(call, PackedOpCall):
        return len(call.packed)
    return sum(len(value) for value in call.values if type(value) is bytes)


def address(pointer: bytes) -> int:
    """Return the memory address of a coroutine, given the text of Lua's %p."""
    return int(pointer, 16)
