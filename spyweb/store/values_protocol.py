"""The entries, locks and change events of a store.

Every call returns a future, which is done once what it wrote is committed.  A read of a key sees every write of that
key that was requested before it; a query about many keys sees every write that was requested before it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from msgspec import Struct, field

from spyweb.model import WRITTEN, ChangeKind, HistoryRule, JobId, RunId, Value

STATE = "state"  # the namespace of positional state.*


def agent_namespace(agent: str) -> str:
    """Return the namespace of an agent's positional state.*."""
    return STATE if agent == "local" else f"{STATE}@{agent}"


def scope_namespace(scope: str) -> str:
    """Return the namespace of a scope of table-first state.*."""
    return f"{SCOPES}{scope}"


SCOPES = "scope:"  # the prefix of all scopes' namespaces


T = TypeVar("T")


# Values


class Entry(Struct, frozen=True, kw_only=True):  # made for each read: a dataclass takes longer
    """A live entry, or a past version of one."""

    value: Value
    version: int  # counts the writes; never falls while the entry, or its history, exists
    created_ms: int
    updated_ms: int
    expires_ms: int | None = None  # None: never


class Keep(Enum):
    EXPIRY = 0


KEEP: Final = Keep.EXPIRY


class Put(Struct, frozen=True):  # made for each write: a dataclass takes longer
    """Write the value."""

    value: Value
    expires_ms: int | Keep | None = None  # KEEP: that of the live entry; None: never
    result: object = None


class Drop(Struct, frozen=True):
    """Delete the entry."""

    result: object = None
    always_tell: bool = False  # watchers hear `deleted` even when there was nothing to delete


class Leave(Struct, frozen=True):
    """Change nothing."""

    result: object = None


# Called on a thread of the store's, perhaps more than once, so it must be pure; None: absent or expired.
# If it raises, the future fails with that error, and the entry stays as it is.
Transform = Callable[[Entry | None], Put | Drop | Leave]


class Addition(Struct, frozen=True):
    """A Transform that adds an integer to a live one, and applies its rule to anything else.

    Most counters need only that, so a store may add by itself, without the rule.
    """

    delta: int
    result: Callable[[int], object]  # of the sum
    rule: Transform

    def __call__(self, entry: Entry | None) -> Put | Drop | Leave:
        return self.rule(entry)


class Replacement(Struct, frozen=True):
    """A Transform that does not depend on the entry, so that a store may write without reading."""

    decide: Callable[[], Put | Drop | Leave]  # as a Transform is called; never with KEEP

    def __call__(self, entry: Entry | None) -> Put | Drop | Leave:
        return self.decide()


class Blind(Struct, frozen=True):
    """A Transform that only learns whether there is an entry, so that it works on a damaged one."""

    decide: Callable[[bool], Put | Drop | Leave]

    def __call__(self, entry: Entry | None) -> Put | Drop | Leave:
        return self.decide(entry is not None)


class Origin(Struct, frozen=True, kw_only=True):
    """The writer of a change, which is recorded in the change event."""

    job: JobId | None = None
    run: RunId | None = None
    depth: int = 0  # the number of triggers that led to this write, one after another


NOBODY: Final = Origin()


class Order(StrEnum):
    KEY = "key"  # bytewise
    CREATED = "created"  # as they were created


class PortableEntry(Struct, frozen=True, kw_only=True):
    """An entry with its namespace and key, as it is exported and loaded."""

    namespace: str
    key: bytes
    entry: Entry


class Loaded(Struct, frozen=True, kw_only=True):
    written: int
    kept: int  # live entries that were not replaced
    expired: int  # not written, because their moment had passed


class ValueStats(Struct, frozen=True, kw_only=True):
    """Figures about one namespace, or about all."""

    total_keys: int  # live
    expired_keys: int  # not yet swept
    size_bytes: int  # of keys and values, as stored
    last_modified_ms: int | None  # of the live keys
    active_locks: int  # of all namespaces: locks have none


