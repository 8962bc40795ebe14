"""The store as the rest of spyweb sees it.  A write is acknowledged only once it is committed.

Calls return futures and are not coroutines: an op passes the future directly to the run that waits for it, which saves
a task for each.  If a future is cancelled before its write has begun, the write is dropped; after that it is completed.
A `get` sees every write of its key that was requested before it; a query about runs sees what was acknowledged before
it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from spyweb.histogram import Histogram
from spyweb.model import (
    Cursor,
    Ending,
    JobId,
    Outcome,
    Run,
    RunId,
    RunState,
    Trigger,
    TriggerType,
)
from spyweb.store.audit_protocol import AuditTrail
from spyweb.store.incidents_protocol import Incidents, ScriptTold, SubjectEvent
from spyweb.store.keys_protocol import AccessKeys
from spyweb.store.notices_protocol import ScriptNotices
from spyweb.store.outbox_protocol import NewMessage, Outbox
from spyweb.store.past_runs_protocol import PastRuns
from spyweb.store.records_protocol import Records
from spyweb.store.tasks_protocol import Tasks
from spyweb.store.values_protocol import (
    Events,
    Locks,
    Values,
    WantedChange,
)

GLOBAL = "global"  # the namespace of global_store_*


def job_namespace(job: JobId) -> str:
    """Return the namespace of a job's store_*: a column of its own, so that no key can lead into another's."""
    return f"job:{job}"


class RequestKey(Struct, frozen=True, kw_only=True):
    """The key that a client has given a request, so that repeating the request starts no second run."""

    scope: str  # whose keys they are: those of one job
    key: bytes  # a hash
    fingerprint: bytes  # of what was asked: another request by the same key is an error
    at_ms: int


class NewRun(Struct, frozen=True, kw_only=True):
    """A run to be recorded.  (job, due_ms, attempt) is unique where due_ms is given; `trigger` is kept as JSON."""

    job: JobId
    state: RunState  # RUNNING, or WAITING for its turn
    trigger: Trigger
    attempt: int = 1
    due_ms: int | None = None
    start_after_ms: int | None = None
    started_ms: int | None = None
    generation: int = 0
    event: int | None = None  # the change event that starts it, which its job wanted
    follows: RunId | None = None  # a run that ends in the same change: recorded only if that end applies
    payload: bytes | None = None  # kept apart, since it is large, until no run has to do with it
    of_payload: RunId | None = None  # the run with which the payload was kept that this one needs
    request: RequestKey | None = None  # recorded with it


class Begin(Struct, frozen=True, kw_only=True):
    """The start of a waiting run."""

    run: RunId
    started_ms: int
    generation: int = 0


class End(Ending, frozen=True, kw_only=True):
    """The end of a run as it is recorded, and what is recorded with it."""

    run: RunId
    ended_ms: int
    result: str = ""  # as text
    event: int | None = None  # the change event that had started it
    alert: SubjectEvent | None = None  # what it means for its job's incidents, where it may change them
    ping: NewMessage | None = None  # what a watcher elsewhere is told of it
    of_payload: RunId | None = None  # its payload is dropped, unless a run that follows it needs it


class SkippedRange(Struct, frozen=True, kw_only=True):
    """Due times, or changes of state, that start no run, and the reason.

    They share one row: the newest row of their job is extended when it has the same outcome and reason.
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

    expects: Mapping[JobId, Cursor | None] = {}  # as they must be on record (None: absent), or the change is refused
    cursors: Sequence[Cursor] = ()
    new: Sequence[NewRun] = ()
    begin: Sequence[Begin] = ()
    end: Sequence[End] = ()
    skipped: Sequence[SkippedRange] = ()
    heard: Mapping[JobId, int] = {}  # jobs that run elsewhere, and when a ping came: their cursors
    dropped: Sequence[WantedChange] = ()  # changes that start no run of the job that wanted them
    told: Sequence[ScriptTold] = ()  # what jobs' files are told of incidents by the new runs


# A change that is committed, and the ids of its new runs; without ids where its caller no longer waited for them.
Recorded = Callable[[Change, "Sequence[RunId | None] | None"], None]


class KnownRequest(Struct, frozen=True, kw_only=True):
    """A request that was answered."""

    fingerprint: bytes
    run: RunId
    at_ms: int


class Requests(Protocol):
    """The requests that have started runs: their keys, and what they sent along."""

    def find(self, scope: str, key: bytes) -> Future[KnownRequest | None]: ...

    def payload(self, run: RunId) -> Future[bytes | None]:
        """Return what was kept with this run; None once it is gone."""


class Runs(Protocol):
    """The record of every due time: which runs there were, which were skipped, and why."""

    def record(self, change: Change) -> Future[list[RunId | None]]:
        """Commit a change; return the id of each of `change.new`, None if (job, due_ms, attempt) is on record already.

        Refused with CursorMoved when a cursor is not as `expects` says: the caller decides again, from the one that is
        on record (store/cursors.py).  Applied in this order: end, begin, skipped, new, cursors, dropped.  A run ends
        once: a later end is ignored, and a run that follows it (`follows`) is not recorded, its id being None.  The
        locks of a run that ends are released.  A change event is deleted once each job that wanted it has dropped it,
        or has no open run for it.
        """

    def on_recorded(self, listen: Recorded) -> Callable[[], None]:
        """Have this called on the loop with each change after its commit; return the function that ends it."""

    def cursors(self) -> Future[dict[JobId, Cursor]]: ...

    def open(self) -> Future[list[Run]]:
        """Return the runs that have not ended, waiting or running, oldest first."""

    def list(self, job: JobId | None = None, *, limit: int = 30, before: RunId | None = None) -> Future[list[Run]]:
        """Return runs of one job, or of all, newest first."""

    def latest(self) -> Future[dict[JobId, Run]]:
        """Return the newest ended run of each job, skipped ranges left out; a skipped run where there is no other."""

    def succeeded(self) -> Future[dict[JobId, int]]:
        """Return when a run of each job last ended as a success, of those on record."""

    def started(self) -> Future[dict[JobId, int]]:
        """Return when the newest run of each job has started, of those on record; retries count."""

    async def prune(self, *, keep: int, older_than_ms: int) -> int:
        """Delete ended rows beyond `keep` per job, or ended before this moment; return how many.

        Works in slices, so that no write waits for long.  The newest row of all stays, so that ids never repeat, and
        the last success of each job.
        """


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
    failed: str = ""  # why nothing can be written: the files are gone or damaged, or the latest batch failed as a whole


class Store(Protocol):
    @property
    def runs(self) -> Runs: ...

    @property
    def past_runs(self) -> PastRuns: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def requests(self) -> Requests: ...

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

    @property
    def keys(self) -> AccessKeys: ...

    @property
    def audit(self) -> AuditTrail: ...

    @property
    def incidents(self) -> Incidents: ...

    @property
    def notices(self) -> ScriptNotices: ...

    def stats(self) -> StoreStats: ...

    def commit_sizes(self) -> Histogram:
        """Return how many writes the commits have had since the store was opened."""

    def probe(self) -> Future[None]:
        """Commit nothing, behind whatever waits: whether the writer makes progress."""

    def try_write(self) -> Future[None]:
        """Commit a write that leaves nothing behind: whether the disk takes any."""

    async def close(self) -> None:
        """Commit the queued writes, then close.

        Closing twice is harmless; a call after closing fails with StoreClosed.
        """
