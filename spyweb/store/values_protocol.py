"""The entries, locks and change events of a store.

Every call gives a future, done once what it wrote is committed.  A read of a key sees every write of that key that
was asked for before it; a question about many keys sees every write that was asked for before it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from spyweb.model import WRITTEN, ChangeKind, HistoryRule, JobId, RunId, Value

STATE = "state"  # the namespace of positional state.*


def agent_namespace(agent: str) -> str:
    """The namespace of an agent's positional state.*."""
    return STATE if agent == "local" else f"{STATE}@{agent}"


def scope_namespace(scope: str) -> str:
    """The namespace of a scope of table-first state.*."""
    return f"{SCOPES}{scope}"


SCOPES = "scope:"  # what the namespaces of all scopes begin with


T = TypeVar("T")


# Values


class Entry(Struct, frozen=True, kw_only=True):  # made for each read: a dataclass takes three times as long
    """One live entry, or a past version of one."""

    value: Value
    version: int  # counts the writes; never falls while the entry, or its history, exists
    created_ms: int
    updated_ms: int
    expires_ms: int | None = None  # None: never


class Keep(Enum):
    EXPIRY = 0


KEEP: Final = Keep.EXPIRY


class Put(Struct, frozen=True):  # made for each write: a dataclass takes twice as long
    """Write the value."""

    value: Value
    expires_ms: int | Keep | None = None  # KEEP: that of the live entry; None: never
    result: object = None


class Drop(Struct, frozen=True):
    """Delete the entry."""

    result: object = None
    always_tell: bool = False  # watchers hear `deleted` even when there was nothing to delete, as in iii


class Leave(Struct, frozen=True):
    """Change nothing."""

    result: object = None


# Called on the store's own thread, perhaps more than once, so it must be pure; None: absent or expired.
# What it raises fails the future, and the entry stays as it is.
Transform = Callable[[Entry | None], Put | Drop | Leave]


class Addition(Struct, frozen=True):
    """A Transform that adds an integer to a live one, and does to all else what its rule does.

    Most counting is just that, so a store may do it by itself, without the rule.
    """

    delta: int
    result: Callable[[int], object]  # of the sum
    rule: Transform

    def __call__(self, entry: Entry | None) -> Put | Drop | Leave:
        return self.rule(entry)


class Replacement(Struct, frozen=True):
    """A Transform that does not depend on what is there, so a store may write without reading."""

    decide: Callable[[], Put | Drop | Leave]  # as a Transform is called; never with KEEP

    def __call__(self, entry: Entry | None) -> Put | Drop | Leave:
        return self.decide()


class Blind(Struct, frozen=True):
    """A Transform that is told only whether there is an entry, so that it works on one that can't be read."""

    decide: Callable[[bool], Put | Drop | Leave]

    def __call__(self, entry: Entry | None) -> Put | Drop | Leave:
        return self.decide(entry is not None)


class Origin(Struct, frozen=True, kw_only=True):
    """The writer of a change: it goes into the change events."""

    job: JobId | None = None
    run: RunId | None = None
    depth: int = 0  # how many triggers led to this write, one by another


NOBODY: Final = Origin()


class Order(StrEnum):
    KEY = "key"  # bytewise
    CREATED = "created"  # as they were created


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableEntry:
    """An entry with its place: what is exported and loaded."""

    namespace: str
    key: bytes
    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    written: int
    kept: int  # live entries that were not replaced
    expired: int  # not written, because their moment had passed


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueStats:
    """Figures of one namespace, or of all."""

    total_keys: int  # live
    expired_keys: int  # not yet swept
    size_bytes: int  # of keys and values, as stored
    last_modified_ms: int | None  # of the live keys
    active_locks: int  # of all namespaces: locks have none


HistoryRules = Mapping[str, HistoryRule]  # by namespace
NO_HISTORY: Final[HistoryRules] = MappingProxyType({})


