"""Queues pages, selectors and other hostile texts, and runs the processes that take them apart.

There is no process until the first page comes, then one, two when there is work for two, and one more for each slow
page.  If a page takes too long, crashes its process or fills its memory, that process is replaced; waiting pages go to
the others.
"""

from __future__ import annotations

from asyncio import Future, TaskGroup, get_running_loop
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import msgspec
import structlog
from msgspec import Struct

from spyweb.clock import Clock
from spyweb.errors import ExtractionError
from spyweb.extraction import wire
from spyweb.extraction.process import ExtractionAnswer, ExtractionRequest, ExtractorProcess, Items
from spyweb.extraction.wire import Ask, Check, Extract, FindLines, ParseYaml, plain
from spyweb.model import Field, JobId

log = structlog.get_logger()

PROCESSES = 2  # that serve; one is enough until a page would have to wait
SPARE = 1  # beyond those that are busy with slow pages, so that selectors can always be checked
MOST = 4  # pages at work
MOST_OF_ONE = MOST // 2  # of one job
LIMIT = 10.0  # seconds for one page: much more than the largest takes


class Page(Struct, frozen=True, kw_only=True):
    """The body of a page as it was received, and the items and fields to extract from it."""

    job: JobId  # jobs take turns
    body: bytes
    content_type: str | None  # the header, as it came
    url: str  # where it came from in the end: relative links are resolved against it
    selector: str  # finds the items
    fields: tuple[Field, ...]


@asynccontextmanager
async def open_extractor(clock: Clock, *, limit: float = LIMIT) -> AsyncIterator[Extractor]:
    """Open an extractor; `limit` is how many seconds one page may take, once its turn has come."""
    async with AsyncExitStack() as stack:
        tasks = await TaskGroup().__aenter__()
        stack.push_async_callback(tasks.__aexit__, None, None, None)  # an error of the caller's is not the group's
        extractor = Extractor(clock, tasks, limit)
        stack.callback(extractor.close)
        yield extractor


class ExtractionQueue:
    """The requests that wait for a process: first selectors to check, then pages, whose jobs take turns.

    A job gets at most half of the processes that take pages, and never the last one if it already has another: a job
    with slow pages does not delay the others.
    """

    def __init__(self) -> None:
        self._checks: deque[ExtractionRequest] = deque()
        self._pages: dict[JobId, deque[ExtractionRequest]] = {}  # the job whose turn is next comes first

    def add(self, request: ExtractionRequest) -> None:
        if request.job is None:
            self._checks.append(request)
        else:
            self._pages.setdefault(request.job, deque()).append(request)

    def find_next(self, in_hand: Counter[JobId]) -> ExtractionRequest | None:
        """Return the next request.  `in_hand` counts each job's pages at work: a job with none is preferred."""
        if self._checks:
            return self._checks[0]
        other = None
        for job in self._allowed(in_hand):
            if not in_hand[job]:
                return self._pages[job][0]
            other = other or self._pages[job][0]
        return other

    def count(self, in_hand: Counter[JobId]) -> int:
        """Return how many requests could be started at once, at the least."""
        return len(self._checks) + sum(1 for _ in self._allowed(in_hand))

    def remove(self, request: ExtractionRequest) -> None:
        """Remove the request that `find_next` returned; its job's turn is over."""
        if request.job is None:
            self._checks.popleft()
            return
        pages = self._pages.pop(request.job)
        pages.popleft()
        if pages:
            self._pages[request.job] = pages

    def take_all(self) -> list[ExtractionRequest]:
        requests = [*self._checks, *(request for pages in self._pages.values() for request in pages)]
        self._checks.clear()
        self._pages.clear()
        return requests

    def _allowed(self, in_hand: Counter[JobId]) -> Iterator[JobId]:
        free = MOST - in_hand.total()
        if free > 0:
            yield from (job for job in self._pages if not in_hand[job] or (in_hand[job] < MOST_OF_ONE and free > 1))


