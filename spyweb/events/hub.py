"""Number the events of the daemon, and hand them to listeners.

No event is made or kept while nobody listens.  From the first listener on, the newest events are kept for a client that
reconnects with the mark of the last event it has seen: it gets all events since, or a note that some are missing.
A listener pulls; so one that reads slowly holds nothing but its place.

    follower = hub.follow(Wish(types=frozenset({EventType.RUN})), mark, wake)
    data = follower.take()      # whenever `wake` was called, until it is empty
    follower.leave()

Events come from sources.  A source starts with the first listener to a topic, and ends a while after the last one: a
client that was disconnected finds the events of that time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct, field

from spyweb.clock import Clock, Handle
from spyweb.events.happenings import EventType, Happening, frame_of
from spyweb.model import MIB, JobId

MOST_KEPT = 2_000  # events
MOST_KEPT_BYTES = 2 * MIB
COSTS = 400  # bytes of an event beside its frame
LINGER_S = 60.0  # how long a source goes on after its last listener
MOST_TAKEN = 32 * 1024  # bytes at a time; the last event may exceed it
WOKEN_AT_ONCE = 25  # listeners; then others have their turn
RETRY_MS = 3_000  # after which a disconnected client reconnects
LONGEST_NUMBER = 15  # digits of a mark's number


class Topic(NamedTuple):
    """A type of event; of the lines of logs, those of one job."""

    type: EventType
    job: JobId | None = None


class Event(Struct, frozen=True, gc=False):
    number: int
    type: EventType
    job: JobId | None
    happening: Happening
    frame: bytes
    at_ms: int  # when the hub heard of it
    changes_standing: bool = False  # a run has ended with another outcome than the one before it


class Wish(Struct, frozen=True, kw_only=True):
    """The events that a listener wants, and the jobs that it may see."""

    types: frozenset[EventType]
    job: JobId | None = None  # only events of this job; required for lines of logs
    may_see: Callable[[JobId], bool] | None = None  # the jobs that the listener may see; None: everything

    def topics(self) -> Iterator[Topic]:
        for kind in self.types:
            if kind is not EventType.LOG:
                yield Topic(kind)
            elif self.job is not None:
                yield Topic(kind, self.job)

    def takes(self, event: Event) -> bool:
        job = event.job
        if self.job is not None and job != self.job:
            return False
        return self.may_see is None or (job is not None and self.may_see(job))


class KeptEvents(Struct):
    """The newest events of one topic."""

    since: int  # events up to this number may be missing
    events: deque[Event] = field(default_factory=deque)
    ears: list[Callable[[Event], None]] = field(default_factory=list)
    end: Callable[[], None] = field(default=lambda: None)
    timer: Handle | None = None  # until it is forgotten, while nobody listens


Begin = Callable[["EventHub", Topic], Callable[[], None]]


class EventHub:
    """The hub of the daemon; only the loop's thread may call it."""

    def __init__(self, clock: Clock, boot: str, begin: Begin) -> None:
        """Take `boot`, which differs at each start, and a function that starts a source and returns its end."""
        self._clock = clock
        self._boot = boot
        self._begin = begin
        self._kept: dict[Topic, KeptEvents] = {}
        self._size = 0
        self._count = 0
        self._waking: deque[Callable[[], None]] = deque()
        self.number = 0  # of the newest event

    def wants(self, topic: Topic) -> bool:
        return topic in self._kept

    def publish(
        self, kind: EventType, job: JobId | None, happening: Happening, *, changes_standing: bool = False
    ) -> None:
        """Number an event, keep it, and hand it to the listeners of its topic."""
        kept = self._kept.get(Topic(kind, job if kind is EventType.LOG else None))
        if kept is None:
            return
        self.number += 1
        frame = frame_of(kind, self.mark(self.number), happening)
        event = Event(self.number, kind, job, happening, frame, self._clock.now_ms(), changes_standing)
        kept.events.append(event)
        self._count += 1
        self._size += _size_of(event)
        while self._count > MOST_KEPT or self._size > MOST_KEPT_BYTES:
            # A busy topic does not push out the events of others.
            fullest = max(self._kept.values(), key=lambda each: len(each.events))
            dropped = fullest.events.popleft()
            fullest.since = dropped.number
            self._count -= 1
            self._size -= _size_of(dropped)
        for ear in tuple(kept.ears):
            ear(event)

    def mark(self, number: int | None = None) -> str:
        """Return the mark by which a client continues from there."""
        return f"{self._boot}-{self.number if number is None else number}"

    def read(self, mark: str) -> int | None:
        """Return the number of a mark; None where it is of another daemon, or in the future."""
        boot, _, digits = mark.partition("-")
        if boot != self._boot or len(digits) > LONGEST_NUMBER or not (digits.isascii() and digits.isdigit()):
            return None
        number = int(digits)
        return number if number <= self.number else None

    def follow(self, wish: Wish, mark: str | None, wake: Callable[[], None]) -> Follower:
        """Follow from a mark, or from now on; `wake` is called when there is something to take."""
        follower = Follower(self, wish, wake)
        for topic in wish.topics():
            self.listen(topic, follower.hear)
        follower.begin(mark)
        return follower

    def listen(self, topic: Topic, ear: Callable[[Event], None]) -> None:
        """Call `ear` with each event of this topic, until `unlisten`."""
        kept = self._kept.get(topic)
        if kept is None:
            self.number += 1  # so that an earlier mark is not taken for complete
            kept = self._kept[topic] = KeptEvents(self.number)
            kept.end = self._begin(self, topic)
        if kept.timer:
            kept.timer.cancel()
            kept.timer = None
        kept.ears.append(ear)

    def unlisten(self, topic: Topic, ear: Callable[[Event], None]) -> None:
        kept = self._kept[topic]
        kept.ears.remove(ear)
        if not kept.ears:
            kept.timer = self._clock.call_later(LINGER_S, partial(self._forget, topic))

    def keep(self, topic: Topic) -> None:
        """Keep events of this topic for a while, though nobody listens."""
        self.listen(topic, _nobody)
        self.unlisten(topic, _nobody)

    def _forget(self, topic: Topic) -> None:
        kept = self._kept.pop(topic)
        kept.end()
        self._count -= len(kept.events)
        self._size -= sum(map(_size_of, kept.events))

    def after(self, topics: Iterable[Topic], seen: int) -> Iterator[Event]:
        """Yield the kept events after a number, in their order."""
        kept = (self._kept[topic].events for topic in topics if topic in self._kept)
        # From the end, since most followers are not far behind.
        newer = (list(takewhile(lambda event: event.number > seen, reversed(events))) for events in kept)
        return merge(*map(reversed, newer), key=attrgetter("number"))

    def newest(self, wish: Wish, *, limit: int, before: int | None = None) -> list[Event]:
        """Return kept and wanted events, newest first, with numbers below `before`."""
        kept = [reversed(self._kept[topic].events) for topic in wish.topics() if topic in self._kept]
        found = merge(*kept, key=attrgetter("number"), reverse=True)
        wanted = (event for event in found if (before is None or event.number < before) and wish.takes(event))
        return list(islice(wanted, limit))

    def complete_from(self, topics: Iterable[Topic]) -> int:
        """Return the number from which on no event of these topics is missing."""
        return max((self._kept[topic].since if topic in self._kept else self.number + 1 for topic in topics), default=0)

    def wake_soon(self, wake: Callable[[], None]) -> None:
        """Call this in one of the next rounds of the loop: very many calls at once would hold it up."""
        self._waking.append(wake)
        if len(self._waking) == 1:
            self._clock.call_later(0, self._wake_some)

    def _wake_some(self) -> None:
        for _ in range(min(WOKEN_AT_ONCE, len(self._waking))):
            self._waking.popleft()()
        if self._waking:
            self._clock.call_later(0, self._wake_some)


