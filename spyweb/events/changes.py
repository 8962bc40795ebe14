"""Notify open pages of changes: each page then fetches the changed parts, as its viewer may see them.

A page has parts, elements with ids, and each part depends on subjects, short texts: `job:ID` for a job and its runs,
`jobs` when a job was added, removed or does not load, `standing` for the navigation of every page, `run:ID`, `tasks:ID`
for the tasks of a job's runs, `log:ID`, `records` for new ones, `state:NAMESPACE`, `outbox`, `health`, `incident`,
`audit`; `job:*` is those of all jobs.

A page knows one number, its mark.  A stream reports that something has changed since then (`follow`), and `changed`
returns the changed parts, by the events that events/hub.py keeps.  Where these do not reach back to the mark, the
whole page is rendered; so a mark that is lost, or sent twice, does no harm.
"""

from __future__ import annotations

from asyncio import Semaphore
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache

from msgspec import Struct

from spyweb.clock import Clock, Handle
from spyweb.errors import PoolError, SpywebError
from spyweb.events.happenings import (
    EventType,
    JobHappened,
    LogHappened,
    RunHappened,
    StateHappened,
    TaskHappened,
    lines_in_file,
)
from spyweb.events.hub import RETRY_MS, Event, EventHub, Topic
from spyweb.model import JobId
from spyweb.runs.live import JobChange
from spyweb.store.patterns import is_within

TICK_S = 0.5  # between two checks for changes, at least
MOST_TICKS = 10  # that are skipped while pages still fetch earlier changes
ROOM = 4  # after a fetch, the next waits this many times as long as it took: pages get a fifth of the loop at most
MOST_WAITING = 256  # fetches, as there may be pages
LOG_LINES = 200  # of a log: shown at first, and sent at a time
ANOTHER_LIST = frozenset({JobChange.LOADED, JobChange.REMOVED, JobChange.BROKEN, JobChange.MENDED})
TYPES = {
    "job": (EventType.RUN, EventType.JOB),
    "jobs": (EventType.JOB,),
    "run": (EventType.RUN, EventType.TASK),
    "tasks": (EventType.TASK,),
    "records": (EventType.RUN,),
    "standing": (EventType.RUN, EventType.JOB, EventType.HEALTH, EventType.INCIDENT),
}

LastLines = Callable[[JobId, int, Callable[[], None]], Awaitable[list[str]]]
PartSubjects = tuple[tuple[str, tuple[str, ...]], ...]


class Shows(Struct, frozen=True):
    """The parts of a page that one viewer sees, each with the subjects that it depends on; "" is the whole page."""

    parts: PartSubjects
    jobs: tuple[str, ...] = ()  # patterns of the jobs that the viewer may see; none: all

    def topics(self) -> set[Topic]:
        """Return the topics of the events that change a part."""
        found = set[Topic]()
        for subject in index_of(self.parts):
            kind, _, name = subject.partition(":")
            job = JobId(name) if kind == EventType.LOG else None
            found.update(Topic(each, job) for each in TYPES.get(kind) or (EventType(kind),))
        return found

    def parts_of(self, subject: str) -> Iterator[str]:
        """Yield the parts that depend on a subject."""
        kind, _, name = subject.partition(":")
        if kind == "job" and not is_within(self.jobs, name):
            return
        index = index_of(self.parts)
        for part in (*index.get(subject, ()), *index.get(f"{kind}:*", ())):
            yield part.replace("*", name)


@lru_cache(256)
def index_of(parts: PartSubjects) -> Mapping[str, list[str]]:
    """Return the parts by the subjects that they depend on."""
    index: dict[str, list[str]] = {}
    for part, subjects in parts:
        for subject in subjects:
            index.setdefault(subject, []).append(part)
    return index


