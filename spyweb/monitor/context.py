"""The context of one cycle: the services and results of its stages, their timings, and the calls of its hooks."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.extraction.extractor import Extractor
from spyweb.limits import OP_ELEMENTS, too_large
from spyweb.lua import wire
from spyweb.lua.endings import as_text
from spyweb.lua.hooks import ABOUT_ITEMS, HOOK_NAMES, HOOK_OP, LOAD, UNLOADED, is_defined
from spyweb.lua.session import Code, Host, Lineage
from spyweb.model import JobSpec, Monitor, OnHookError, RunId
from spyweb.monitor.exchange import HostSlots, ProxyRotation, warning_about
from spyweb.monitor.expectations import Streak
from spyweb.monitor.items import Item, ItemReader, items_to_lua, prepare_for_lua
from spyweb.ops.arguments import Mismatch
from spyweb.ops.dispatcher import OpDispatcher
from spyweb.ops.files.files import Files
from spyweb.ops.network.request import Http, Response
from spyweb.ops.world import AlertChannels
from spyweb.store.sqlite.outbox import Outbox
from spyweb.store.sqlite.records import Records
from spyweb.store.sqlite.runs import Runs

T = TypeVar("T")
REPORTED = 6  # arguments of `_hook`: defined, memory, status, value, error, traceback; those at the end may be missing


class HookResult(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of one call of a hook."""

    value: T | None = None  # what the hook returned
    error: str | None = None  # the hook raised, or its value can't be used: the text, with file and line
    traceback: str = ""
    where: str = ""  # ` (file:line)` where a hook begins that returned a value
    is_absent: bool = False  # the hook is not defined, or was removed meanwhile
    duration_ms: float = 0.0
    memory: int = 0  # bytes of the VM after it
    memory_delta: int = 0

    @property
    def is_nothing(self) -> bool:
        """Return whether the hook ran and returned nil or false."""
        return not self.is_absent and self.error is None and (self.value is None or self.value is False)


class SharedVm(Struct):
    """The VM that all cycles of one version of a job share: the lock for calling its hooks, and its last report."""

    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    memory: int = 0  # bytes
    defined: int = 0  # the hooks that there were, as a bit mask


class HookChannel:
    """Calls the hooks of one cycle, and is the Host of its VM's run."""

    def __init__(self, vm: SharedVm, host: Host, clock: Clock) -> None:
        self._vm = vm
        self._host = host
        self._clock = clock
        self._defined = UNLOADED
        loop = asyncio.get_running_loop()
        self._call: Future[Sequence[object]] = loop.create_future()  # the VM waits for it: the hook to call
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
        """Call a hook, or load the files, once no other cycle's hook runs; `ctx` is put, packed, into the script's."""
        async with self._vm.lock:
            began, before = self._clock.monotonic(), self._vm.memory
            self._report = asyncio.get_running_loop().create_future()
            if not self._call.done():  # else the VM's run is ending, and this caller is cancelled with it
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


STAGES = (  # in the order of a cycle; those that are not hooks are built in
    *("before_fetch", "override_fetch", "fetch", "after_fetch"),
    *("override_extract", "extract", "after_extract"),
    *("filter_item", "filter", "before_store", "store"),
    *("before_notify", "before_webhook", "notify", "webhook"),
)


class Stage(Struct, frozen=True):
    """One step of a cycle: the time and memory that it took, and its error."""

    name: str
    duration_ms: float | None = None  # None: it has not run
    memory: int = 0  # bytes of the VM after it
    memory_delta: int = 0
    error: str | None = None

    def shown(self) -> dict[str, object]:
        """Return the stage as scripts see it."""
        shown: dict[str, object] = {
            "name": self.name,
            "status": "error" if self.error is not None else "inactive" if self.duration_ms is None else "success",
            "type": "hook" if self.name in HOOK_NAMES else "internal",
            "duration_ms": self.duration_ms or 0.0,
            "lua_mem_bytes": self.memory,
            "mem_delta_bytes": self.memory_delta,
            "browsers": 0,
        }
        return shown if self.error is None else {**shown, "error": self.error}


