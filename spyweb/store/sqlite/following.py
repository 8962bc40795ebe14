"""Who listens to changes as they happen: they are told from memory, after the commit, and nothing is written for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from spyweb.errors import StoreError
from spyweb.model import Value
from spyweb.store.protocol import ChangeEvent, Origin, Watch
from spyweb.store.sqlite.changes import ChangeNote, Desk, Row, entry_of
from spyweb.store.sqlite.watching import Subscriptions

Listen = Callable[[ChangeEvent], None]


class Notices:
    """What subscribers are to hear of one op, gathered on the store's thread."""

    def __init__(self, watches: Subscriptions) -> None:
        self._watches = watches
        self.events: list[ChangeEvent] = []

    def begin(self) -> None:
        """An op may be tried again: what it did the first time has not happened."""
        self.events.clear()

    def note(self, desk: Desk, notes: Sequence[ChangeNote], origin: Origin) -> None:
        kinds = self._watches.of_key(desk.namespace, desk.key)
        self.events += [event_of(desk, noted, origin) for noted in notes if noted.kind in kinds]


class Subscriber(NamedTuple):
    watch: Watch
    watches: Subscriptions  # of that one
    hear: Listen


class Subscribers:
    def __init__(self) -> None:
        self._subscribers: dict[object, Subscriber] = {}
        self._watches = Subscriptions()

    @property
    def is_empty(self) -> bool:
        return not self._subscribers

    def add(self, watch: Watch, hear: Listen) -> Callable[[], None]:
        """Gives the way to stop."""
        mark = object()
        self._subscribers[mark] = Subscriber(watch, Subscriptions([watch]), hear)
        self._look_again()
        return lambda: self._remove(mark)

    def notices(self, namespace: str) -> Notices | None:
        """For an op on this namespace; None when nobody listens."""
        return Notices(self._watches) if self._watches.of_namespace(namespace) else None

    def all_notices(self) -> Notices | None:
        return Notices(self._watches) if self._subscribers else None

    def tell(self, notices: Notices) -> None:
        for event in notices.events:
            for subscriber in list(self._subscribers.values()):
                if event.kind in subscriber.watches.of_key(event.namespace, event.key):
                    subscriber.hear(event)

    def _remove(self, mark: object) -> None:
        self._subscribers.pop(mark, None)
        self._look_again()

    def _look_again(self) -> None:
        self._watches = Subscriptions([subscriber.watch for subscriber in self._subscribers.values()])


def event_of(desk: Desk, noted: ChangeNote, origin: Origin) -> ChangeEvent:
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