class ChangeHub:
    """The open pages, and the changes for each."""

    def __init__(self, *, events: EventHub, clock: Clock, last_lines: LastLines) -> None:
        """Take `last_lines`, which reads the end of a job's log, and calls a function at that moment."""
        self.events = events
        self._clock = clock
        self._last_lines = last_lines
        self.pages: set[PageFollower] = set()
        self._turn = Semaphore(1)
        self._waiting = 0  # for their turn, also for clients that have disconnected
        self._timer: Handle | None = None
        self._passed_over = 0

    def mark(self, shows: Shows) -> str:
        """Return the current mark, from which on no event is missed; call it before anything is read."""
        for topic in shows.topics():
            self.events.keep(topic)
        return self.events.mark()

    def knows(self, shows: Shows, mark: str) -> bool:
        """Return whether all changes since a mark are known."""
        seen = self.events.read(mark)
        return seen is not None and seen >= self.events.complete_from(shows.topics())

    def changed(self, shows: Shows, mark: str) -> list[str] | None:
        """Return the parts that have changed since a mark; None: not all changes are known, render the whole page."""
        if not self.knows(shows, mark):
            return None
        subjects = self._subjects(shows.topics(), self.events.read(mark) or 0)
        parts = {part for subject in subjects for part in shows.parts_of(subject)}
        return None if "" in parts else sorted(parts)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Serve fetches one after the other, with room for jobs in between.  Raises PoolError where too many wait."""
        if self._waiting >= MOST_WAITING:
            raise PoolError("too many pages are being brought up to date: try again")
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._clock.call_later(ROOM * (self._clock.monotonic() - began), self._turn.release)

    def follow(self, shows: Shows, mark: str, wake: Callable[[], None]) -> PageFollower:
        """Notify a page of changes after its mark: `wake` is called when there is something to take."""
        self.mark(shows)
        page = PageFollower(self, shows, self.events.read(mark) or 0, wake)
        self.pages.add(page)
        if self._timer is None:
            self._timer = self._clock.call_later(TICK_S, self._tick)
        return page

    def _tick(self) -> None:
        """Notify the pages with changes, once the pages that were notified before have fetched theirs."""
        self._timer = None
        if not self.pages:
            return
        self._timer = self._clock.call_later(TICK_S, self._tick)
        shown = {topic for shows in {page.shows for page in self.pages} for topic in shows.topics()}
        for topic in shown:
            self.events.keep(topic)
        self._passed_over += 1
        if self._turn.locked() and self._passed_over < MOST_TICKS:
            return
        self._passed_over = 0
        now = self.events.number
        subjects = {seen: self._subjects(shown, seen) for seen in {page.seen for page in self.pages}}
        touched: dict[tuple[Shows, int], bool] = {}
        for page in self.pages:
            case = shows, seen = page.shows, page.seen
            if case not in touched:
                may_have = seen < self.events.complete_from(shows.topics())  # not all changes are known
                touched[case] = may_have or any(True for each in subjects[seen] for _ in shows.parts_of(each))
            page.seen = now
            if touched[case]:
                page.has_more = True
                self.events.wake_soon(page.wake)

    def _subjects(self, topics: Iterable[Topic], seen: int) -> set[str]:
        return {subject for event in self.events.after(topics, seen) for subject in subjects_of(event)}

    def log_between(self, job: JobId, since: str, mark: str) -> list[LogHappened]:
        """Return the lines of a job's log between two marks: a page has the lines up to its own mark."""
        first, last = self.events.read(since) or 0, self.events.read(mark) or 0
        return [line for number, line in self._lines_after(job, first) if number <= last]

    async def log_until(self, job: JobId, mark: str) -> list[LogHappened]:
        """Return the last lines of a job's log up to a mark; none where the log can't be read."""
        seen, later = self.events.read(mark) or 0, 0

        def note_place() -> None:
            nonlocal later
            later = len(self._lines_after(job, seen))

        try:
            lines = lines_in_file(job, await self._last_lines(job, LOG_LINES, note_place))
        except SpywebError:
            return []
        return lines[: max(0, len(lines) - later)]

    def _lines_after(self, job: JobId, seen: int) -> list[tuple[int, LogHappened]]:
        found = self.events.after([Topic(EventType.LOG, job)], seen)
        return [(each.number, each.happening) for each in found if isinstance(each.happening, LogHappened)]


class PageFollower:
    """One open page, to which a stream sends marks: each reports a change up to there."""

    def __init__(self, hub: ChangeHub, shows: Shows, seen: int, wake: Callable[[], None]) -> None:
        self.shows = shows
        self.seen = seen  # it was notified of all changes up to this number
        self.wake = wake
        self.has_more = False
        self._hub = hub
        self._greeting = b"retry: %d\n\n" % RETRY_MS

    @property
    def mark(self) -> str:
        return self._hub.events.mark(self.seen)

    def take(self) -> bytes:
        """Return the next bytes to send; none where all were sent."""
        data, self._greeting = self._greeting, b""
        if self.has_more:
            self.has_more = False
            data += b"id: %s\ndata:\n\n" % self.mark.encode()
        return data

    def leave(self) -> None:
        self._hub.pages.discard(self)


def subjects_of(event: Event) -> list[str]:
    """Return the subjects that an event changes."""
    happening, job = event.happening, event.job
    match happening:
        case RunHappened():
            more = ["records"] * bool(happening.items_new) + ["standing"] * event.changes_standing
            return [f"job:{job}", f"run:{happening.run}", *more]
        case JobHappened():
            return [f"job:{job}", "standing", *(["jobs"] if happening.what in ANOTHER_LIST else [])]
        case StateHappened():
            return [f"state:{happening.namespace}"]
        case TaskHappened():
            return [f"run:{happening.run}", f"tasks:{job}"]
        case LogHappened():
            return [f"log:{job}"]
        case _ if event.type in (EventType.HEALTH, EventType.INCIDENT):
            return [event.type.value, "standing"]
        case _:
            return [event.type.value]
