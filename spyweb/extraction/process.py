"""The daemon's end of one extractor process: its life, the page that it has in hand, and the time that it may take."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio import Future, Transport, get_running_loop
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

import structlog

from spyweb.clock import Clock
from spyweb.confined.child import bare_environment, describe_exit
from spyweb.errors import ExtractionError
from spyweb.extraction import wire
from spyweb.extraction.page import Extracted
from spyweb.extraction.wire import Done, Ready, Rows
from spyweb.logs.child import ChildOutput
from spyweb.model import MIB, JobId

log = structlog.get_logger()

START_LIMIT = 10.0  # seconds until it is ready: it takes 0.1
DEATH_LIMIT = 1.0  # seconds from the end of its socket until it is killed
SLOW = 0.25  # seconds with one page, from which on it does not count as one of those that serve the others
CHUNK = 65_536  # bytes of a body that are written at once ...
CHUNKS = 8  # ... and so many in one turn of the event loop: 10 MB at once would hold it up for 10 ms
MOST_HEARD = 128 * MIB  # bytes of all that it says of one page; it stops by itself at half of that
ANSWERS = 4  # that are heard in one turn: each holds up to some 500 items

# What a page took is kept for the next one, up to 16 MB: fetching it anew costs 60 µs a page.
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "16777216", "MALLOC_MMAP_THRESHOLD_": "4194304"}


@dataclass(slots=True, kw_only=True, eq=False)
class Errand:
    """A page, or a selector, on its way to an answer."""

    job: JobId | None  # whose page; None: a selector is checked
    selector: str
    head: bytes
    body: bytes
    names: tuple[str, ...]  # of the fields
    items: list[dict[str, str]] = field(default_factory=list)
    answer: Future[Extracted | str]  # a text is what is wrong with it; cancelled: nobody waits any more

    @property
    def task(self) -> str:
        return "checking a selector" if self.job is None else "taking the page apart"

    def settle(self, answer: Extracted | str) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(ExtractionError(reason))


class Owner(Protocol):
    """Whose process it is."""

    def idle(self, process: ExtractorProcess) -> None:
        """It can take an errand."""

    def missing(self) -> None:
        """It serves no others for now, or never again."""

    def gone(self, process: ExtractorProcess, reason: str) -> None: ...


class ExtractorProcess(asyncio.Protocol):
    """It is idle, or has one errand, once it has said that it is ready."""

    def __init__(self, *, clock: Clock, owner: Owner, limit: float) -> None:
        self.pid = 0  # none yet
        self.is_ready = False
        self._is_slow = False
        self.errand: Errand | None = None
        self._clock = clock
        self._owner = owner
        self._limit = limit
        self._reader = wire.Reader()
        self._heard = 0  # bytes, since it was given a page
        self._unsent = memoryview(b"")
        self._can_write = True
        self._verdict = ""  # why it was ended
        self._is_expected = False  # its end
        self._over: Future[None] = get_running_loop().create_future()
        self._timer = clock.call_later(START_LIMIT, self._start_too_late)
        self._transport: Transport | None = None  # none yet
        self._output: ChildOutput | None = None  # none yet

    async def live(self) -> None:
        """From its birth to its burial."""
        reason = "it was not started"
        try:
            child = await self._be_born()
            self.pid = child.pid
            try:
                await self._over
            finally:
                reason = await self._bury(child)
        except OSError as error:
            reason = str(error)
        finally:
            if self._output is not None:
                self._output.close()
            self._conclude(self._verdict or reason)

    async def _be_born(self) -> Process:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            output = self._output = ChildOutput("an extractor process", self._clock)
            await get_running_loop().create_connection(lambda: self, sock=ours)
            descriptor = theirs.fileno()
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "spyweb.extraction.worker.main", str(descriptor)),
                pass_fds=[descriptor],
                env=bare_environment() | MALLOC,
                stdin=DEVNULL,
                stdout=output.writer,
                stderr=output.writer,
                start_new_session=True,  # a Ctrl-C in the terminal is the daemon's to deal with
            )
            output.given()
            return child

    async def _bury(self, child: Process) -> str:
        """Gives how it ended.  One that ended by itself is not killed: asyncio would then no longer know how."""
        timer = self._clock.call_later(0 if self._verdict else DEATH_LIMIT, partial(_kill, child))
        try:
            return describe_exit(await child.wait())
        finally:
            timer.cancel()

    @property
    def serves(self) -> bool:
        """Whether it does, or soon will."""
        return not self._is_slow and not self._over.done()

    def dismiss(self) -> None:
        """It is needed no more."""
        self._is_expected = True
        self.end("it was ended")

    def end(self, verdict: str) -> None:
        """SIGKILL.  The owner hears of its death, for the first reason given."""
        self._verdict = self._verdict or verdict
        if not self._over.done():
            self._over.set_result(None)

    def _conclude(self, reason: str) -> None:
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if self.errand is not None:
            self.errand.fail(f"the extractor process died: {reason}")
            self.errand = None
        if not self._is_expected:
            log.warning("an extractor process died", pid=self.pid, reason=reason)
        self._owner.gone(self, reason)

    # The page in hand

    def give(self, errand: Errand) -> None:
        """Only while it is idle."""
        self.errand = errand
        self._heard = 0
        self._timer = self._clock.call_later(min(SLOW, self._limit), self._become_slow)
        transport = cast(Transport, self._transport)
        if len(errand.body) <= CHUNK:
            transport.write(errand.head + errand.body)
            return
        transport.write(errand.head)
        self._unsent = memoryview(errand.body)
        self._send_more()

    def _send_more(self) -> None:
        for _ in range(CHUNKS):
            if not self._can_write or not self._unsent or self._transport is None:
                return
            chunk, self._unsent = self._unsent[:CHUNK], self._unsent[CHUNK:]
            self._transport.write(chunk)
        get_running_loop().call_soon(self._send_more)

    def _become_slow(self) -> None:
        self._is_slow = True
        self._timer = self._clock.call_later(max(0, self._limit - SLOW), self._take_too_long)
        self._owner.missing()

    def _take_too_long(self) -> None:
        if self.errand is not None:  # else it is spent, and dismissed
            task = f"{self.errand.task} took longer than {self._limit:g} s"
            self.errand.fail(f'{task} (selector "{self.errand.selector}")')
            self.end(task)

    def _start_too_late(self) -> None:
        self.end(f"it was not ready within {START_LIMIT:g} s")

    # What the connection tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._send_more()

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self.end("")

    def data_received(self, data: bytes) -> None:
        self._heard += len(data)
        if self._heard <= MOST_HEARD:
            self._reader.add(data)
            self._hear_some()
        elif not self._over.done():
            log.error("an extractor process is killed: it says more than a page can give")
            self.end("it talked nonsense")

    def _hear_some(self) -> None:
        try:
            is_all = self._hear_answers()
        except Exception as error:
            log.error("an extractor process is killed: it talks nonsense", exc_info=error)
            self.end("it talked nonsense")
            return
        if self._transport is None or is_all:
            return
        self._transport.pause_reading()
        get_running_loop().call_soon(self._hear_more)

    def _hear_more(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
        self._hear_some()

    def _hear_answers(self) -> bool:
        """Whether those were all."""
        for _ in range(ANSWERS):
            answer = self._reader.take()
            if answer is None or self._over.done():
                return True
            self._hear(answer)
        return False

    def _hear(self, answer: Ready | Rows | Done) -> None:
        match answer:
            case Ready(rights):
                log.debug("an extractor process is ready", pid=self.pid, rights=rights)
                self.is_ready = True
                self._become_idle()
            case Rows(rows):
                errand = self._errand_in_hand()
                errand.items += [dict(zip(errand.names, row, strict=True)) for row in rows]
            case Done(problem, is_spent):
                errand, self.errand = self._errand_in_hand(), None
                errand.settle(Extracted(tuple(errand.items)) if problem is None else problem)
                if is_spent:
                    self.dismiss()
                    self._owner.missing()
                else:
                    self._become_idle()

    def _errand_in_hand(self) -> Errand:
        if self.errand is None:
            raise ValueError("an answer to nothing")
        return self.errand

    def _become_idle(self) -> None:
        self._timer.cancel()
        self._is_slow = False
        self._owner.idle(self)


def _kill(child: Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
