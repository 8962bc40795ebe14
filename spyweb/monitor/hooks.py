"""Call the hooks of a cycle in its VM: the daemon's half of the `cycle` procedure (lua/hooks.py).

The VM asks through its op `_hook` which hook to run, and reports with the next one what became of it.  In between it
waits, and other cycles of the job have their turn: one hook of a job runs at a time, async calls included.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field

from spyweb.clock import Clock
from spyweb.cooperative import run_in_slices
from spyweb.limits import OP_ELEMENTS, too_large
from spyweb.lua import wire
from spyweb.lua.endings import as_text
from spyweb.lua.hooks import ABOUT_ITEMS, HOOK_OP, LOAD, UNLOADED, is_defined
from spyweb.lua.session import Host, Lineage

T = TypeVar("T")
REPORTED = 6  # arguments of `_hook`: defined, memory, status, value, error, traceback; those at the end may be missing


class HookResult(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of one call of a hook."""

    value: T | None = None  # what the hook returned
    error: str | None = None  # it raised, or its value can't be used: the text, with file and line
    traceback: str = ""
    where: str = ""  # ` (file:line)` where a hook begins that returned a value
    is_absent: bool = False  # there is no such hook, or it was removed meanwhile
    duration_ms: float = 0.0
    memory: int = 0  # bytes of the VM after it
    memory_delta: int = 0

    @property
    def is_nothing(self) -> bool:
        """Return whether the hook ran and returned nil or false."""
        return not self.is_absent and self.error is None and (self.value is None or self.value is False)


class SharedVm(Struct):
    """The VM that all cycles of one version of a job share: whose turn it is to run a hook, and its last report."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    memory: int = 0  # bytes
    defined: int = 0  # the hooks that there were, as a bit mask


class HookChannel:
    """Calls the hooks of one cycle; meanwhile it is the Host of its VM's run."""

    def __init__(self, vm: SharedVm, host: Host, clock: Clock) -> None:
        self._vm = vm
        self._host = host
        self._clock = clock
        self._defined = UNLOADED
        loop = asyncio.get_running_loop()
        self._call: Future[Sequence[object]] = loop.create_future()  # the VM waits for it: which hook to call
        self._report: Future[list[Any]] = loop.create_future()  # the cycle waits for it: the arguments of `_hook`

    # The VM's side

    def op(self, name: str, arguments: Sequence[object], lineage: Lineage = ()) -> Awaitable[Sequence[object]]:
        if name != HOOK_OP:
            return self._host.op(name, arguments, lineage)
        self._call = asyncio.get_running_loop().create_future()
        if not self._report.done():
            self._report.set_result([*arguments, *[None] * REPORTED][:REPORTED])
        return self._call

    def end_branch(self, lineage: Lineage) -> None:
        self._host.end_branch(lineage)

    def log(self, level: str, text: bytes) -> None:
        self._host.log(level, text)

    # The cycle's side

    async def begin(self) -> str | None:
        """Wait for the VM, and have a new one execute the job's files; return their error, if they raised."""
        self._note(await self._report)
        return (await self.call(LOAD)).error if self._defined == UNLOADED else None

    def has(self, name: str) -> bool:
        """Return whether the hook is defined now."""
        return is_defined(self._defined, name)

    async def call(
        self, name: str, argument: object = None, ctx: Mapping[str, bytes] | None = None
    ) -> HookResult[object]:
        """Call a hook, or load the job's files, once no other cycle's hook is running.

        `ctx`: packed values to put into the script's `ctx` before, decoded when the script reads them.
        """
        async with self._vm.lock:
            began, before = self._clock.monotonic(), self._vm.memory
            self._report = asyncio.get_running_loop().create_future()
            if not self._call.done():  # else the VM's run is being ended, and so will be whoever waits here
                self._call.set_result((name, argument, ctx))
            report = await self._report
            self._note(report)
            status, value, error, traceback = report[2:]
            failed = status == b"error"
            value, problem = await self._unpacked(name, value)
            return HookResult(
                value=value,
                error=as_text(error) if failed else problem,
                is_absent=status == b"absent",
                traceback=as_text(traceback) if failed else "",
                where=f" ({as_text(traceback)})" if traceback and not failed else "",
                duration_ms=round((self._clock.monotonic() - began) * 1000, 3),
                memory=self._vm.memory,
                memory_delta=self._vm.memory - before,
            )

    def end(self) -> None:
        """Tell the VM that no hook follows: its run ends."""
        if not self._call.done():
            self._call.set_result(())

    async def _unpacked(self, name: str, value: object) -> tuple[object, str | None]:
        """Decode the value of a hook, which may be many items; return it, or why it could not be decoded."""
        if not isinstance(value, wire.Packed):
            return value, None
        if name not in ABOUT_ITEMS and value.elements > OP_ELEMENTS:
            return None, too_large("what it returned", value.elements, OP_ELEMENTS, "values")
        try:
            return await run_in_slices(self._clock, wire.unpack_by_items(value)), None
        except (msgspec.DecodeError, RecursionError) as error:
            return None, f"what it returned can't leave the script: {error}"

    def _note(self, report: Sequence[object]) -> None:
        defined, memory = report[:2]
        if isinstance(defined, int) and isinstance(memory, int):
            self._defined, self._vm.memory, self._vm.defined = defined, memory, max(defined, 0)
