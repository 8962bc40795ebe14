"""The types of a store's entries, locks and change events, and of questions about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field

from spyweb.model import WRITTEN, ChangeKind, HistoryRule, JobId, RunId, Value
from spyweb.settings.sections import POSTGRES

GLOBAL = "global"  # the namespace of global_store_*
STATE = "state"  # the namespace of positional state.*
SCOPES = "scope:"  # the prefix of all scopes' namespaces


def job_namespace(job: JobId) -> str:
    """Return the namespace of a job's store_*: a separate column, so that no key can lead into another namespace."""
    return f"job:{job}"


def agent_namespace(agent: str) -> str:
    """Return the namespace of an agent's positional state.*."""
    return STATE if agent == "local" else f"{STATE}@{agent}"


def scope_namespace(scope: str) -> str:
    """Return the namespace of a scope of table-first state.*."""
    return f"{SCOPES}{scope}"


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
    """A Transform that learns only whether there is an entry: it can be applied to a damaged one."""

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


class StoreStats(Struct, frozen=True, kw_only=True):
    """Figures about a store since it was opened."""

    path: str
    writes: int
    batches: int
    errors: int
    size_bytes: int
    last_commit_ms: int | None  # of a batch that was committed
    pending: int  # ops that wait
    oldest_pending_s: float  # how long the oldest of them has waited
    stalled_s: float = 0.0  # for how long nothing has been done although ops wait: shows a stuck disk
    commit_s: float = 0.0  # that even the fastest of the latest commits took
    failed: str = ""  # why nothing can be written: files are missing or damaged, or the latest batch failed as a whole

    @property
    def backend(self) -> str:
        kind = "postgresql" if self.path.startswith(POSTGRES) else "sqlite"
        return "memory" if self.path == ":memory:" else kind


HistoryRules = Mapping[str, HistoryRule]  # by namespace

NO_HISTORY: Final[HistoryRules] = MappingProxyType({})


class Held(Struct, frozen=True, kw_only=True):
    """A lock that is held."""

    name: bytes
    holder: bytes
    run: RunId | None  # None: it is not held by a run, so only its lease or a release ends it
    acquired_ms: int
    expires_ms: int
    lease_ms: int


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
