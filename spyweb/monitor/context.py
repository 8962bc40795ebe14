"""The context of one cycle: what its stages use and find out, and how they call its hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from spyweb.clock import Clock
from spyweb.cooperative import Steps, run_in_slices
from spyweb.extraction.extractor import Extractor
from spyweb.model import JobSpec, Monitor, OnHookError
from spyweb.monitor.hooks import ABSENT, NOTHING, ContextUpdate, HookChannel, HookFailed, HookResult, NoValue
from spyweb.monitor.rules.exchange import FetchResponse
from spyweb.monitor.rules.items import Item, ItemReader, items_to_lua, prepare_for_lua
from spyweb.monitor.rules.proxies import ProxyRotation
from spyweb.monitor.rules.tables import warning_about
from spyweb.monitor.telemetry import ERROR, SUCCESS, Stage, Telemetry
from spyweb.monitor.unannounced import UnannouncedRecords
from spyweb.ops.arguments import Mismatch
from spyweb.ops.disk import Files
from spyweb.ops.network.gate import NetGate
from spyweb.ops.network.request import Http
from spyweb.store.outbox_protocol import Outbox
from spyweb.store.protocol import Runs
from spyweb.store.records_protocol import Records
from spyweb.tracing.span import TraceSpan

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleServices:
    """The parts of the daemon that all cycles use."""

    http: Http
    extractor: Extractor
    runs: Runs
    records: Records
    outbox: Outbox
    clock: Clock
    files: Files
    timezone: str
    random: Callable[[], float]


class Skipped(Exception):
    """Ends a cycle without failure: a hook returned nil or false, so nothing is left to do."""


class CycleFailed(Exception):
    """Ends a cycle as failed: one clear line, and the traceback of the hook where one is to blame."""

    def __init__(self, reason: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.traceback = traceback


@dataclass(slots=True, kw_only=True)
class CycleContext:
    """One cycle on its way through the stages."""

    services: CycleServices
    spec: JobSpec
    monitor: Monitor
    reader: ItemReader
    hooks: HookChannel | None  # None: the job has no Lua
    telemetry: Telemetry
    log: Callable[[str, bytes], None]  # level, a line for the job's log
    gate: Callable[[str], NetGate | None]  # of a function: what asks the policy of the job about hosts
    permit: Callable[[str, str], None]  # a function, a check of the policy.  Raises OpError
    proxies: ProxyRotation
    unannounced: UnannouncedRecords
    worker: int
    url: str  # what it was to fetch; a hook may have chosen another
    trace: TraceSpan | None = None  # of the run, where it is traced
    response: FetchResponse | None = None  # what extraction saw
    http_status: int | None = None  # of the response, or of the one that a hook put in its place
    found: Sequence[Item] | None = None  # what extraction gave; None: the cycle has not come that far
    new: int | None = None  # how many of them were stored; None: the cycle has not come that far
    items: Sequence[Item] = ()  # what is left of them
    _where: str = ""  # where the hook begins that was called last, in brackets
    _now: dict[str, object] = field(default_factory=dict)
    _later: dict[str, bytes] = field(default_factory=dict)

    @property
    def page_url(self) -> str:
        """Return the address that the items come from, after redirects."""
        return self.response.url.decode("utf-8", "replace") if self.response else self.url

    @property
    def announces(self) -> bool:
        """Return whether new items are announced: by the settings, or by a hook."""
        by_settings = self.monitor.notification or self.monitor.webhook
        return bool(by_settings) or self.has_hook("before_notify") or self.has_hook("before_webhook")

    def has_hook(self, name: str) -> bool:
        return self.hooks is not None and self.hooks.has(name)

    async def search(self, items: Sequence[Item]) -> None:
        """Look for the keywords in the items that have not been searched yet."""
        await run_in_slices(self.services.clock, self.reader.keywords.search(items))

    def learn(self, name: str, value: object) -> None:
        """Put a value into `ctx` from the next hook on."""
        self._now[name] = value

    def learn_packed(self, name: str, packed: bytes) -> None:
        """Put a packed value into `ctx` from the next hook on; it is decoded only when a script reads it."""
        self._later[name] = packed

    async def ask_about_items(
        self, name: str, items: Sequence[Item], read: Callable[[object], Steps[T]]
    ) -> T | NoValue | HookFailed:
        """Call a hook with items, of which there may be very many."""
        if self.has_hook(name):
            await run_in_slices(self.services.clock, prepare_for_lua(items))
        return await self.ask(name, partial(items_to_lua, items), read)

    async def ask(
        self, name: str, argument: Callable[[], object], read: Callable[[object], Steps[T]]
    ) -> T | NoValue | HookFailed:
        """Call a hook of a stage and read what it returned.  Raises CycleFailed where its error is to end the cycle.

        `argument` is made only where there is such a hook; `read` raises Mismatch for a value that can't be used.
        """
        if self.hooks is None or not self.hooks.has(name):
            return ABSENT
        self.telemetry.current = name
        result = await self.hooks.call(name, argument(), self._take_update())
        if result.is_absent:
            return ABSENT
        self._where = f" ({result.where})" if result.where else ""
        answer = await self._read(result, read)
        error = answer.error if isinstance(answer, HookFailed) else None
        if error is None and (warning := warning_about(name, result.value)):
            self._log_line("warn", name, warning + self._where)
        self.telemetry.note(
            Stage(
                name=name,
                status=SUCCESS if error is None else ERROR,
                duration_ms=result.duration_ms,
                memory=result.memory,
                memory_delta=result.memory_delta,
                error=error,
            )
        )
        if error is not None:
            self._fail(name, error, result.traceback)
        return answer

    async def call(self, name: str, argument: object = None) -> None:
        """Call a hook of the cycle's end: its value is ignored, and its error is only logged."""
        if self.hooks is not None and self.hooks.has(name):
            result = await self.hooks.call(name, argument, self._take_update())
            if result.error is not None:
                self._log_line("error", name, result.error, result.traceback)

    def fail_for_value(self, name: str, mismatch: Mismatch) -> None:
        """Log what is wrong with the value of the last hook.  Raises CycleFailed where an error of the hook would."""
        self._fail(name, f"{mismatch}{self._where}", "")

    def _take_update(self) -> ContextUpdate:
        update = ContextUpdate(self._now, {**self._later, "telemetry": self.telemetry.packed()})
        self._now, self._later = {}, {}
        return update

    async def _read(self, result: HookResult, read: Callable[[object], Steps[T]]) -> T | NoValue | HookFailed:
        if result.error is not None:
            return HookFailed(result.error, result.value)
        if result.value is None or result.value is False:
            return NOTHING
        try:
            return await run_in_slices(self.services.clock, read(result.value))
        except Mismatch as mismatch:
            return HookFailed(f"it returned a value that can't be used: {mismatch}{self._where}")

    def _fail(self, name: str, error: str, traceback: str) -> None:
        self._log_line("error", name, error, traceback)
        if self.monitor.on_hook_error is OnHookError.FAIL:
            raise CycleFailed(f"{name}: {error}", traceback)

    def _log_line(self, level: str, name: str, text: str, traceback: str = "") -> None:
        self.log(level, f"{name}: {text}\n{traceback}".rstrip().encode("utf-8", "surrogateescape"))


def in_one_step(read: Callable[[object], T]) -> Callable[[object], Steps[T]]:
    """Turn a quick reader into one in steps, as `ask` needs it."""

    def read_in_one_step(value: object) -> Steps[T]:
        yield from ()
        return read(value)

    return read_in_one_step
