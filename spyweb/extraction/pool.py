"""The extractor processes: none until the first page comes, two when there is work for two, one more for a slow page.

A page that takes long, crashes its process or fills its memory costs that process, which is replaced; pages that wait
go to the others, in the order of line.py.
"""

from __future__ import annotations

from asyncio import Future, TaskGroup, get_running_loop
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import structlog

from spyweb.clock import Clock
from spyweb.errors import ExtractionError
from spyweb.extraction import wire
from spyweb.extraction.line import MOST, Line
from spyweb.extraction.page import Extracted, Page
from spyweb.extraction.process import Errand, ExtractorProcess
from spyweb.extraction.wire import Check, Extract, plain
from spyweb.model import JobId

log = structlog.get_logger()

PROCESSES = 2  # that serve; one does until there is a page that would wait
SPARE = 1  # beyond those that are busy with slow pages: a selector is checked whatever pages do
LIMIT = 10.0  # seconds for one page: 10 MB take 1


@asynccontextmanager
async def open_extractor(clock: Clock, *, limit: float = LIMIT) -> AsyncIterator[Pool]:
    """`limit` is how many seconds one page may take, once its turn has come."""
    async with AsyncExitStack() as stack:
        tasks = await TaskGroup().__aenter__()
        stack.push_async_callback(tasks.__aexit__, None, None, None)  # an error of the caller's is not the group's
        pool = Pool(clock, tasks, limit)
        stack.callback(pool.close)
        yield pool


class Pool:
    """An Extractor, with processes."""

    def __init__(self, clock: Clock, tasks: TaskGroup, limit: float) -> None:
        self._clock = clock
        self._tasks = tasks
        self._limit = limit
        self._processes: list[ExtractorProcess] = []
        self._idle: list[ExtractorProcess] = []  # the latest used last: the other one's memory may be paged out
        self._line = Line()
        self._is_closed = False

    async def extract(self, page: Page) -> Extracted:
        """Raises ExtractionError."""
        answer = await self._run(
            Extract(
                size=len(page.body),
                content_type=plain(page.content_type or ""),
                url=plain(page.url),
                selector=plain(page.selector),
                fields=tuple((plain(field.selector), field.attribute) for field in page.fields),
            ),
            page.body,
            page.job,
            tuple(field.name for field in page.fields),
        )
        if isinstance(answer, str):
            raise ExtractionError(answer)
        return answer

    async def find_selector_problem(self, selector: str, *, of_field: bool = False) -> str | None:
        """What is wrong with it; None also where no process could be had to ask.

        A field's selector may be empty, and begin with + or ~.
        """
        try:
            answer = await self._run(Check(plain(selector), of_field))
        except ExtractionError as error:
            log.warning("a selector could not be checked", selector=selector, reason=str(error))
            return None
        return answer if isinstance(answer, str) else None

    async def _run(
        self, ask: Extract | Check, body: bytes = b"", job: JobId | None = None, names: tuple[str, ...] = ()
    ) -> Extracted | str:
        if self._is_closed:
            raise ExtractionError("the extractor is closed")
        answer: Future[Extracted | str] = get_running_loop().create_future()
        head = wire.frame(ask)
        self._line.add(Errand(job=job, selector=ask.selector, head=head, body=body, names=names, answer=answer))
        self._assign()
        return await answer

    def close(self) -> None:
        self._is_closed = True
        for process in self._processes:
            process.dismiss()
        self._fail_waiting("the extractor is closed")

    def _assign(self) -> None:
        while errand := self._line.find_next(self._in_hand()):
            if errand.answer.done():
                self._line.remove(errand)  # nobody waits for it any more
            elif process := self._take_idle():
                self._line.remove(errand)
                process.give(errand)
            else:
                self._hire_if_short()
                return

    def _in_hand(self) -> Counter[JobId]:
        errands = (process.errand for process in self._processes)
        return Counter(errand.job for errand in errands if errand and errand.job is not None)

    def _take_idle(self) -> ExtractorProcess | None:
        while self._idle:
            process = self._idle.pop()
            if process.serves:  # it may have died, and not be buried yet
                return process
        return None

    def _hire_if_short(self) -> None:
        serving = sum(process.serves for process in self._processes)
        starting = sum(not process.is_ready for process in self._processes)
        if serving >= PROCESSES or len(self._processes) >= MOST + SPARE:
            return
        if starting < self._line.count(self._in_hand()):
            process = ExtractorProcess(clock=self._clock, owner=self, limit=self._limit)
            self._processes.append(process)
            self._tasks.create_task(process.live(), name="extractor process")

    def _fail_waiting(self, reason: str) -> None:
        for errand in self._line.take_all():
            errand.fail(reason)

    # What the processes tell

    def idle(self, process: ExtractorProcess) -> None:
        self._idle.append(process)
        self._assign()
        if len(self._idle) > PROCESSES:
            self._idle.pop(0).dismiss()

    def missing(self) -> None:
        self._assign()

    def gone(self, process: ExtractorProcess, reason: str) -> None:
        """It is dead.  One that never got ready says that the next one would not either."""
        self._processes.remove(process)
        if process in self._idle:
            self._idle.remove(process)
        if not process.is_ready and not self._processes:
            self._fail_waiting(f"no extractor process could be started: {reason}")
        if not self._is_closed:
            self._assign()
