"""What one cycle leans on and knows while it goes through its stages, and how they ask its hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from spyweb.clock import Clock
from spyweb.cooperative import Steps, finish, in_slices
from spyweb.extraction.page import Extractor
from spyweb.model import JobSpec, Monitor, OnHookError
from spyweb.monitor.hooks import ABSENT, NOTHING, ContextUpdate, Failed, HookResult, Hooks, NoValue
from spyweb.monitor.rules.exchange import FetchResponse
from spyweb.monitor.rules.items import Item, ItemReader, items_to_lua, make_told
from spyweb.monitor.rules.proxies import ProxyRotation
from spyweb.monitor.rules.unread_names import warning_about
from spyweb.monitor.telemetry import ERROR, SUCCESS, Stage, Telemetry
from spyweb.monitor.unannounced import UnannouncedRecords
from spyweb.ops.arguments import Mismatch
from spyweb.ops.disk import Files
from spyweb.ops.network.request import Http
from spyweb.store.protocol import Outbox, Records, Runs

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleServices:
    """What all cycles lean on; built by the daemon."""

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
    """A hook said that nothing of this cycle is left to do."""


class CycleFailed(Exception):
    """The cycle can't go on: one clear line, and where a hook is to blame its traceback."""

    def __init__(self, reason: str, traceback: str = "") -> None:
        super().__init__(reason)
        self.traceback = traceback


@dataclass(slots=True, kw_only=True)
class CycleContext:
    services: CycleServices
    spec: JobSpec
    monitor: Monitor
    reader: ItemReader
    hooks: Hooks
    telemetry: Telemetry
    tell: Callable[[str, bytes], None]  # level, a line for the job's log
    proxies: ProxyRotation
    owed: UnannouncedRecords
    worker: int
    url: str  # what it was to fetch; a hook may have chosen another
    reply: FetchResponse | None = None  # what extraction saw
    http_status: int | None = None  # of the reply, or of the one that a hook put in its place
    found: Sequence[Item] | None = None  # what extraction gave; None: it has not come to that
    new: int | None = None  # how many of them were stored; None: it has not come to that
    items: Sequence[Item] = ()  # what is left of them
    _where: str = ""  # where the hook begins that was asked last, in brackets
    _now: dict[str, object] = field(default_factory=dict)
    _later: dict[str, bytes] = field(default_factory=dict)

    @property
    def page_url(self) -> str:
        """Where its items come from, after redirects."""
        return self.reply.url.decode("utf-8", "replace") if self.reply else self.url

    @property
    def announces(self) -> bool:
        """Whether anything hears of what is new: by the settings, or because a hook may have ways of its own."""
        by_settings = self.monitor.notification or self.monitor.webhook
        return bool(by_settings) or self.hooks.has("before_notify") or self.hooks.has("before_webhook")

    async def search(self, items: Sequence[Item]) -> None:
        """Look for the keywords, where nobody has yet."""
        await in_slices(self.services.clock, self.reader.keywords.search(items))

    def learn(self, name: str, value: object) -> None:
        """Let `ctx` have this from the next hook on."""
        self._now[name] = value

    def learn_packed(self, name: str, packed: bytes) -> None:
        self._later[name] = packed

    async def ask_about(
        self, name: str, items: Sequence[Item], read: Callable[[object], Steps[T]]
    ) -> T | NoValue | Failed:
        """Call a hook with items, of which there may be very many."""
        if self.hooks.has(name):
            await in_slices(self.services.clock, make_told(items))
        return await self.ask(name, partial(items_to_lua, items), read)

    async def ask(
        self, name: str, argument: Callable[[], object], read: Callable[[object], Steps[T]]
    ) -> T | NoValue | Failed:
        """Call a hook.  `argument` is made only where there is one.

        `read` makes sense of what it returned, in steps, and raises Mismatch where there is none in it.
        """
        if not self.hooks.has(name):
            return ABSENT
        self.telemetry.current = name
        report = await self.hooks.call(name, argument(), self._news())
        if report.is_absent:
            return ABSENT
        self._where = f" ({report.where})" if report.where else ""
        said = await self._understood(report, read)
        doubt = warning_about(name, report.value)
        if doubt and not isinstance(said, Failed):
            self._log("warn", name, doubt + self._where)
        error = said.error if isinstance(said, Failed) else None
        self._note(name, report, error)
        if error is not None:
            self._blame(name, error, report.traceback)
        return said

    async def call(self, name: str, argument: object = None) -> None:
        """Call a hook of the cycle's end: nothing is taken back, and its error is just logged."""
        if self.hooks.has(name):
            report = await self.hooks.call(name, argument, self._news())
            if report.error is not None:
                self._log("error", name, report.error, report.traceback)

    def _news(self) -> ContextUpdate:
        now, self._now = self._now, {}
        later, self._later = self._later, {}
        later["telemetry"] = self.telemetry.packed()
        return ContextUpdate(now, later)

    async def _understood(self, report: HookResult, read: Callable[[object], Steps[T]]) -> T | NoValue | Failed:
        if report.error is not None:
            return Failed(report.error, report.value)
        if report.value is None or report.value is False:
            return NOTHING
        try:
            return await finish(self.services.clock, read(report.value))
        except Mismatch as mismatch:
            return Failed(f"it returned what makes no sense: {mismatch}{self._where}")

    def _note(self, name: str, report: HookResult, error: str | None) -> None:
        stage = Stage(
            name=name,
            status=SUCCESS if error is None else ERROR,
            duration_ms=report.duration_ms,
            memory=report.memory,
            memory_delta=report.memory_delta,
            error=error,
        )
        self.telemetry.note(stage)

    def blame_value(self, name: str, mismatch: Mismatch) -> None:
        """What makes no sense in the value of the hook that was asked last.  Raises CycleFailed as an error would."""
        self._blame(name, f"{mismatch}{self._where}", "")

    def _blame(self, name: str, error: str, traceback: str) -> None:
        """A hook's error.  Raises CycleFailed where the settings say that it matters so much."""
        self._log("error", name, error, traceback)
        if self.monitor.on_hook_error is OnHookError.FAIL:
            raise CycleFailed(f"{name}: {error}", traceback)

    def _log(self, level: str, name: str, text: str, traceback: str = "") -> None:
        self.tell(level, f"{name}: {text}\n{traceback}".rstrip().encode("utf-8", "surrogateescape"))
