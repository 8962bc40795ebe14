"""Locks that scripts hold, in a dictionary."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from spyweb.model import RunId
from spyweb.store.sqlite.locks import Holdings, is_held, nobody_lives, shorten
from spyweb.store.values_protocol import Alive, Held
from tests.fakes.memory.memory_executor import ImmediateExecutor


class MemoryLocks:
    def __init__(self, executor: ImmediateExecutor) -> None:
        self._executor = executor
        self._held: dict[bytes, Held] = {}
        self._holdings = Holdings()
        self._alive: Alive = nobody_lives

    def believe(self, alive: Alive) -> None:
        self._alive = alive

    def on_released(self, callback: Callable[[Sequence[bytes]], None]) -> None:
        self._holdings.on_released(callback)

    def acquire(self, name: bytes, holder: bytes, run: RunId | None, lease_ms: int) -> Future[Held | None]:
        return self._executor.write(self._acquire, name, holder, run, lease_ms)

    def release(self, name: bytes, holder: bytes) -> Future[Held | None]:
        return self._executor.write(self._release, name, holder)

    def release_run(self, run: RunId) -> Future[list[bytes]]:
        return self._executor.write(self._release_run, run)

    def renew(self, runs: Sequence[RunId]) -> Future[int]:
        return self._executor.write(self._renew, runs)

    def holder(self, name: bytes) -> Future[Held | None]:
        return self._executor.read(self._find, name)

    def list(self) -> Future[list[Held]]:
        return self._executor.read(self.held_now)

    def break_(self, name: bytes) -> Future[Held | None]:
        return self._executor.write(self._release, name, None)

    def ended(self, runs: Iterable[RunId]) -> None:
        for run in self._holdings.any_of(runs):
            self._release_run(run)

    def sweep(self) -> None:
        free = [name for name in self._held if self._find(name) is None]
        for name in free:
            del self._held[name]
        self._tell(free)

    def held_now(self) -> list[Held]:  # type: ignore[valid-type]  # the builtin, not the method
        found = (self._find(name) for name in sorted(self._held))
        return [held for held in found if held]

    def _find(self, name: bytes) -> Held | None:
        held = self._held.get(name)
        return held if held and is_held(held, self._executor.clock.now_ms(), self._alive) else None

    def _acquire(self, name: bytes, holder: bytes, run: RunId | None, lease_ms: int) -> Held | None:
        now_ms = self._executor.clock.now_ms()
        held = self._find(name)
        if held is None:
            self._holdings.add(run, name)
            self._held[name] = Held(
                name=name, holder=holder, run=run, acquired_ms=now_ms, expires_ms=now_ms + lease_ms, lease_ms=lease_ms
            )
            return None
        self._held[name] = shortened = shorten(held, now_ms)
        return shortened

    def _release(self, name: bytes, holder: bytes | None) -> Held | None:
        held = self._find(name)
        if held and holder in (None, held.holder):
            del self._held[name]
        self._tell([name])
        return held

    def _release_run(self, run: RunId) -> list[bytes]:  # type: ignore[valid-type]  # the builtin, not the method
        names = sorted(name for name, held in self._held.items() if held.run == run)
        for name in names:
            del self._held[name]
        self._executor.later(partial(self._holdings.ended, [run]))
        return names

    def _renew(self, runs: Sequence[RunId]) -> int:
        mine = [held for held in self._held.values() if held.run in runs]
        now_ms = self._executor.clock.now_ms()
        for held in mine:
            self._held[held.name] = replace(held, expires_ms=now_ms + held.lease_ms)
        return len(mine)

    def _tell(self, names: Sequence[bytes]) -> None:
        self._executor.later(partial(self._holdings.tell, names))
