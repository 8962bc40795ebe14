"""Callbacks for a VM without a worker, and the end of its script."""

from __future__ import annotations

from collections.abc import Callable

from spyweb.lua import wire
from spyweb.lua.wire import Ended
from spyweb.lua.worker.vm import VM, StepKind


class FakeCallbacks:
    def __init__(self) -> None:
        self.reason = 0  # why the run being stepped must end (wire.Why)
        self.lines: list[tuple[bytes, bytes]] = []  # level, text

    def why(self) -> int:
        return self.reason

    def overdue_branch(self, index: int) -> int:
        return 0

    def branch_began(self, branch: int, parent: int, timeout_ms: int) -> None: ...

    def branch_ended(self, branch: int, number: int) -> None: ...

    def read(self, what: int, ask: Callable[[], wire.Read]) -> wire.Read:
        return ask()

    def emit(self, level: bytes, text: bytes) -> int:
        self.lines.append((level, text))
        return 0


def run_to_end(vm: VM, source: str) -> tuple[Ended, bytes, bytes]:
    """Run a script that calls no op; return the outcome, its reason, and its traceback."""
    assert vm.compile(b"x.lua", source.encode()) is None
    vm.begin(1, "run", wire.pack([{"job": "x"}, False]))
    told = vm.start(1)
    while told[0] == StepKind.SEQUEL:
        told = vm.start(1)
    assert told[0] == StepKind.END, told
    return Ended(told[1]), told[2], told[3]  # type: ignore[arg-type,return-value]