class Extractor:
    """Extracts items from pages, in separate processes."""

    def __init__(self, clock: Clock, tasks: TaskGroup, limit: float) -> None:
        self._clock = clock
        self._tasks = tasks
        self._limit = limit
        self._processes: list[ExtractorProcess] = []
        # The one used last is at the end, and used next: the memory of the others may be paged out.
        self._idle_processes: list[ExtractorProcess] = []
        self._queue = ExtractionQueue()
        self._is_closed = False

    async def extract(self, page: Page) -> Items:
        """Return the items of a page.  Raises ExtractionError: a wrong selector, a page over a limit, no process."""
        ask = Extract(
            size=len(page.body),
            content_type=plain(page.content_type or ""),
            url=plain(page.url),
            selector=plain(page.selector),
            fields=tuple((plain(field.selector), field.attribute) for field in page.fields),
        )
        names = tuple(field.name for field in page.fields)
        about = f' (selector "{ask.selector}")'
        answer = await self._run(page.job, "taking the page apart", ask, page.body, about=about, names=names)
        return cast("Items", _checked(answer))

    async def parse_yaml(self, job: JobId, text: bytes) -> bytes:
        """Return the value of a YAML text, packed as msgpack.  Raises ExtractionError for an invalid text."""
        return await self._run_packed(job, "reading the YAML", ParseYaml(len(text)), text)

    async def find_lines(self, job: JobId, pattern: bytes, text: bytes) -> list[int]:
        """Return the lines, from 0, that an expression matches.  Raises ExtractionError for none, or a slow one."""
        ask = FindLines(len(text), plain(pattern.decode("utf-8", "replace")))
        return msgspec.msgpack.decode(await self._run_packed(job, "looking for the lines", ask, text), type=list[int])

    async def find_selector_problem(self, selector: str, *, of_field: bool = False) -> str | None:
        """Return the problem of a selector; None also if no process could be started to check it."""
        try:
            ask = Check(plain(selector), of_field)
            answer = await self._run(None, "checking a selector", ask, about=f' (selector "{ask.selector}")')
        except ExtractionError as error:
            log.warning("a selector could not be checked", selector=selector, reason=str(error))
            return None
        return answer if isinstance(answer, str) else None

    async def _run_packed(self, job: JobId, task: str, ask: ParseYaml | FindLines, text: bytes) -> bytes:
        return cast("bytes", _checked(await self._run(job, task, ask, text)))

    async def _run(
        self,
        job: JobId | None,
        task: str,
        ask: Ask,
        body: bytes = b"",
        *,
        about: str = "",
        names: tuple[str, ...] | None = None,
    ) -> ExtractionAnswer:
        if self._is_closed:
            raise ExtractionError("the extractor is closed")
        answer: Future[ExtractionAnswer] = get_running_loop().create_future()
        head = wire.frame(ask)
        request = ExtractionRequest(job=job, task=task, about=about, head=head, body=body, names=names, answer=answer)
        self._queue.add(request)
        self._assign()
        return await answer

    def close(self) -> None:
        self._is_closed = True
        for process in self._processes:
            process.stop()
        self._fail_waiting("the extractor is closed")

    def _assign(self) -> None:
        while request := self._queue.find_next(self._in_hand()):
            if request.answer.done():
                self._queue.remove(request)  # its caller does not wait any more
            elif process := self._take_idle():
                self._queue.remove(request)
                process.give(request)
            else:
                self._start_process_if_short()
                return

    def _in_hand(self) -> Counter[JobId]:
        requests = (process.request for process in self._processes)
        return Counter(request.job for request in requests if request and request.job is not None)

    def _take_idle(self) -> ExtractorProcess | None:
        while self._idle_processes:
            process = self._idle_processes.pop()
            if process.serves:  # it may have died without being reaped yet
                return process
        return None

    def _start_process_if_short(self) -> None:
        serving = sum(process.serves for process in self._processes)
        starting = sum(not process.is_ready for process in self._processes)
        if serving >= PROCESSES or len(self._processes) >= MOST + SPARE:
            return
        if starting < self._queue.count(self._in_hand()):
            process = ExtractorProcess(
                clock=self._clock, limit=self._limit, on_idle=self._idle, on_missing=self._assign, on_gone=self._gone
            )
            self._processes.append(process)
            self._tasks.create_task(process.live(), name="extractor process")

    def _fail_waiting(self, reason: str) -> None:
        for request in self._queue.take_all():
            request.fail(reason)

    # What the processes report

    def _idle(self, process: ExtractorProcess) -> None:
        self._idle_processes.append(process)
        self._assign()
        if len(self._idle_processes) > PROCESSES:
            self._idle_processes.pop(0).stop()

    def _gone(self, process: ExtractorProcess, reason: str) -> None:
        """Forget a process that has died.  If it never became ready, the next one would not either."""
        self._processes.remove(process)
        if process in self._idle_processes:
            self._idle_processes.remove(process)
        if not process.is_ready and not self._processes:
            self._fail_waiting(f"no extractor process could be started: {reason}")
        if not self._is_closed:
            self._assign()


def _checked(answer: ExtractionAnswer) -> Items | bytes:
    if isinstance(answer, str):
        raise ExtractionError(answer)
    return answer