class Values(Protocol):
    """Entries with typed values.

    An expired entry is absent to every call, and what is written over it is a new entry.  Raises StoreError for what
    is no Value, and for None at the top: what is not there is deleted, not stored.  Raises TooLarge where the answer
    would take more than `largest` bytes: the keys and values in it as they are stored, and 64 (bounds.ITEM_COST) each.
    """

    def get(self, namespace: str, key: bytes) -> Future[bytes | None]:
        """Return the text of the entry: that of a typed value, where one was put there."""

    def set(self, namespace: str, key: bytes, value: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        """Put the value and clear any expiry."""

    def delete(self, namespace: str, key: bytes, *, origin: Origin = NOBODY) -> Future[None]: ...

    def increment(
        self, namespace: str, key: bytes, default: int, delta: int, *, origin: Origin = NOBODY
    ) -> Future[int]:
        """Add atomically and give the sum (state-semantics of `global_store_incr`).

        A missing entry, or a text that is not a whole 64-bit integer (an optional sign, then digits only),
        counts as `default`.  Raises StoreError when the sum leaves 64 bits; the entry is then untouched.
        An expiry stays.
        """

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        """Let the entry end at that moment (None: never); False when there is none."""

    def read(self, namespace: str, key: bytes) -> Future[Entry | None]: ...

    def transform(self, namespace: str, key: bytes, change: Transform, *, origin: Origin = NOBODY) -> Future[object]:
        """Read, decide and write as one step; gives the decision's `result`."""

    def keys(self, namespace: str, pattern: bytes = b"*", *, largest: int | None = None) -> Future[list[bytes]]:
        """List the live entries' keys, sorted bytewise.

        `*` is any run of characters, `?` one; all others are themselves.
        """

    def gather(
        self,
        namespace: str,
        prefix: bytes,
        into: Callable[[Iterator[tuple[bytes, Entry]]], T],
        *,
        least: bytes = b"",
        order: Order = Order.KEY,
        largest: int | None = None,
    ) -> Future[T]:
        """Return what `into` makes of the live entries whose keys begin so, from the key `least` on: a list, say.

        It takes as many as it wants.  It is called on the store's own thread: very many do not hold up the loop.
        """

    def clear(self, namespace: str, pattern: bytes = b"*", *, origin: Origin = NOBODY) -> Future[int]:
        """Delete all live entries whose keys match; gives how many.

        Very many go in slices, in the order of their keys, so that no write is held up for long: each entry by
        itself, also one that is put there meanwhile.  Where a slice fails, those before it are gone.
        """

    def namespaces(self, prefix: str = "", *, largest: int | None = None) -> Future[list[str]]:
        """List those with a live entry, sorted."""

    async def sweep(self, limit: int | None = None) -> int:
        """Delete expired entries (at most `limit`) and locks, and history that has outlived its rule.

        Gives how many entries.  Works in slices, and holds up no write for long.
        """

    def keep_history(self, rules: HistoryRules) -> None:
        """Keep past versions by these rules from now on; what is kept already stays until it outlives its own."""

    def history(
        self, namespace: str, key: bytes, limit: int | None = None, *, largest: int | None = None
    ) -> Future[list[Entry]]:
        """Return the versions that there are, newest first: the live one, then those that it replaced."""

    def version(self, namespace: str, key: bytes, version: int) -> Future[Entry | None]: ...

    def export(self, namespaces: Sequence[str] | None = None) -> AsyncIterator[PortableEntry]:
        """Yield live entries in the order of their creation (None: of all namespaces), each as it is when it is
        reached.

        None comes twice, also where it is deleted and written again meanwhile.
        """

    def load(self, items: Sequence[PortableEntry], *, replace: bool) -> Future[Loaded]:
        """Write all of them with their times and expiries, or none.

        Live entries that are there already are replaced, or with `replace=False` kept.  Watchers are not told.
        """

    def move(self, old: str, new: str) -> Future[int]:
        """Give all entries of a namespace to another, with their history; gives how many.

        Raises StoreError, and moves nothing, when a key is in both.  Watchers are not told.
        """

    def stats(self, namespace: str | None = None) -> Future[ValueStats]: ...


# Locks


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lock that somebody has."""

    name: bytes
    holder: bytes
    run: RunId | None  # None: not a run's, so only its lease and a release end it
    acquired_ms: int
    expires_ms: int
    lease_ms: int


Alive = Callable[[RunId], bool]


class Locks(Protocol):
    """Locks by name, each with a lease.

    A lock whose lease has expired is free, unless its run lives.  All locks that a run has acquired since the store
    was opened are released in the transaction that ends it (`Change.end`); those of an earlier daemon's runs last
    until their leases expire.
    """

    def believe(self, alive: Alive) -> None:
        """Ask this whether a run lives; without it none does.  Called on the store's own thread: it must be quick."""

    def on_released(self, callback: Callable[[Sequence[bytes]], None]) -> None:
        """Call this on the loop, after the commit, with the names of locks that may have become free."""

    def acquire(self, name: bytes, holder: bytes, run: RunId | None, lease_ms: int) -> Future[Held | None]:
        """Acquire a lock and return None; otherwise return who has it, be it the same holder."""

    def release(self, name: bytes, holder: bytes) -> Future[Held | None]:
        """Return who had it (None: nobody); it is released if that is `holder`, and stays as it is otherwise."""

    def release_run(self, run: RunId) -> Future[list[bytes]]:
        """Release all that a run holds; gives their names."""

    def renew(self, runs: Sequence[RunId]) -> Future[int]:
        """Begin the leases of all locks of these runs anew; gives how many locks."""

    def holder(self, name: bytes) -> Future[Held | None]:
        """Return who has it; None when it is free."""

    def list(self) -> Future[list[Held]]:
        """List all that are held, sorted by name."""

    def break_(self, name: bytes) -> Future[Held | None]:
        """Release a lock whoever has it; gives who had it."""


# Events


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The changes that somebody wants to hear of."""

    namespace: str
    is_prefix: bool = False  # all namespaces that begin so: SCOPES for all scopes
    key: bytes = b"*"  # a pattern, as in Values.keys
    kinds: frozenset[ChangeKind] = field(default=WRITTEN)
    job: JobId | None = None  # whose it is; None: of somebody who only listens


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """One change of an entry, as committed."""

    id: int  # grows with each event: for a key, the order of its changes
    namespace: str
    key: bytes
    kind: ChangeKind
    old: Value  # None: there was none
    new: Value  # None: there is none any more
    version: int  # after the change (of what was deleted or expired: its last; 0: there was nothing)
    at_ms: int
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChange:
    """A change that a job has watched and that no run has been claimed for yet.  Its values are in the event."""

    job: JobId
    event: int
    namespace: str
    key: bytes
    kind: ChangeKind
    at_ms: int
    origin: Origin


Position = tuple[str, int]  # of a wanted change in their order: its job and its event
BEFORE_ALL: Final = ("", 0)


class Events(Protocol):
    """The outbox: changes that jobs watch, written in the transaction of the change, once for each of these jobs.

    A job has its part in a change until the run that is claimed for it (`NewRun.event`) has ended, or `Change.dropped`
    says that there will be none; the event stays until no job has a part in it.
    """

    def watch(self, watches: Sequence[Watch], *, all_known: bool = False) -> None:
        """Keep these changes for their jobs and no others, beginning with the writes asked for from now on.

        `all_known`: there is no job whose watches are missing because its file can't be loaded.
        """

    def wanted(self, limit: int, *, after: Position = BEFORE_ALL) -> Future[list[WantedChange]]:
        """Return changes that no run has been claimed for: sorted by job, those of each job oldest first."""

    def find(self, event: int) -> Future[ChangeEvent | None]:
        """Return an event in which a job still has its part."""

    def on_committed(self, callback: Callable[[], None]) -> None:
        """Call this on the loop each time that there may be new events, after their commit."""

    def follow(self, watch: Watch, listen: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        """Call this on the loop with each such change after its commit; gives the function that ends it.

        Nothing is kept for it: these events have no id, and come of writes asked for from now on.
        """
