"""The talk with the VM of one cycle: the daemon's half of the `cycle` procedure (lua/hooks.py).

The VM asks through its op `_hook` which hook to run, and tells with the next one what became of it.  In between it
waits, and other cycles of the job have their turn: one hook of a job runs at a time, async calls included.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

import msgspec

from spyweb.clock import Clock
from spyweb.cooperative import finish
from spyweb.limits import OP_ELEMENTS, too_large
from spyweb.lua import wire
from spyweb.lua.endings import as_text
from spyweb.lua.hooks import ABOUT_ITEMS, HOOK_OP, LOAD, UNLOADED, is_defined
from spyweb.lua.session import Host
from spyweb.monitor.hooks import ContextUpdate, HookResult

ERROR, ABSENT = b"error", b"absent"  # how a hook ended; else it went well

Answer = Sequence[object]


@dataclass(slots=True)
class SharedVm:
    """What the cycles of one version of a job share: who may run a hook, and what its VM was like after the last."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    memory: int = 0  # bytes
    defined: int = 0  # the hooks that there were, as a bit mask


class LoadFailed(Exception):
    """The job's files raised; its VM tells so too, as the end of its run."""


class Talk:
    """Host of the VM's run, and Hooks of the cycle."""

    exist = True

    def __init__(self, turn: SharedVm, host: Host, clock: Clock) -> None:
        self._turn = turn
        self._host = host
        self._clock = clock
        self._defined = UNLOADED
        loop = asyncio.get_running_loop()
        self._asked: Future[Answer] = loop.create_future()  # what the VM waits for
        self._told: Future[Sequence[object]] = loop.create_future()  # what it has to tell

    # What the VM says

    def op(self, name: str, arguments: Sequence[object]) -> Awaitable[Answer]:
        if name != HOOK_OP:
            return self._host.op(name, arguments)
        self._asked = asyncio.get_running_loop().create_future()
        if not self._told.done():
            self._told.set_result(arguments)
        return self._asked

    def log(self, level: str, text: bytes) -> None:
        self._host.log(level, text)

    # What the cycle asks

    async def begin(self) -> None:
        """Wait for the VM; in one that has not executed the job's files it does so now.  Raises LoadFailed."""
        self._note(await self._told)
        if self._defined == UNLOADED:
            report = await self.call(LOAD, None, ContextUpdate({}, {}))
            if report.error is not None:
                raise LoadFailed(report.error)

    def has(self, name: str) -> bool:
        return is_defined(self._defined, name)

    async def call(self, name: str, argument: object, news: ContextUpdate) -> HookResult:
        async with self._turn.lock:
            began, before = self._clock.monotonic(), self._turn.memory
            told = await self._exchange((name, argument, news.now or None, news.later or None))
            self._note(told)
            failed = _at(told, 2) == ERROR
            value, problem = await self._unpacked(name, _at(told, 3))
            return HookResult(
                value=value,
                error=as_text(_at(told, 4)) if failed else problem,
                is_absent=_at(told, 2) == ABSENT,
                traceback=as_text(_at(told, 5)) if failed else "",
                where="" if failed else as_text(_at(told, 5)),
                duration_ms=round((self._clock.monotonic() - began) * 1000, 3),
                memory=self._turn.memory,
                memory_delta=self._turn.memory - before,
            )

    async def _unpacked(self, name: str, value: object) -> tuple[object, str | None]:
        """Return what the hook returned, which may be many items, and why it can't be had."""
        if not isinstance(value, wire.Packed):
            return value, None
        if name not in ABOUT_ITEMS and value.elements > OP_ELEMENTS:
            return None, too_large("what it returned", value.elements, OP_ELEMENTS, "values")
        try:
            return await finish(self._clock, wire.unpack_by_items(value)), None
        except (msgspec.DecodeError, RecursionError) as error:
            return None, f"what it returned can't leave the script: {error}"

    def end(self) -> None:
        """Nothing more is asked: the VM's run ends."""
        if not self._asked.done():
            self._asked.set_result(())

    async def _exchange(self, answer: Answer) -> Sequence[object]:
        self._told = asyncio.get_running_loop().create_future()
        if not self._asked.done():  # else it is being ended, and so will be whoever waits here
            self._asked.set_result(answer)
        return await self._told

    def _note(self, told: Sequence[object]) -> None:
        defined, memory = _at(told, 0), _at(told, 1)
        if isinstance(defined, int) and isinstance(memory, int):
            self._defined, self._turn.memory = defined, memory
            self._turn.defined = max(defined, 0)


def _at(told: Sequence[object], position: int) -> object:
    """Trailing nils are left out."""
    return told[position] if position < len(told) else None
