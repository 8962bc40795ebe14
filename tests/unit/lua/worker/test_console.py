"""A line costs a credit; who has none waits, until credit comes or the run is to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spyweb.lua import wire
from spyweb.lua.worker.console import Console
from spyweb.lua.worker.link import Sender
from spyweb.lua.worker.runs import HostedVm

RESERVE = wire.LOG_CREDIT // 4


class FakeSender(Sender):
    def __init__(self) -> None:
        self.posted: list[object] = []
        self.flushes = 0
        self.flushed = float("inf")  # just now, for ever
        self.on_flush: Callable[[], object] = int

    def post(self, message: Any) -> None:
        self.posted.append(message)

    def flush(self) -> None:
        self.flushes += 1
        self.on_flush()


def hosting(*, heavy: bool = False, why: int = 0) -> HostedVm:
    stepped = SimpleNamespace(id=7, why=why, waited=0.0)
    return cast(HostedVm, SimpleNamespace(stepped=stepped, heavy=heavy))


@pytest.fixture
def sender() -> FakeSender:
    return FakeSender()


@pytest.fixture
def console(sender: FakeSender) -> Console:
    return Console(sender)


def emit(console: Console, vm: HostedVm, times: int) -> None:
    for _ in range(times):
        console.emit(vm, b"info", b"line")


def test_a_line_goes_out_cut_to_its_limit(console: Console, sender: FakeSender) -> None:
    console.emit(hosting(), b"warn", b"x" * 2 * (wire.LOG_LINE + wire.LOG_MARK))
    (line,) = cast(list[wire.ScriptLog], sender.posted)
    assert (line.run, line.level, len(line.text)) == (7, "warn", wire.LOG_LINE + wire.LOG_MARK)


def test_a_vm_that_runs_nothing_logs_nothing(console: Console, sender: FakeSender) -> None:
    assert console.emit(cast(HostedVm, SimpleNamespace(stepped=None, heavy=False)), b"info", b"line") == 0
    assert sender.posted == []


def test_a_flood_of_a_slow_vm_leaves_the_reserve_to_the_others(console: Console, sender: FakeSender) -> None:
    emit(console, hosting(heavy=True), wire.LOG_CREDIT - RESERVE)
    heavy = threading.Thread(target=emit, args=(console, hosting(heavy=True), 1), daemon=True)
    waiting = threading.Event()
    sender.on_flush = waiting.set
    heavy.start()
    assert waiting.wait(10)
    sender.on_flush = int

    emit(console, hosting(), RESERVE)
    assert len(sender.posted) == wire.LOG_CREDIT

    console.give(RESERVE + 1)
    heavy.join(10)
    assert len(sender.posted) == wire.LOG_CREDIT + 1


def test_without_credit_everything_said_so_far_is_sent_first(console: Console, sender: FakeSender) -> None:
    emit(console, hosting(), wire.LOG_CREDIT)
    assert sender.flushes == 0
    sender.on_flush = lambda: console.give(1)

    emit(console, hosting(), 1)

    assert (sender.flushes, len(sender.posted)) == (1, wire.LOG_CREDIT + 1)
