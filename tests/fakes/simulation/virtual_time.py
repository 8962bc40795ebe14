"""An event loop whose time jumps to the next timer as soon as nothing is ready, and machines that live in it."""

from __future__ import annotations

import asyncio
import selectors
from asyncio import Future
from collections.abc import Callable
from functools import partial
from random import Random

from spyweb.clock import Handle
from tests.fakes.clock import START_MS, wake

BOOTED_S = 1_000.0
TIE_S = 1e-6  # timers of the same moment fire in any order


class JumpingSelector(selectors.SelectSelector):
    """Lets the loop's time pass instead of waiting; there are no files but the loop's own pipe."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is left that could ever happen"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class Machine:
    """A machine that may freeze, be cut off from the database, have a wrong clock, and start its daemon anew."""

    def __init__(self, dice: Random, offset_ms: int) -> None:
        self.dice, self.offset_ms = dice, offset_ms
        self._loop = asyncio.get_running_loop()
        self._late: list[Callable[[], object]] = []
        self._frozen_until = self._cut_until = 0.0
        self.boots = 0  # counts the daemon's incarnations; what an earlier one asked for is dropped

    @property
    def is_frozen(self) -> bool:
        return bool(self._frozen_until)

    @property
    def is_cut(self) -> bool:
        return self._loop.time() < self._cut_until

    def cut(self, seconds: float) -> None:
        self._cut_until = max(self._cut_until, self._loop.time() + seconds) if seconds else 0

    def freeze(self, seconds: float) -> None:
        until = self._frozen_until = max(self._frozen_until, self._loop.time() + seconds)
        self._loop.call_at(until, self._thaw, until)

    def call(self, boot: int, function: Callable[[], object]) -> None:
        """Call it in the daemon of that boot: not while the machine is frozen, never once the daemon has ended."""
        if self.is_frozen:
            self._late.append(partial(self.call, boot, function))
        elif boot == self.boots:
            function()

    def _thaw(self, until: float) -> None:
        """Make the calls that are late: in any order, as timers and answers come together after a long while."""
        if until == self._frozen_until:  # else it froze once more
            self._frozen_until = 0
            late, self._late = self._late, []
            self.dice.shuffle(late)
            for call in late:
                self._loop.call_soon(call)


class MachineClock:
    """The clock of one daemon on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._boot = machine, machine.boots
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return START_MS + round(self._loop.time() * 1000) + self._machine.offset_ms

    def monotonic(self) -> float:
        return BOOTED_S + self._loop.time()

    def boottime(self) -> float:
        return BOOTED_S + self._loop.time()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        call = partial(self._machine.call, self._boot, callback)
        if seconds <= 0:
            return self._loop.call_soon(call)
        return self._loop.call_later(seconds + self._machine.dice.random() * TIE_S, call)

    async def sleep(self, seconds: float) -> None:
        woken: Future[None] = self._loop.create_future()
        self.call_later(seconds, partial(wake, woken))
        await woken
