"""How many requests may be under way at once; the others wait in line, not for ever and not without end."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from functools import partial

from spyweb.clock import Clock
from spyweb.errors import PoolError


class ConcurrencyLimiter:
    def __init__(self, clock: Clock, *, room: int, line: int, patience_s: float) -> None:
        self._clock = clock
        self._free = room
        self._line = line
        self._patience_s = patience_s
        self._waiting: deque[Future[bool]] = deque()

    def try_to_enter(self) -> bool:
        """Whether there was room at once: most find it, and need no coroutine."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def enter(self) -> None:
        """Whoever has come in leaves again.  Raises PoolError when there is no room in time."""
        if self.try_to_enter():
            return
        if len(self._waiting) >= self._line:
            raise PoolError(f"too many requests: {self._line} are waiting")
        await self._wait()

    def leave(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(True)
                return
        self._free += 1

    async def _wait(self) -> None:
        turn: Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        timer = self._clock.call_later(self._patience_s, partial(self._send_away, turn))
        try:
            has_come_in = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.leave()
            raise
        finally:
            timer.cancel()
        if not has_come_in:
            raise PoolError(f"too many requests: no room within {self._patience_s:g} s")

    def _send_away(self, turn: Future[bool]) -> None:
        if not turn.done():
            self._waiting.remove(turn)
            turn.set_result(False)
