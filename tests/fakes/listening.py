"""A hub of events whose sources are begun and ended by name, and what a client reads from its stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from spyweb.clock import Handle
from spyweb.events.happenings import EventType, LogHappened, RunHappened
from spyweb.events.hub import EventHub, Follower, Topic, Wish
from spyweb.model import JobId, RunId
from tests.fakes.clock import FakeClock

PRICES, BACKUP = JobId("prices"), JobId("backup")
BOOT = "b00t"
RUNS = Wish(types=frozenset({EventType.RUN}))


class LooplessClock(FakeClock):
    """A clock for callbacks alone: what is to be called at once is called when the test turns it."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Handle:
        return super().call_later(max(seconds, 1e-9), callback)


@dataclass(slots=True)
class FakeSources:
    """Notes which topics are being told of, in a story of what was begun and ended."""

    going: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def begin(self, _hub: EventHub, topic: Topic) -> Callable[[], None]:
        name = f"{topic.type}:{topic.job}" if topic.job else topic.type.value
        self.going.append(name)
        self.story.append(f"begin {name}")

        def end() -> None:
            self.going.remove(name)
            self.story.append(f"end {name}")

        return end


@dataclass(slots=True)
class Listening:
    clock: FakeClock = field(default_factory=LooplessClock)
    sources: FakeSources = field(default_factory=FakeSources)
    hub: EventHub = field(init=False)
    runs: int = 0

    def __post_init__(self) -> None:
        self.hub = EventHub(self.clock, BOOT, self.sources.begin)

    def run(self, job: JobId = PRICES) -> int:
        """Publish a run that began; return its number."""
        self.runs += 1
        happened = RunHappened(what="began", job=job, run=RunId(self.runs))
        self.hub.publish(EventType.RUN, job, happened)
        return self.runs

    def line(self, text: str, job: JobId = PRICES) -> None:
        self.hub.publish(EventType.LOG, job, LogHappened(job=job, level="info", text=text, at_ms=1))

    def follow(self, wish: Wish = RUNS, mark: str | None = None) -> Client:
        return Client(self.hub, wish, mark)


class Client:
    """Follows a hub and reads what it is sent, as a browser would."""

    def __init__(self, hub: EventHub, wish: Wish, mark: str | None = None) -> None:
        self.mark = mark
        self.woken = 0
        self.resets = 0
        self.runs: list[int] = []
        self.frames: list[str] = []
        self.follower: Follower = hub.follow(wish, mark, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def read_once(self) -> int:
        """Take once; return how many bytes."""
        data = self.follower.take()
        for frame in data.decode().split("\n\n")[:-1]:
            self._read(frame)
        return len(data)

    def read(self) -> Client:
        while self.read_once():
            pass
        return self

    def _read(self, frame: str) -> None:
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        self.mark = fields.get("id", self.mark)
        if "event" not in fields:
            return
        self.frames.append(frame)
        if fields["event"] == "reset":
            self.resets += 1
        elif fields["event"] == "run":
            self.runs.append(int(re.findall(r'"run":(\d+)', fields["data"])[0]))

    def leave(self) -> str | None:
        """Hang up; return the mark to come back with."""
        self.follower.leave()
        return self.mark