class Telemetry:
    """Records the stages of one cycle, which scripts see as `ctx.telemetry`."""

    def __init__(self, job_name: str, clock: Clock, memory: int = 0) -> None:
        self._memory = memory  # bytes of the VM after the last hook: a built-in stage leaves it as it is
        self._job_name = job_name
        self._clock = clock
        self._start_time = clock.now_ms() // 1000  # a whole number: os.date takes nothing else
        self._began = clock.monotonic()
        self._stages: dict[str, Stage] = {}
        self.current = ""  # the stage under way, or the last one

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a built-in stage, and note an error that it raises."""
        self.current = name
        began, error = self._clock.monotonic(), None
        try:
            yield
        except Exception as failure:
            error = str(failure)
            raise
        finally:
            self.note(Stage(name, self._since(began), self._memory, error=error))

    def blame(self, name: str, error: str) -> None:
        """Mark a stage that has ended as failed."""
        self.note(replace(self._stages[name], error=error))

    def _since(self, began: float) -> float:
        return round((self._clock.monotonic() - began) * 1000, 3)

    def note(self, stage: Stage) -> None:
        self._stages[stage.name] = stage
        self._memory = stage.memory

    def stages(self) -> list[Stage]:
        """List all stages, also ones that have not run."""
        return [self._stages.get(name) or Stage(name) for name in STAGES]

    @property
    def total_ms(self) -> float:
        return self._since(self._began)

    def packed(self) -> bytes:
        """Pack the telemetry for the VM, as each hook gets it."""
        shown = {
            "job_name": self._job_name,
            "start_time": self._start_time,
            "total_duration_ms": self.total_ms,
            "stages": [stage.shown() for stage in self.stages()],
        }
        return wire.pack([shown])


class CycleServices(Struct, frozen=True, kw_only=True):
    """The parts of the daemon that all cycles use."""

    http: Http
    slots: HostSlots
    extractor: Extractor
    runs: Runs
    records: Records
    outbox: Outbox
    clock: Clock
    files: Files
    channels: AlertChannels
    timezone: str
    random: Callable[[], float]
    node: str = ""  # the name of this one in its cluster


class MonitorVersion(Struct, kw_only=True):
    """One version of a monitor job: what its cycles share, across runs."""

    spec: JobSpec
    monitor: Monitor
    code: Code
    reader: ItemReader
    proxies: ProxyRotation
    vm: SharedVm = msgspec.field(default_factory=SharedVm)
    streak: Streak | None = None  # None: it is not counted yet


class Skipped(Exception):
    """Ends a cycle without failure: a hook returned nil or false."""


class CycleFailed(Exception):
    """Ends a cycle as failed: one clear line, and the traceback of the hook that caused it, if one did."""

    def __init__(self, reason: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.traceback = traceback


@dataclass(slots=True, kw_only=True)
class CycleContext:
    """One cycle on its way through the stages."""

    services: CycleServices
    version: MonitorVersion
    host: OpDispatcher
    hooks: HookChannel | None  # None: the job has no Lua
    telemetry: Telemetry
    run: RunId
    worker: int
    url: str  # the address in the settings; a hook may have fetched another
    response: Response | None = None  # the response that was extracted
    http_status: int | None = None  # of the response, or of a hook's replacement
    found: Sequence[Item] | None = None  # the extracted items; None: the cycle ended before extraction
    new: int | None = None  # how many of them were stored; None: the cycle ended before the store
    changed: int | None = None  # of these, where fields are tracked
    items: Sequence[Item] = ()  # those that passed the filters
    learned: dict[str, bytes] = field(default_factory=dict)  # packed values, in `ctx` from the next hook on

    @property
    def page_url(self) -> str:
        """Return the address that the items come from, after redirects."""
        return self.response.url.decode("utf-8", "replace") if self.response else self.url

    @property
    def announces(self) -> bool:
        """Return whether new items are announced: by the settings, or by a hook."""
        by_settings = self.version.monitor.notification or self.version.monitor.webhook or self.version.monitor.to
        return bool(by_settings) or self.has_hook("before_notify") or self.has_hook("before_webhook")

    def has_hook(self, name: str) -> bool:
        return self.hooks is not None and self.hooks.has(name)

    async def search(self, items: Sequence[Item]) -> None:
        """Look for the keywords in the items that have not been searched yet."""
        await run_in_slices(self.services.clock, self.version.reader.keywords.search(items))

    async def ask_about_items(
        self, name: str, items: Sequence[Item], read: Callable[[object], Steps[T]]
    ) -> HookResult[T]:
        """Call a hook with items, of which there may be very many."""
        if self.has_hook(name):
            await run_in_slices(self.services.clock, prepare_for_lua(items))
        return await self.ask(name, partial(items_to_lua, items), read)

    async def ask(self, name: str, argument: Callable[[], object], read: Callable[[object], Steps[T]]) -> HookResult[T]:
        """Call a hook of a stage and read its result.  Raises CycleFailed where its error is to end the cycle.

        `argument` is made only where there is such a hook; `read` raises Mismatch for a value that can't be used.
        """
        if self.hooks is None or not self.hooks.has(name):
            return HookResult(is_absent=True)
        self.telemetry.current = name
        result = await self.hooks.call(name, argument(), self._ctx())
        if result.is_absent:
            return HookResult(is_absent=True)
        value, error = None, result.error
        if result.value is not None and result.value is not False:
            try:
                value = await run_in_slices(self.services.clock, read(result.value))
            except Mismatch as mismatch:
                error = f"it returned a value that can't be used: {mismatch}{result.where}"
        self.telemetry.note(Stage(name, result.duration_ms, result.memory, result.memory_delta, error))
        if error is not None:
            self.fail(name, error, result.traceback)
        elif warning := warning_about(name, result.value):
            self._log("warn", name, warning + result.where)
        return HookResult(value=value, error=error, where=result.where)

    async def call(self, name: str, argument: object = None) -> None:
        """Call a hook at the end of the cycle; its value is ignored, and its error is only logged."""
        if self.hooks is not None and self.hooks.has(name):
            result = await self.hooks.call(name, argument, self._ctx())
            if result.error is not None:
                self._log("error", name, result.error, result.traceback)

    def fail(self, name: str, error: str, traceback: str = "") -> None:
        """Log the error of a hook.  Raises CycleFailed where the settings say that it ends the cycle."""
        self._log("error", name, error, traceback)
        if self.version.monitor.on_hook_error is OnHookError.FAIL:
            raise CycleFailed(f"{name}: {error}", traceback)

    def _ctx(self) -> dict[str, bytes]:
        """Return the new members of `ctx` for the next hook."""
        learned, self.learned = self.learned, {}
        return {**learned, "telemetry": self.telemetry.packed()}

    def _log(self, level: str, name: str, text: str, traceback: str = "") -> None:
        self.host.log(level, f"{name}: {text}\n{traceback}".rstrip().encode("utf-8", "surrogateescape"))


def in_one_step(read: Callable[[object], T]) -> Callable[[object], Steps[T]]:
    """Turn a quick reader into one in steps, as `ask` needs it."""

    def read_in_one_step(value: object) -> Steps[T]:
        yield from ()
        return read(value)

    return read_in_one_step
