"""The daemon's end of one extractor process: its life, its current page, and the time that the page may take."""

from __future__ import annotations

import asyncio
from asyncio import Future, Transport, get_running_loop
from collections.abc import Callable
from typing import cast

import structlog
from msgspec import Struct, field

from spyweb.clock import Clock
from spyweb.confined.child import ChildOutput, ChildProcess
from spyweb.confined.frames import FrameReader
from spyweb.errors import ExtractionError
from spyweb.extraction import wire
from spyweb.extraction.wire import Answer, Done, ExtractorReady, PackedPart, Rows
from spyweb.model import MIB, JobId

log = structlog.get_logger()

START_LIMIT = 10.0  # seconds until it is ready: it normally takes far less
DEATH_LIMIT = 1.0  # seconds from the end of its socket until it is killed
SLOW = 0.25  # seconds with one page, after which the process counts as busy and another may start
READ_AT_ONCE = 16_384  # bytes, which may hold thousands of values
MOST_HEARD = 128 * MIB  # bytes of all answers about one page; the process stops by itself at half of that

# The memory that a page took is kept for the next one, up to a limit.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "16777216", "MALLOC_MMAP_THRESHOLD_": "4194304"}


Items = list[dict[str, str]]  # in the order of the page; every field is in each, "" where nothing matched
ExtractionAnswer = Items | bytes | str  # packed as msgpack; a text says what is wrong with the request


class ExtractionRequest(Struct, kw_only=True, eq=False):
    """A page to extract items from, or another text and what to do with it, and the future of the answer."""

    job: JobId | None  # whose page; None: a selector is checked
    task: str  # for errors
    about: str = ""  # the same: which selector
    head: bytes
    body: bytes
    names: tuple[str, ...] | None = None  # of the fields; None: the answer is packed
    items: Items = field(default_factory=list)
    packed: bytearray = field(default_factory=bytearray)
    answer: Future[ExtractionAnswer]  # cancelled: the caller no longer waits

    def finish(self, problem: str | None) -> None:
        result = bytes(self.packed) if self.names is None else self.items
        if not self.answer.done():
            self.answer.set_result(result if problem is None else problem)

    def fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(ExtractionError(reason))


class ExtractorProcess(asyncio.BufferedProtocol):
    """Serves one request after the other, once it has reported that it is ready.

    It calls `on_idle` when it can take a request, `on_missing` when it can take no more for now or for good, and
    `on_gone` with the reason when it is dead.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        limit: float,
        on_idle: Callable[[ExtractorProcess], None],
        on_missing: Callable[[], None],
        on_gone: Callable[[ExtractorProcess, str], None],
    ) -> None:
        self.pid = 0  # none yet
        self.is_ready = False
        self._is_slow = False
        self.request: ExtractionRequest | None = None
        self._clock = clock
        self._on_idle = on_idle
        self._on_missing = on_missing
        self._on_gone = on_gone
        self._limit = limit
        self._reader = FrameReader(wire.decode_answer)
        self._buffer = bytearray(READ_AT_ONCE)
        self._heard = 0  # bytes, since it was given a page
        self._end_reason = ""  # why it was ended
        self._is_expected = False  # its end
        self._over: Future[None] = get_running_loop().create_future()
        self._timer = clock.call_later(START_LIMIT, lambda: self.end(f"it was not ready within {START_LIMIT:g} s"))
        self._transport: Transport | None = None  # none yet

    async def live(self) -> None:
        """Start the process, wait for its end, and reap it."""
        reason = "it was not started"
        try:
            child = ChildProcess(
                "spyweb.extraction.worker.main",
                libraries=("msgspec", "selectolax", "yaml"),
                variables=MALLOC,
                output=ChildOutput("an extractor process", self._clock),
            )
            self.pid = child.pid
            try:
                await get_running_loop().create_connection(lambda: self, sock=child.socket)
                await self._over
            finally:  # a process that ends by itself has time to, so that its exit code is reported
                reason = await child.wait(self._clock, 0 if self._end_reason else DEATH_LIMIT)
                child.close()
        except OSError as error:
            reason = str(error)
        finally:
            self._conclude(self._end_reason or reason)

    @property
    def serves(self) -> bool:
        """Return whether it serves requests, or soon will."""
        return not self._is_slow and not self._over.done()

    def stop(self) -> None:
        """End the process because it is not needed any more."""
        self._is_expected = True
        self.end("it was ended")

    def end(self, reason: str) -> None:
        """Kill the process; `on_gone` gets the first reason."""
        self._end_reason = self._end_reason or reason
        if not self._over.done():
            self._over.set_result(None)

    def _conclude(self, reason: str) -> None:
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self.request is not None:
            self.request.fail(f"the extractor process died: {reason}")
            self.request = None
        if not self._is_expected:
            log.warning("an extractor process died", pid=self.pid, reason=reason)
        self._on_gone(self, reason)

    # The current page

    def give(self, request: ExtractionRequest) -> None:
        """Send a request; only called while the process is idle."""
        self.request = request
        self._heard = 0
        self._timer = self._clock.call_later(min(SLOW, self._limit), self._become_slow)
        transport = cast(Transport, self._transport)
        transport.write(request.head)
        transport.write(request.body)

    def _become_slow(self) -> None:
        self._is_slow = True
        self._timer = self._clock.call_later(max(0, self._limit - SLOW), self._take_too_long)
        self._on_missing()

    def _take_too_long(self) -> None:
        if self.request is not None:  # otherwise it is worn out, and stopped
            task = f"{self.request.task} took longer than {self._limit:g} s"
            self.request.fail(task + self.request.about)
            self.end(task)

    # Callbacks of the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self.end("")

    def get_buffer(self, _hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.hear(self._buffer[:size])

    def hear(self, data: bytes | bytearray) -> None:
        if self._over.done():
            return
        self._heard += len(data)
        try:
            if self._heard > MOST_HEARD:
                raise ValueError("its answers are longer than any page allows")
            for answer in self._reader.feed(data):
                if self._over.done():
                    return
                self._take(answer)
        except Exception as error:
            log.error("an extractor process is killed: it broke the protocol", exc_info=error)
            self.end("it broke the protocol")

    def _take(self, answer: Answer) -> None:
        match answer:
            case ExtractorReady(rights):
                log.debug("an extractor process is ready", pid=self.pid, rights=rights)
                self.is_ready = True
                self._become_idle()
            case Rows(rows):
                request = self._request_in_hand()
                request.items += [dict(zip(request.names or (), row, strict=True)) for row in rows]
            case PackedPart(data):
                self._request_in_hand().packed += data
            case Done(problem, is_spent):
                request, self.request = self._request_in_hand(), None
                request.finish(problem)
                if is_spent:
                    self.stop()
                    self._on_missing()
                else:
                    self._become_idle()

    def _request_in_hand(self) -> ExtractionRequest:
        if self.request is None:
            raise ValueError("an answer without a request")
        return self.request

    def _become_idle(self) -> None:
        self._timer.cancel()
        self._is_slow = False
        self._on_idle(self)
