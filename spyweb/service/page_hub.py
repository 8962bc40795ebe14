"""Keep open pages up to date: every half second each is sent what has changed, as it is now.

What is pushed is state, not history: a stream is one number, the last change that its page has seen.  Whoever comes
back, or reads too slowly, is sent each part that has changed since then, once, as it is now; so there is no buffer of
events to bound.

**How a page takes part.**  A page has parts: elements with ids, each made by one template, by the page and here alike.
It has a `PageView`, made anew for each request, which says what its parts depend on and renders them:

    view = OverviewView(service, principal)     # implements PageView
    mark = pages.mark(view)                     # first: from then on nothing is missed
    html = await pages.html(view, ids)          # the parts: those that are kept, and the others made in slices
    return Shown(..., live=f"view=overview&since={mark}")

The browser opens `{base}live?view=overview&since=MARK`, and the same view is made of that by its name:

    @live_view("overview")                      # web/pages/page.py; of `view=job:ID` the argument is `ID`
    def overview_view(asked: Asked, argument: str) -> OverviewView: ...

**Subjects** are what changes, as short texts: `job:ID` for anything about a job or its runs, `jobs` when one came or
went or can't be loaded, `records` for new ones, `state:NAMESPACE`, `outbox`, `health`, `incident`, `audit`.
`PageView.parts` maps each to the ids of the parts that may look different; None has the whole page fetched anew
(`event: reset`), as for another order.

**A log** is history after all: a view with a `log` is sent the last lines on connecting, as one part (`PageLog.whole`),
and then what is added (`PageLog.more`): elements with `data-into`, the id of the element to append to.
"""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

import structlog
from msgspec import Struct, field

from spyweb.clock import Clock
from spyweb.cooperative import within
from spyweb.errors import SpywebError
from spyweb.model import MIB, JobId
from spyweb.runs.live import JobChange
from spyweb.service.events import Event, EventHub, Topic
from spyweb.views.events import EventType, JobHappened, LogHappened, RunHappened, StateHappened, lines_in_file

TICK_S = 0.5  # between two batches
TOGETHER = 25  # streams written, and parts rendered at a time, before others have their turn
MOST_PARTS = 100  # of one event; whoever lacks more gets those that changed first, and the others at later ticks
STALLED_S = 30.0  # without reading, after which it is hung up on
QUIET_S = 15.0  # after which a stream gets a sign of life
LINGER_S = 60.0  # how long changes are counted, and parts are kept, after the last stream
MOST_SUBJECTS = 20_000  # that are counted; of more, the longest unchanged are forgotten
MOST_HTML = 16 * MIB  # characters of rendered parts that are kept
LOG_LINES = 200  # of a log that a page is sent on connecting, and at most at a time

RESET = b"event: reset\ndata:\n\n"
ANOTHER_LIST = frozenset({JobChange.LOADED, JobChange.REMOVED, JobChange.BROKEN, JobChange.MENDED})

log = structlog.get_logger()


class PageLog(Protocol):
    """The log of a job, as a page shows it."""

    @property
    def job(self) -> JobId: ...

    def whole(self, lines: Sequence[LogHappened]) -> str:
        """Return the element with the last lines."""

    def more(self, lines: Sequence[LogHappened], left_out: int) -> str:
        """Return elements with `data-into`, to be appended; `left_out` lines came before them that are not shown."""


class PageView(Protocol):
    """The parts of a page that can change, and what they depend on.  One is made for each request."""

    @property
    def key(self) -> Hashable:
        """Return the same for views that look the same: they share what is rendered."""

    @property
    def needs(self) -> frozenset[EventType]:
        """Return the types of events that the parts depend on; without LOG, for which see `log`."""

    @property
    def log(self) -> PageLog | None:
        """Return the log that is shown, if one is."""

    def parts(self, subject: str) -> Sequence[str] | None:
        """Return the ids of the parts that depend on it; none: nothing does; None: fetch the page anew."""

    async def render(self, parts: Sequence[str]) -> Mapping[str, str]:
        """Return each part as it is now, an element with this id; of one that is no more, nothing."""


class PageSink(Protocol):
    """The connection to one page."""

    @property
    def is_gone(self) -> bool: ...

    @property
    def unsent(self) -> int:
        """Return how many bytes the client has not taken yet."""

    async def send(self, data: bytes) -> None:
        """Send without waiting for the client."""

    def abort(self) -> None: ...

    def end(self) -> None: ...


