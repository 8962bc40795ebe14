"""Execute the ops of the store of dictionaries at once: each future is done when it is returned."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from spyweb.clock import Clock
from spyweb.errors import StoreClosed

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ImmediateExecutor:
    """Executes ops at once, and counts the writes."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.closed = False
        self.writes = 0
        self.last_commit_ms: int | None = None

    def read(self, function: Callable[[*Ts], T], *arguments: *Ts) -> Future[T]:
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self.call(function, *arguments))
        except Exception as error:  # noqa: BLE001 - the boundary of one op, as in the real store
            future.set_exception(error)
        return future

    def write(self, function: Callable[[*Ts], T], *arguments: *Ts) -> Future[T]:
        future = self.read(function, *arguments)
        if future.exception() is None:
            self.writes += 1
            self.last_commit_ms = self.clock.now_ms()
        return future

    def call(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        if self.closed:
            raise StoreClosed
        return function(*arguments)

    def later(self, callback: Callable[[], None]) -> None:
        """Call back as the real store does after a commit: never while the caller is still busy with the write."""
        asyncio.get_running_loop().call_soon(callback)
