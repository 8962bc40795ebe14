"""A live page: a view of jobs as rows, a connection that a test reads from, and the hub between them."""

from __future__ import annotations

import re
from asyncio import TaskGroup
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from spyweb.model import JobId
from spyweb.runs.live import JobChange
from spyweb.service.page_hub import PageHub, PageStream, PageView
from spyweb.views.events import EventType, JobHappened, LogHappened
from tests.fakes.clock import FakeClock
from tests.fakes.listening import Listening

FRAME = re.compile(r"event: (?P<event>\w+)\n(?:id: (?P<id>\S+)\n)?(?P<data>(?:data:.*\n?)*)", re.MULTILINE)


@dataclass(slots=True)
class Rows:
    """What a page shows: a count for each job, and how often each row was rendered."""

    counts: dict[str, int] = field(default_factory=dict)
    rendered: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    trouble: Exception | None = None


@dataclass(frozen=True, slots=True)
class LinesView:
    """A log as a list of lines."""

    job: JobId

    def whole(self, lines: Sequence[LogHappened]) -> str:
        return f'<ol id="log">{"".join(f"<li>{line.text}" for line in lines)}</ol>'

    def more(self, lines: Sequence[LogHappened], left_out: int) -> str:
        note = f'<li data-into="log">{left_out} left out' if left_out else ""
        return note + "".join(f'<li data-into="log">{line.text}' for line in lines)


@dataclass(slots=True)
class RowsView:
    rows: Rows
    key: Hashable = "rows"
    needs: frozenset[EventType] = frozenset({EventType.RUN, EventType.JOB})
    log: LinesView | None = None

    def parts(self, subject: str) -> Sequence[str] | None:
        kind, _, job = subject.partition(":")
        if kind == "jobs":
            return None
        return [f"row-{job}", "verdict"] if kind == "job" else ()

    async def render(self, parts: Sequence[str]) -> Mapping[str, str]:
        if self.rows.trouble:
            raise self.rows.trouble
        self.rows.rendered += parts
        return {part: self._one(part) for part in parts if part not in self.rows.gone}

    def _one(self, part: str) -> str:
        job = part.removeprefix("row-")
        shown = sum(self.rows.counts.values()) if part == "verdict" else self.rows.counts.get(job, 0)
        return f'<p id="{part}">{shown}</p>\n'


@dataclass(slots=True)
class FakeSink:
    sent: list[str] = field(default_factory=list)
    unsent: int = 0
    is_gone: bool = False
    story: list[str] = field(default_factory=list)

    async def send(self, data: bytes) -> None:
        self.sent.append(data.decode())

    def abort(self) -> None:
        self.story.append("aborted")

    def end(self) -> None:
        self.story.append("ended")


@dataclass(slots=True)
class Page:
    """A page in a browser: what it shows by id, and where it is."""

    sink: FakeSink
    mark: str
    stream: PageStream | None
    shown: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    resets: int = 0
    events: int = 0

    def read(self) -> Page:
        for text in self.sink.sent:
            for frame in text.split("\n\n"):
                self._read(frame)
        self.sink.sent.clear()
        return self

    def _read(self, frame: str) -> None:
        fields: dict[str, list[str]] = {}
        for line in filter(None, frame.split("\n")):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        self.mark = fields["id"][0] if "id" in fields else self.mark
        if fields.get("event") == ["reset"]:
            self.resets += 1
        elif fields.get("event") == ["html"]:
            self.events += 1
            self._swap("\n".join(fields["data"]))

    def _swap(self, html: str) -> None:
        self.shown.update(re.findall(r'<p id="([^"]*)">([^<]*)</p>', html))
        if '<ol id="log">' in html:
            self.log = re.findall(r"<li>([^<]*)", html)
        self.log += re.findall(r'<li data-into="log">([^<]*)', html)


@dataclass(slots=True)
class Pages:
    listening: Listening
    hub: PageHub
    rows: Rows
    lines: list[str]

    @property
    def clock(self) -> FakeClock:
        return self.listening.clock

    def view(self, key: str = "rows", log: JobId | None = None) -> RowsView:
        return RowsView(self.rows, key=key, log=LinesView(log) if log else None)

    async def open(self, view: PageView | None = None, *, mark: str | None = None) -> Page:
        """Fetch a page and connect its stream; with a mark, only connect again."""
        view = view or self.view()
        given = mark or self.hub.mark(view)
        shown = {} if mark else {job: str(count) for job, count in self.rows.counts.items()}
        sink = FakeSink()
        page = Page(sink, given, self.hub.join(view, given, sink))
        page.shown.update({f"row-{job}": count for job, count in shown.items()})
        return page

    def change(self, *jobs: str) -> None:
        for job in jobs:
            self.rows.counts[job] = self.rows.counts.get(job, 0) + 1
            self.listening.run(JobId(job))

    def reload(self, job: str, what: JobChange = JobChange.LOADED) -> None:
        self.listening.hub.publish(EventType.JOB, JobId(job), JobHappened(what=what, job=JobId(job)))


@asynccontextmanager
async def live_pages() -> AsyncIterator[Pages]:
    listening = Listening(clock=FakeClock())
    lines: list[str] = []

    async def last_lines(job: JobId, count: int, note_place: Callable[[], None]) -> list[str]:
        note_place()
        return lines[-count:]

    async with TaskGroup() as tasks:
        hub = PageHub(events=listening.hub, clock=listening.clock, tasks=tasks, last_lines=last_lines)
        yield Pages(listening, hub, Rows(), lines)
        hub.close()
        await listening.clock.turn(1)