class PageStream(Struct, eq=False):
    view: PageView
    seen: int  # all changes up to this one were sent
    sink: PageSink
    sent_at: float  # monotonic
    log_seen: int | None = None  # how many lines of the log were told when it was sent the last; None: none yet
    stuck_since: float | None = None


class FollowedLog(Struct):
    """The newest lines of a job's log."""

    lines: deque[LogHappened] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    told: int = 0  # in all

    def hear(self, event: Event) -> None:
        if isinstance(event.happening, LogHappened):
            self.lines.append(event.happening)
            self.told += 1


class Batch(NamedTuple):
    """One event for all streams that have seen the same."""

    reached: int
    data: bytes  # empty: nothing has changed for them
    is_reset: bool = False


LastLines = Callable[[JobId, int, Callable[[], None]], Awaitable[list[str]]]


class PageHub:
    """All pages that are open; one tick serves them all, so that what is the same is made once."""

    def __init__(self, *, events: EventHub, clock: Clock, tasks: TaskGroup, last_lines: LastLines) -> None:
        """Take `last_lines`, which reads the end of a job's log, and calls a function at the moment of that end."""
        self._events = events
        self._clock = clock
        self._tasks = tasks
        self._last_lines = last_lines
        self._streams: set[PageStream] = set()
        self._is_serving = False
        self._changes: dict[str, int] = {}  # subject → number of its last change, in the order of these
        self._forgotten = 0  # changes up to this number are not all counted
        self._needed: dict[EventType, float] = {}  # what is listened to, and until when at least
        self._since: dict[EventType, int] = {}  # from which number on it is counted
        self._logs: dict[JobId, FollowedLog] = {}
        self._html: dict[tuple[Hashable, str], tuple[int, str]] = {}  # when it was rendered, as a number, and what
        self._html_size = 0
        self._woken: asyncio.Future[None] | None = None
        self._is_looking = False

    @property
    def open(self) -> int:
        return len(self._streams)

    # -- for the handlers of pages ---------------------------------------------------------------------------------

    def mark(self, view: PageView) -> str:
        """Return the mark of now, and count what changes from now on; to be called before a page is rendered."""
        self._count_changes(view.needs)
        return self._events.mark()

    async def html(self, view: PageView, parts: Sequence[str]) -> dict[str, str]:
        """Render parts, many at a time, giving way in between; those that are kept are not rendered anew."""
        return await self._up_to_date(view, parts, self._newest_changes(view))

    # -- for streams -----------------------------------------------------------------------------------------------

    def join(self, view: PageView, mark: str, sink: PageSink) -> PageStream | None:
        """Add a stream whose page has this mark; None: nothing can be told from it, the page must be fetched anew."""
        seen = self._events.read(mark)
        self._count_changes(view.needs)
        if seen is None or seen < self._counted_from(view):
            return None
        stream = PageStream(view, seen, sink, self._clock.monotonic())
        self._streams.add(stream)
        if view.log is not None:
            self._follow_log(view.log.job)
        if not self._is_serving:
            self._is_serving = True
            self._tasks.create_task(self._serve(), name="live pages")
        return stream

    def leave(self, stream: PageStream) -> None:
        self._streams.discard(stream)
        if not self._streams and self._woken and not self._woken.done():
            self._woken.set_result(None)

    def close(self) -> None:
        """End all streams: the server is about to wait for them."""
        for stream in tuple(self._streams):
            stream.sink.end()
            self.leave(stream)

    # -- what changes ----------------------------------------------------------------------------------------------

    def _count_changes(self, needs: frozenset[EventType]) -> None:
        until = self._clock.monotonic() + LINGER_S
        for kind in needs:
            if kind not in self._needed:
                self._events.listen(Topic(kind), self._hear)
                self._since[kind] = self._events.number
            self._needed[kind] = until
        if not self._is_looking:
            self._is_looking = True
            self._clock.call_later(LINGER_S, self._look)

    def _look(self) -> None:
        """Stop counting what no page has needed for a while."""
        now = self._clock.monotonic()
        for stream in self._streams:
            self._needed.update(dict.fromkeys(stream.view.needs, now + LINGER_S))
        for kind in [kind for kind, until in self._needed.items() if until <= now]:
            del self._needed[kind]
            self._events.unlisten(Topic(kind), self._hear)
        shown = {stream.view.log.job for stream in self._streams if stream.view.log}
        for job in [job for job in self._logs if job not in shown]:
            self._events.unlisten(Topic(EventType.LOG, job), self._logs.pop(job).hear)
        self._is_looking = bool(self._needed or self._logs)
        if self._is_looking:
            self._clock.call_later(LINGER_S, self._look)
        if not self._needed:
            self._changes.clear()
            self._html.clear()
            self._html_size = 0

    def _hear(self, event: Event) -> None:
        for subject in subjects_of(event):
            self._changes.pop(subject, None)
            self._changes[subject] = event.number
        while len(self._changes) > MOST_SUBJECTS:
            oldest = next(iter(self._changes))
            self._forgotten = self._changes.pop(oldest)

    def _counted_from(self, view: PageView) -> int:
        """Return the number from which on all changes are counted that this view depends on."""
        return max((self._forgotten, *(self._since[kind] for kind in view.needs)))

    def _newest_changes(self, view: PageView) -> dict[str, int]:
        """Return each part that has changed, with the number of its last change."""
        newest: dict[str, int] = {}
        for subject, number in self._changes.items():  # in the order of the numbers
            newest.update(dict.fromkeys(view.parts(subject) or (), number))
        return newest

    # -- ticks -----------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Serve the streams until there are none."""
        try:
            while self._streams:
                await self.tick()
                self._woken = asyncio.get_running_loop().create_future()
                if self._streams:
                    await within(self._clock, TICK_S, self._woken)
        finally:
            self._is_serving = False

    async def tick(self) -> None:
        """Send each stream what it lacks."""
        made: dict[tuple[Hashable, int], Batch] = {}
        for count, stream in enumerate(tuple(self._streams)):
            if count % TOGETHER == TOGETHER - 1:
                await self._clock.sleep(0)  # jobs come first
            if stream.sink.is_gone:
                stream.sink.end()
                self.leave(stream)
            elif not self._is_stuck(stream):
                await self._serve_one(stream, made)

    async def _serve_one(self, stream: PageStream, made: dict[tuple[Hashable, int], Batch]) -> None:
        try:
            await self._bring_up_to_date(stream, made)
        except Exception as error:  # the boundary of one page: a bug in it must not end the others
            log.error("a live page met a bug in spyweb", exc_info=error)
            stream.sink.end()
            self.leave(stream)

    def _is_stuck(self, stream: PageStream) -> bool:
        """Return whether the client has not taken yet what it was sent; for too long, and it is hung up on."""
        now = self._clock.monotonic()
        if not stream.sink.unsent:
            stream.stuck_since = None
            return False
        if stream.stuck_since is None:
            stream.stuck_since = now
        elif now - stream.stuck_since >= STALLED_S:
            stream.sink.abort()
            self.leave(stream)
        return True

    async def _bring_up_to_date(self, stream: PageStream, made: dict[tuple[Hashable, int], Batch]) -> None:
        what = stream.view.key, stream.seen
        if what not in made:
            made[what] = await self._batch(stream.view, stream.seen)
        batch = made[what]
        stream.seen = batch.reached
        data = batch.data
        if batch.is_reset:
            await stream.sink.send(RESET)
            stream.sink.end()
            self.leave(stream)
            return
        if stream.view.log is not None:
            data += await self._log_batch(stream, stream.view.log)
        if not data and self._clock.monotonic() - stream.sent_at >= QUIET_S:
            data = b"id: %s\n\n" % self._events.mark(stream.seen).encode()
        if data:
            stream.sent_at = self._clock.monotonic()
            await stream.sink.send(data)

    async def _batch(self, view: PageView, seen: int) -> Batch:
        """Make one event: what has changed after `seen`, oldest first, and how far that goes."""
        if seen < self._counted_from(view):
            return Batch(seen, b"", is_reset=True)
        now = self._events.number
        newest: dict[str, int] = {}  # part → number of its last change
        order: dict[str, int] = {}  # part → number of its first
        for subject, number in self._changed_after(seen):
            parts = view.parts(subject)
            if parts is None:
                return Batch(seen, b"", is_reset=True)
            for part in parts:
                newest[part] = number
                order.setdefault(part, number)
        if not order:
            return Batch(now, b"")
        wanted, reached = first_parts(order, now)
        html = await self._up_to_date(view, wanted, newest)
        if len(html) < len(wanted):
            return Batch(seen, b"", is_reset=True)
        return Batch(reached, frame_html(self._events.mark(reached), "".join(html[part] for part in wanted)))

    def _changed_after(self, seen: int) -> list[tuple[str, int]]:
        found = []
        for subject, number in reversed(self._changes.items()):
            if number <= seen:
                break
            found.append((subject, number))
        found.reverse()
        return found

    async def _up_to_date(self, view: PageView, parts: Sequence[str], newest: Mapping[str, int]) -> dict[str, str]:
        """Return parts from what is kept, as far as it is not older than their last change, and render the others."""
        since = self._counted_from(view)
        found: dict[str, str] = {}
        lacking = []
        for part in parts:
            kept = self._html.get((view.key, part))
            if kept is not None and kept[0] >= newest.get(part, since):
                found[part] = kept[1]
            else:
                lacking.append(part)
        for start in range(0, len(lacking), TOGETHER):
            if start:
                await self._clock.sleep(0)
            found.update(await self._render(view, lacking[start : start + TOGETHER]))
        return found

    async def _render(self, view: PageView, parts: Sequence[str]) -> Mapping[str, str]:
        """Render parts and keep them: for whoever looks at the same, and is as far."""
        number = self._events.number
        html = await view.render(parts)
        if self._html_size > MOST_HTML:
            self._html.clear()
            self._html_size = 0
        for part, text in html.items():
            self._html_size += len(text)
            self._html[view.key, part] = number, text
        return html

    # -- logs ------------------------------------------------------------------------------------------------------

    def _follow_log(self, job: JobId) -> FollowedLog:
        followed = self._logs.get(job)
        if followed is None:
            followed = self._logs[job] = FollowedLog()
            self._events.listen(Topic(EventType.LOG, job), followed.hear)
        return followed

    async def _log_batch(self, stream: PageStream, shown: PageLog) -> bytes:
        followed = self._follow_log(shown.job)
        mark = self._events.mark(stream.seen)
        if stream.log_seen is None:
            lines = await self._last_of(shown.job, followed, stream)
            return frame_html(mark, shown.whole(lines))
        count = followed.told - stream.log_seen
        if not count:
            return b""
        stream.log_seen = followed.told
        newest = list(followed.lines)[-count:]
        return frame_html(mark, shown.more(newest, count - len(newest)))

    async def _last_of(self, job: JobId, followed: FollowedLog, stream: PageStream) -> list[LogHappened]:
        def note_place() -> None:
            stream.log_seen = followed.told

        note_place()  # where the file can't be read, only what comes is shown
        try:
            return lines_in_file(job, await self._last_lines(job, LOG_LINES, note_place))
        except SpywebError:
            return []


