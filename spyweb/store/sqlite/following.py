"""Who listens to changes as they happen: they are told from memory, after the commit, and nothing is written for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.protocol import ChangeEvent, Origin, Watch
from spyweb.store.sqlite.changes import Desk, Noted, Row, entry_of
from spyweb.store.sqlite.watching import Watches

Hear = Callable[[ChangeEvent], None]


class Hearing:
    """What followers are to hear of one op, gathered on the store's thread."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self.events: list[ChangeEvent] = []

    def begin(self) -> None:
        """An op may be tried again: what it did the first time has not happened."""
        self.events.clear()

    def note(self, desk: Desk, notes: Sequence[Noted], origin: Origin) -> None:
        kinds = self._watches.of_key(desk.namespace, desk.key)
        self.events += [event_of(desk, noted, origin) for noted in notes if noted.kind in kinds]


class Follower(NamedTuple):
    watch: Watch
    watches: Watches  # of that one
    hear: Hear


class Followers:
    def __init__(self) -> None:
        self._followers: dict[object, Follower] = {}
        self._watches = Watches()

    @property
    def is_empty(self) -> bool:
        return not self._followers

    def add(self, watch: Watch, hear: Hear) -> Callable[[], None]:
        """Gives the way to stop."""
        mark = object()
        self._followers[mark] = Follower(watch, Watches([watch]), hear)
        self._look_again()
        return lambda: self._remove(mark)

    def hearing(self, namespace: str) -> Hearing | None:
        """For an op on this namespace; None when nobody listens."""
        return Hearing(self._watches) if self._watches.of_namespace(namespace) else None

    def hearing_all(self) -> Hearing | None:
        return Hearing(self._watches) if self._followers else None

    def tell(self, hearing: Hearing) -> None:
        for event in hearing.events:
            for follower in list(self._followers.values()):
                if event.kind in follower.watches.of_key(event.namespace, event.key):
                    follower.hear(event)

    def _remove(self, mark: object) -> None:
        self._followers.pop(mark, None)
        self._look_again()

    def _look_again(self) -> None:
        self._watches = Watches([follower.watch for follower in self._followers.values()])


def event_of(desk: Desk, noted: Noted, origin: Origin) -> ChangeEvent:
    """Without a number: it is in no outbox."""
    latest = noted.new or noted.old
    return ChangeEvent(
        id=0,
        namespace=desk.namespace,
        key=desk.key,
        kind=noted.kind,
        old=_value(desk, noted.old),
        new=_value(desk, noted.new),
        version=latest.version if latest else 0,
        at_ms=desk.now_ms,
        origin=origin,
    )


def _value(desk: Desk, row: Row | None) -> Value:
    """None where it can't be read: it is told all the same that it was written over."""
    try:
        return entry_of(desk.codec, desk.namespace, desk.key, row).value if row else None
    except StoreError:
        return None
