"""The jobs and clients that want to hear of changes.  Each write asks, which costs nothing if there are none.

Jobs watch: a change is kept for them (events.py).  Subscribers listen: they are told from memory, after the commit, and
nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

from spyweb.errors import StoreError
from spyweb.model import ChangeKind, JobId, Value
from spyweb.store.model.entries import ChangeEvent, Origin, Watch
from spyweb.store.patterns import Pattern, compile_pattern
from spyweb.store.sqlite.changes import ChangeNote, EntryContext, Row, entry_of

JobsByKind = Mapping[ChangeKind, Set[JobId]]  # a kind that is not in it is watched by nobody


class Subscription(NamedTuple):
    pattern: Pattern
    kinds: frozenset[ChangeKind]
    job: JobId | None


class Subscriptions:
    """Watches, found by namespace.  It never changes once made, so any thread may use it."""

    def __init__(self, watches: Sequence[Watch] = ()) -> None:
        self._exact: dict[str, list[Subscription]] = {}
        self._prefixes: dict[str, list[Subscription]] = {}
        for watch in watches:
            group = self._prefixes if watch.is_prefix else self._exact
            subscription = Subscription(compile_pattern(watch.key), watch.kinds, watch.job)
            group.setdefault(watch.namespace, []).append(subscription)
        self.is_empty = not watches

    def of_namespace(self, namespace: str) -> list[Subscription]:
        if self.is_empty:
            return []
        found = list(self._exact.get(namespace, ()))
        for prefix, subscriptions in self._prefixes.items():
            if namespace.startswith(prefix):
                found += subscriptions
        return found

    def of_key(self, namespace: str, key: bytes) -> JobsByKind:
        return jobs_by_kind(self.of_namespace(namespace), key)


def jobs_by_kind(subscriptions: Sequence[Subscription], key: bytes) -> JobsByKind:
    """Return the kinds of change that this key is watched for, each with the jobs that watch."""
    found: dict[ChangeKind, set[JobId]] = {}
    for subscription in subscriptions:
        if subscription.pattern.matches(key):
            for kind in subscription.kinds:
                jobs = found.setdefault(kind, set())
                if subscription.job is not None:
                    jobs.add(subscription.job)
    return found


class Notices:
    """The changes of one op that subscribers will be told of, gathered on the store's thread."""

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self.events: list[ChangeEvent] = []

    def begin(self) -> None:
        """Forget the changes of an earlier try of the op, which was rolled back."""
        self.events.clear()

    def note(self, context: EntryContext, notes: Sequence[ChangeNote], origin: Origin) -> None:
        kinds = self._subscriptions.of_key(context.namespace, context.key)
        self.events += [event_of(context, note, origin) for note in notes if note.kind in kinds]


class Subscriber(NamedTuple):
    watch: Watch
    subscriptions: Subscriptions  # to that one
    listen: Callable[[ChangeEvent], None]


class Subscribers:
    """All clients that are told of changes as they happen."""

    def __init__(self) -> None:
        self._subscribers: dict[object, Subscriber] = {}
        self._subscriptions = Subscriptions()  # of all together

    @property
    def is_empty(self) -> bool:
        return not self._subscribers

    def add(self, watch: Watch, listen: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        """Call this function with the changes of the watch; return a function that ends that."""
        mark = object()
        self._subscribers[mark] = Subscriber(watch, Subscriptions([watch]), listen)
        self._subscribe()
        return lambda: self._remove(mark)

    def _remove(self, mark: object) -> None:
        self._subscribers.pop(mark, None)
        self._subscribe()

    def _subscribe(self) -> None:
        self._subscriptions = Subscriptions([subscriber.watch for subscriber in self._subscribers.values()])

    def notices(self, namespace: str) -> Notices | None:
        """Begin the notices of an op on this namespace; None when nobody listens."""
        return Notices(self._subscriptions) if self._subscriptions.of_namespace(namespace) else None

    def all_notices(self) -> Notices | None:
        """Begin the notices of an op on any namespace; None when nobody listens."""
        return Notices(self._subscriptions) if self._subscribers else None

    def tell(self, notices: Notices) -> None:
        for event in notices.events:
            for subscriber in list(self._subscribers.values()):
                if event.kind in subscriber.subscriptions.of_key(event.namespace, event.key):
                    subscriber.listen(event)


def event_of(context: EntryContext, note: ChangeNote, origin: Origin) -> ChangeEvent:
    """Return the event for subscribers, which has no number because it is not stored."""
    latest = note.new or note.old
    return ChangeEvent(
        id=0,
        namespace=context.namespace,
        key=context.key,
        kind=note.kind,
        old=_value(context, note.old),
        new=_value(context, note.new),
        version=latest.version if latest else 0,
        at_ms=context.now_ms,
        origin=origin,
    )


def _value(context: EntryContext, row: Row | None) -> Value:
    """Return the row's value, or None if it can't be read: subscribers still hear that it was replaced."""
    try:
        return entry_of(context.codec, context.namespace, context.key, row).value if row else None
    except StoreError:
        return None