HistoryRules = Mapping[str, HistoryRule]  # by namespace
NO_HISTORY: Final[HistoryRules] = MappingProxyType({})


class Values(Protocol):
    """Entries with typed values.

    An expired entry is absent to every call, and a write over it makes a new entry.  Raises StoreError for anything
    that is not a Value, and for None at the top: an absent value is deleted, not stored.  Raises TooLarge if the
    answer would take more than `largest` bytes: its keys and values as stored, and scanning.ITEM_COST for each.
    """

    def get(self, namespace: str, key: bytes) -> Future[Value]: ...

    def set(self, namespace: str, key: bytes, value: bytes, *, origin: Origin = NOBODY) -> Future[None]:
        """Write the value and clear any expiry."""

    def delete(self, namespace: str, key: bytes, *, origin: Origin = NOBODY) -> Future[None]: ...

    def increment(
        self, namespace: str, key: bytes, default: int, delta: int, *, origin: Origin = NOBODY
    ) -> Future[int]:
        """Add atomically and return the sum.

        A missing entry, or a text that is not a whole 64-bit integer (an optional sign, then digits only),
        counts as `default`.  Raises StoreError when the sum leaves 64 bits; the entry is then untouched.
        An expiry stays.
        """

    def expire(self, namespace: str, key: bytes, at_ms: int | None) -> Future[bool]:
        """Set the entry's expiry (None: never); return False when there is no entry."""

    def read(self, namespace: str, key: bytes) -> Future[Entry | None]: ...

    def transform(
        self, namespace: str, key: bytes, change: Transform, *, origin: Origin = NOBODY, is_awaited: bool = True
    ) -> Future[object]:
        """Read, decide and write as one step; return the decision's `result`.

        One that nobody awaits may wait a moment for others; it is done before what is asked for after it.
        """

    def keys(self, namespace: str, pattern: bytes = b"*", *, largest: int | None = None) -> Future[list[bytes]]:
        """Return the live entries' keys, sorted bytewise.

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
        """Return what `into` makes of the live entries whose keys have this prefix, from the key `least` on.

        `into`, for instance list, takes as many as it wants.  It is called on the store's own thread: very many entries
        do not hold up the loop.
        """

    def clear(self, namespace: str, pattern: bytes = b"*", *, origin: Origin = NOBODY) -> Future[int]:
        """Delete all live entries whose keys match; return how many.

        Very many are deleted in slices, in the order of their keys, so that no write waits for long; entries written
        meanwhile may be deleted too.  If a slice fails, the entries of those before it are gone.
        """

    def namespaces(self, prefix: str = "", *, largest: int | None = None) -> Future[list[str]]:
        """Return the namespaces that have a live entry, sorted."""

    def counts(self) -> Future[Mapping[str, int]]:
        """Return how many live entries each namespace has that has any."""

    async def sweep(self, limit: int | None = None) -> int:
        """Delete expired entries (at most `limit`) and locks, and history beyond its rule.

        Return how many entries.  Works in slices, so that no write waits for long.
        """

    def keep_history(self, rules: HistoryRules) -> None:
        """Keep past versions by these rules from now on; versions already kept stay until they outlive their own."""

    def history(
        self, namespace: str, key: bytes, limit: int | None = None, *, largest: int | None = None
    ) -> Future[list[Entry]]:
        """Return the known versions, newest first: the live one, then those that it replaced."""

    def version(self, namespace: str, key: bytes, version: int) -> Future[Entry | None]: ...

    def export(self, namespaces: Sequence[str] | None = None) -> AsyncIterator[PortableEntry]:
        """Yield the live entries of these namespaces (None: of all) in the order of their creation.

        Each is as it is when it is reached.  No key comes twice, even if it is deleted and written again meanwhile.
        """

    def load(self, items: Sequence[PortableEntry], *, replace: bool) -> Future[Loaded]:
        """Write all entries with their times and expiries, or none.

        Existing live entries are replaced, or with `replace=False` kept.  Watchers are not told.
        """

    def move(self, old: str, new: str, *, force: bool = False) -> Future[int]:
        """Move all entries of a namespace to another, with their history; return how many.

        Where a key is in both, that of the other one is deleted with `force`; else it raises StoreError, and moves
        nothing.  Watchers are not told.
        """

    def stats(self, namespace: str | None = None) -> Future[ValueStats]: ...


# Locks


class Held(Struct, frozen=True, kw_only=True):
    """A lock that is held."""

    name: bytes
    holder: bytes
    run: RunId | None  # None: it is not held by a run, so only its lease or a release ends it
    acquired_ms: int
    expires_ms: int
    lease_ms: int


Alive = Callable[[RunId], bool]


class Locks(Protocol):
    """Locks by name, each with a lease.

    A lock whose lease has expired is free, unless its run is alive.  All locks that a run has acquired since the store
    was opened are released in the transaction that ends it (`Change.end`); those of an earlier daemon's runs last
    until their leases expire.
    """

    def believe(self, alive: Alive) -> None:
        """Use this to ask whether a run lives; without it none does.

        It is called on the store's thread and must be quick.
        """

    def on_released(self, callback: Callable[[Sequence[bytes]], None]) -> None:
        """Have this called on the loop, after the commit, with the names of locks that may have become free."""

    def acquire(self, name: bytes, holder: bytes, run: RunId | None, lease_ms: int) -> Future[Held | None]:
        """Acquire a lock and return None; otherwise return who holds it, even if that is this holder."""

    def release(self, name: bytes, holder: bytes) -> Future[Held | None]:
        """Release the lock if this holder has it; return who had it (None: nobody)."""

    def release_run(self, run: RunId) -> Future[list[bytes]]:
        """Release all locks of a run; return their names."""

    def renew(self, runs: Sequence[RunId]) -> Future[int]:
        """Restart the leases of all locks of these runs; return how many locks."""

    def holder(self, name: bytes) -> Future[Held | None]:
        """Return who holds a lock; None when it is free."""

    def list(self) -> Future[list[Held]]:
        """Return all held locks, sorted by name."""

    def break_(self, name: bytes) -> Future[Held | None]:
        """Release a lock, whoever holds it; return who held it."""


# Events


class Watch(Struct, frozen=True, kw_only=True):
    """The changes that a job or a client wants to hear of."""

    namespace: str
    is_prefix: bool = False  # it stands for all namespaces with this prefix: SCOPES for all scopes
    key: bytes = b"*"  # a pattern, as in Values.keys
    kinds: frozenset[ChangeKind] = field(default=WRITTEN)
    job: JobId | None = None  # the job that watches; None: a client that only listens


class ChangeEvent(Struct, frozen=True, kw_only=True):
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


class WantedChange(Struct, frozen=True, kw_only=True):
    """A change that a job watches and that no run has been claimed for yet.  Its values are in the event."""

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
    """The outbox of changes that jobs watch, written in the transaction of the change, once for each of these jobs.

    A job needs a change until the run that is claimed for it (`NewRun.event`) has ended, or `Change.dropped` says that
    there will be none; the event stays until no job needs it.
    """

    def watch(self, watches: Sequence[Watch], *, all_known: bool = False) -> None:
        """Keep these changes for their jobs and no others, from the writes that are requested after this on.

        `all_known`: there is no job whose watches are missing because its file can't be loaded.
        """

    def wanted(self, limit: int, *, after: Position = BEFORE_ALL) -> Future[list[WantedChange]]:
        """Return changes that no run has been claimed for, sorted by job, those of each job oldest first."""

    def find(self, event: int) -> Future[ChangeEvent | None]:
        """Return an event that a job still needs."""

    def on_committed(self, callback: Callable[[], None]) -> None:
        """Have this called on the loop, after the commit, each time that there may be new events."""

    def follow(self, watch: Watch, listen: Callable[[ChangeEvent], None]) -> Callable[[], None]:
        """Have this called on the loop with each such change after its commit; return the function that ends it.

        Nothing is stored for it: these events have no id, and begin with the writes that are requested after this.
        """