class Follower:
    """A listener with a place in the events; it keeps no events."""

    def __init__(self, hub: EventHub, wish: Wish, wake: Callable[[], None]) -> None:
        self._hub = hub
        self._wish = wish
        self._wake = wake
        self._seen = 0  # it has taken all wanted events up to this number
        self._has_more = False
        self._greeting = b""

    def begin(self, mark: str | None) -> None:
        """Set the place; called once its topics are kept."""
        number = None if mark is None else self._hub.read(mark)
        if number is not None and number >= self._hub.complete_from(self._wish.topics()):
            self._seen, self._has_more = number, True
            self._greeting = b"retry: %d\n\n" % RETRY_MS
        elif mark is None:
            self._seen = self._hub.number
            self._greeting = b"retry: %d\nid: %s\n\n" % (RETRY_MS, self._hub.mark().encode())
        else:
            self._greeting = b"retry: %d\n" % RETRY_MS + self._reset()

    def hear(self, event: Event) -> None:
        if self._has_more or not self._wish.takes(event):
            return
        self._seen, self._has_more = event.number - 1, True
        self._hub.wake_soon(self._wake)

    @property
    def mark(self) -> str:
        """Return the mark up to which all events were taken."""
        return self._hub.mark(self._seen if self._has_more else None)

    def take(self) -> bytes:
        """Return the next bytes to send; none where all were sent."""
        greeting, self._greeting = self._greeting, b""
        if not self._has_more:
            return greeting
        if self._seen < self._hub.complete_from(self._wish.topics()):
            return greeting + self._reset()
        frames, size = [greeting], 0
        self._has_more = False
        for event in filter(self._wish.takes, self._hub.after(self._wish.topics(), self._seen)):
            if size >= MOST_TAKEN:
                self._has_more = True
                break
            frames.append(event.frame)
            size += len(event.frame)
            self._seen = event.number
        return b"".join(frames)

    @property
    def has_more(self) -> bool:
        return self._has_more or bool(self._greeting)

    def _reset(self) -> bytes:
        """Return the event `reset`, which reports missing events, and continue from now."""
        self._seen, self._has_more = self._hub.number, False
        return b"event: reset\nid: %s\ndata: {}\n\n" % self._hub.mark().encode()

    def leave(self) -> None:
        for topic in self._wish.topics():
            self._hub.unlisten(topic, self.hear)


def _nobody(_event: Event) -> None: ...


def _size_of(event: Event) -> int:
    return len(event.frame) + COSTS