def first_parts(order: Mapping[str, int], now: int) -> tuple[list[str], int]:
    """Choose the parts that changed first, and return them with the number up to which all are among them."""
    if len(order) <= MOST_PARTS:
        return list(order), now
    parts = list(order)
    reached = order[parts[MOST_PARTS]] - 1
    reached = max(reached, order[parts[0]])  # where one change alone has more parts, all of these
    return [part for part in parts if order[part] <= reached], reached


def subjects_of(event: Event) -> list[str]:
    """Return what an event changes."""
    happening = event.happening
    match event.type:
        case EventType.RUN:
            has_records = isinstance(happening, RunHappened) and happening.items_new
            return [f"job:{event.job}", *(["records"] if has_records else [])]
        case EventType.JOB:
            is_another_list = isinstance(happening, JobHappened) and happening.what in ANOTHER_LIST
            return [f"job:{event.job}", *(["jobs"] if is_another_list else [])]
        case EventType.STATE:
            return [f"state:{happening.namespace}"] if isinstance(happening, StateHappened) else []
        case _:
            return [event.type.value]


def frame_html(mark: str, html: str) -> bytes:
    """Return an event of fragments.  A line of data ends at CR too: what a script has written may contain one."""
    lines = html.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    data = "\ndata: ".join(lines)
    return f"event: html\nid: {mark}\ndata: {data}\n\n".encode("utf-8", "backslashreplace")
