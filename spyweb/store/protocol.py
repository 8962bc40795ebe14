"""The store as the rest of spyweb sees it.  Every write is acknowledged only once it is committed.

Calls return futures rather than being coroutines: an op hands the future straight to the run that waits for it,
which saves a task for each.  A cancelled future whose write has not begun is dropped; after that the write
stands.  A `get` sees every write of its key that was asked for before it; a question about runs sees what was
acknowledged before it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from spyweb.model import (
    Cursor,
    Failure,
    JobId,
    Outcome,
    Run,
    RunId,
    RunState,
    TriggerType,
)
from spyweb.store.outbox_protocol import Outbox
from spyweb.store.records_protocol import Records
from spyweb.store.values_protocol import (
    Events,
    Locks,
    Values,
    WantedChange,
)

GLOBAL = "global"  # the namespace of global_store_*


def job_namespace(job: JobId) -> str:
    """The namespace of store_*: a column of its own, so no key can spell its way into another."""
    return f"job:{job}"


class NewRun(Struct, frozen=True, kw_only=True):
    """A run to be recorded.  (job, due_ms, attempt) is unique where due_ms is given; `trigger` is plain JSON."""

    job: JobId
    state: RunState  # RUNNING, or WAITING for its turn
    trigger: Mapping[str, object]
    attempt: int = 1
    due_ms: int | None = None
    start_after_ms: int | None = None
    started_ms: int | None = None
    generation: int = 0
    event: int | None = None  # the change event that starts it, which its job wanted
    follows: RunId | None = None  # a run that ends in the same change: recorded only if that end applies


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The start of a waiting run."""

    run: RunId
    started_ms: int
    generation: int = 0


class End(Struct, frozen=True, kw_only=True):
    """The end of a run."""

    run: RunId
    ended_ms: int
    outcome: Outcome
    failure: Failure | None = None
    reason: str = ""
    traceback: str = ""
    cpu_ms: int = 0
    storage_errors: int = 0
    result: str = ""  # these five as in Run
    http_status: int | None = None
    items_found: int | None = None
    items_new: int | None = None
    note: str = ""
    event: int | None = None  # the change event that had started it


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRange:
    """Due times, or changes of state, that start no run, and why.

    They take one row: the newest row of their job grows by them when it has their outcome and reason.
    """

    job: JobId
    outcome: Outcome  # SKIPPED, MISSED or PAUSED
    first_due_ms: int
    last_due_ms: int
    count: int
    reason: str
    at_ms: int  # when it was dealt with
    trigger: TriggerType = TriggerType.SCHEDULE
    follows: RunId | None = None  # as of a NewRun


class Change(Struct, frozen=True, kw_only=True):
    """Changes of jobs and runs that are committed together, or not at all."""

    expects: Mapping[JobId, Cursor | None] = {}  # as they must be on record, None for not at all, or all is refused
    cursors: Sequence[Cursor] = ()
    new: Sequence[NewRun] = ()
    begin: Sequence[Begin] = ()
    end: Sequence[End] = ()
    skipped: Sequence[SkippedRange] = ()
    dropped: Sequence[WantedChange] = ()  # changes that start no run of the job that wanted them


class Runs(Protocol):
    """The record of every due time: what ran, what did not and why."""

    def record(self, change: Change) -> Future[list[RunId | None]]:
        """Commit a change; gives the id of each of `change.new`, None where (job, due_ms, attempt) stood.

        Refused with CursorMoved where a cursor is not as `expects` says: whoever asked decides again, by the one that
        is on record (store/cursors.py).  Applied in this order: end, begin, skipped, new, cursors, dropped.  A run ends
        once: what comes later is ignored, and what follows it (`follows`) is not recorded, its id None.  The locks of
        a run that ends are released.  A change event is gone as soon as each job that wanted it has dropped it, or has
        no run for it that is open.
        """

    def cursors(self) -> Future[dict[JobId, Cursor]]: ...

    def open(self) -> Future[list[Run]]:
        """Return the runs that have not ended (waiting or running), oldest first."""

    def list(self, job: JobId | None = None, *, limit: int = 30, before: RunId | None = None) -> Future[list[Run]]:
        """Return runs of one job, or of all, newest first."""

    def latest(self) -> Future[dict[JobId, Run]]:
        """Return the newest ended run of each job: one that ran, not a skipped range."""

    async def prune(self, *, keep: int, older_than_ms: int) -> int:
        """Delete ended rows beyond `keep` a job, or ended before the moment; gives how many.

        Never holds up a write for long: it works in slices.  The newest row of all stays, so that ids never repeat.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Figures of a store since it was opened."""

    path: str
    writes: int
    batches: int
    errors: int
    size_bytes: int
    last_commit_ms: int | None  # of a batch that was committed
    pending: int  # ops that wait
    oldest_pending_s: float  # how long the oldest of them has waited
    stalled_s: float = 0.0  # for how long nothing has gone on, though they wait: a stuck disk shows here
    failed: str = ""  # why nothing can be written: the files are gone or damaged, or the latest batch failed as a whole


class Store(Protocol):
    @property
    def runs(self) -> Runs: ...

    @property
    def values(self) -> Values: ...

    @property
    def locks(self) -> Locks: ...

    @property
    def events(self) -> Events: ...

    @property
    def records(self) -> Records: ...

    @property
    def outbox(self) -> Outbox: ...

    def stats(self) -> StoreStats: ...

    async def close(self) -> None:
        """Commit what is queued, then close.

        Closing twice is harmless; what is asked after closing fails with StoreClosed.
        """
