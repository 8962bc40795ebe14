"""Group commit: the ops that queue up are run in one transaction, and answered once it is committed.

A BatchQueue is one connection with the queue before it.  Its ops run in the order of their submission, on the thread of
the connection; every function here that takes a sqlite3.Connection runs on that thread, all others on the event
loop.  An op's function must be repeatable: SQLite may roll a whole batch back, and PostgreSQL does where another
node has written the same rows; then its ops are run again.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from asyncio import Future
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from time import sleep
from typing import Any, Final, NamedTuple, TypeVar, TypeVarTuple

import structlog

from spyweb.clock import Clock, Handle
from spyweb.errors import NoAccess, StoreClosed, StoreCorrupt, StoreError, StoreFenced
from spyweb.histogram import SIZES, Histogram
from spyweb.model import Value
from spyweb.store.marker import LastCommit, Stamp
from spyweb.store.sqlite.connection import Connection
from spyweb.store.sqlite.damage import FileIdentity, find_last_commit
from spyweb.store.sqlite.failures import FAULTS, translate

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# A batch holds the connection for a moment for each op, and as many commits when it must be run again.
BATCH_LIMIT = 512
MOST_UNAWAITED, UNAWAITED_S = 64, 0.05  # ops that wait for another one to be committed with, and for how long
TRIES_TOGETHER, TRIES_ALONE = 3, 20  # of a batch and of an op, where another node writes the same rows
PAUSES_S = 0.002  # before the second try at most, before the third twice that
RECENT = 8  # commits: one that takes long may have waited for something else than the disk
STEPS_OF_PROGRESS = 1_000_000  # of SQLite's machine, between two signs of life: below 0.1 s

EVERYTHING: Final = ("",)
LONGEST_KEY, LONGEST_VALUE = 1024, 1024  # bytes: longer ones are read each time
MOST_CACHED = 2048


class OpKind(Enum):
    READ = 1
    WRITE = 2  # one statement writes: it is atomic by itself
    SEVERAL = 3  # several write: they stand or fall together, at the price of a savepoint (a quarter more)
    MERGED = 4  # of ops that are run together: they stand or fall with the batch


class Op(NamedTuple):
    kind: OpKind
    function: Callable[..., object]
    arguments: tuple[object, ...]
    future: Future[Any]
    subject: Hashable  # what it writes to, where somebody may ask
    after: Callable[[], None] | None = None  # called on the loop once it is committed, wanted or not


FUNCTION: Final[Callable[[Op], Callable[..., object]]] = attrgetter("function")
Results = list[Any]  # an op's result, or the Exception that it failed with

# By the function of ops that follow each other in a batch: one that runs them all, given the arguments of each, with
# fewer statements.  An op that it refuses has done nothing.
TOGETHER: Final[dict[Callable[..., object], Callable[[sqlite3.Connection, Sequence[Any]], Results]]] = {}


def each(connection: sqlite3.Connection, sql: str, rows: Sequence[Sequence[object]]) -> Iterable[sqlite3.Cursor]:
    """Execute a statement for each row as its result is taken; where each would be a round trip, for all at once."""
    if len(rows) == 1:
        return [connection.execute(sql, rows[0])]
    pipelined: Callable[..., Iterable[sqlite3.Cursor]] | None = getattr(connection, "each", None)
    return pipelined(sql, rows) if pipelined else (connection.execute(sql, row) for row in rows)


def execute_each(connection: sqlite3.Connection, statement: str, rows: Collection[Sequence[object]]) -> None:
    if rows:
        connection.executemany(statement, rows)


class Committer:
    """Commits transactions that have changed something.

    Each has a number, which is stored in the same transaction, and noted beside the database before its ops are
    answered.  A database with a smaller number than that has lost acknowledged commits.
    """

    def __init__(self, clock: Clock, last: LastCommit, note: Callable[[LastCommit], None] | None = None) -> None:
        self._clock = clock
        self._number = last.number
        self._note = note
        self._recent: deque[float] = deque(maxlen=RECENT)  # seconds
        self.file: Stamp | None = last.file  # of the database, before the transaction

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit, on the connection's thread."""
        last = LastCommit(self._number + 1, self._clock.now_ms(), self.file)
        connection.execute("REPLACE INTO last_commit VALUES (1, ?, ?)", (last.number, last.at_ms))
        began = self._clock.monotonic()
        connection.execute("COMMIT")
        self._recent.append(self._clock.monotonic() - began)
        self._number = last.number
        if self._note:
            self._note(last)

    @property
    def usual_s(self) -> float:
        """Return the seconds that even the fastest of the latest commits took; 0 before there are enough."""
        recent = list(self._recent)
        return min(recent) if len(recent) == RECENT else 0.0


log = structlog.get_logger()


def commit(connection: sqlite3.Connection, batch: Sequence[Op], committer: Committer | None = None) -> Results:
    """Run a batch in one transaction; when that is rolled back, each op in one of its own, so that only what
    cannot be done fails."""
    if len(batch) == 1:
        return [run_alone(connection, batch[0], committer)]
    for tried in range(TRIES_TOGETHER):
        pause(tried)
        try:
            begin(connection, batch)
        except FAULTS as error:
            if met_conflict(connection):
                continue
            return [error] * len(batch)  # each op would wait as long again
        results = try_together(connection, batch, committer)
        if results is not None:
            return results
        if not met_conflict(connection):
            break
        parts = [list(part) for _, part in groupby(batch, key=lambda op: bool(places_of([op])))]
        if len(parts) > 1:  # those that write entries alone, and others
            return [result for part in parts for result in commit(connection, part, committer)]
    return [run_alone(connection, op, committer) for op in batch]


def run_alone(connection: sqlite3.Connection, op: Op, committer: Committer | None) -> object:
    """Run an op in a transaction of its own: again where another node's came first, or the connection was lost."""
    writes = op.kind is not OpKind.READ
    for tried in range(TRIES_ALONE if writes else 2):
        pause(tried)
        before = connection.total_changes
        try:
            if writes:
                begin(connection, [op])
            result = attempt(connection, op)
            if writes and not isinstance(result, Exception):
                finish(connection, before, committer)
        except FAULTS as error:
            result = error
        if not isinstance(result, Exception):
            break
        roll_back(connection)
        if not met_conflict(connection):
            break
    return result


def met_conflict(connection: sqlite3.Connection) -> bool:
    """Return whether another node has written the same rows meanwhile, as it may on a PgConnection."""
    return getattr(connection, "was_conflict", False)


def pause(tried: int) -> None:
    """Let another node go first, so that the two do not meet in step again and again."""
    if tried:
        sleep(random.random() * PAUSES_S * tried)


def begin(connection: sqlite3.Connection, batch: Sequence[Op]) -> None:
    """Begin, with IMMEDIATE for writes: a transaction that reads first can't wait for another process."""
    if connection.in_transaction:  # an earlier one could not be rolled back: if this fails too, its error is raised
        connection.execute("ROLLBACK")
    writes = any(op.kind is not OpKind.READ for op in batch)
    begin_values = getattr(connection, "begin_values", None) if writes else None
    if begin_values and (places := places_of(batch)):
        begin_values(places)
    else:
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")


def places_of(batch: Sequence[Op]) -> set[Hashable]:
    """Return the (namespace, key) of each entry that a batch writes; none if it writes anything else."""
    places = {op.subject for op in batch if op.kind is not OpKind.READ}
    return places if all(isinstance(place, tuple) and len(place) == 2 for place in places) else set()


def try_together(connection: sqlite3.Connection, batch: Sequence[Op], committer: Committer | None) -> Results | None:
    """Run them in the transaction that has begun; None: nothing of the batch has happened."""
    results: Results = []
    before = connection.total_changes
    try:
        for op in merge(batch):
            if op.kind is OpKind.MERGED:
                results += TOGETHER[op.function](connection, op.arguments)
                continue
            if op.kind is OpKind.SEVERAL:
                connection.execute("SAVEPOINT op")
            result = attempt(connection, op)
            if not connection.in_transaction:
                raise sqlite3.OperationalError("SQLite has rolled all of it back: a full disk, an I/O error")
            if op.kind is OpKind.SEVERAL:
                if isinstance(result, Exception):
                    connection.execute("ROLLBACK TO op")
                connection.execute("RELEASE op")
            results.append(result)
        finish(connection, before, committer)
    except Exception:  # noqa: BLE001 - the boundary of a batch: whose error it was is seen when it is done again
        roll_back(connection)
        return None
    return results


def merge(batch: Sequence[Op]) -> Sequence[Op]:
    """Return a batch in which one op stands for those that may be run together."""
    if TOGETHER.keys().isdisjoint(map(FUNCTION, batch)):
        return batch
    merged: list[Op] = []
    for function, ops in groupby(batch, key=FUNCTION):
        same = list(ops)
        if function in TOGETHER and len(same) > 1:
            same = [same[0]._replace(kind=OpKind.MERGED, arguments=tuple(op.arguments for op in same))]
        merged += same
    return merged


def finish(connection: sqlite3.Connection, before: int, committer: Committer | None) -> None:
    """Commit; a batch without changes is not counted, since counting writes."""
    if committer and connection.total_changes != before:
        committer.commit(connection)
    else:
        connection.execute("COMMIT")


def attempt(connection: sqlite3.Connection, op: Op) -> object:
    try:
        return op.function(connection, *op.arguments)
    except Exception as error:  # noqa: BLE001 - the boundary of one op: its caller gets the error, the batch goes on
        return error


def roll_back(connection: sqlite3.Connection) -> None:
    """Roll back if possible; else that is done before the next transaction begins."""
    with suppress(*FAULTS):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


class Damage:
    """Remembers the damage found in a database since it was opened; one for all its connections.

    Then nothing more is written: it would make the damage worse, and some of it could not be read again.
    """

    found: StoreCorrupt | None = None

    def note(self, error: StoreCorrupt) -> None:
        """Remember the first damage that is found, and log it."""
        if self.found is None:
            self.found = error
            log.error("the database is damaged: nothing more is stored, and no run begins", reason=str(error))


class CachedValue:
    """The value of an entry, once it is known; the thread of a connection fills it."""

    __slots__ = ("is_known", "value")

    def __init__(self) -> None:
        self.is_known = False
        self.value: Value = None  # None: there is no such entry

    def learn(self, value: Value) -> None:
        """Remember a value, if it is small and immutable."""
        if not isinstance(value, list | dict) and not (isinstance(value, bytes) and len(value) > LONGEST_VALUE):
            self.value = value
            self.is_known = True


class PendingWrites:
    """Counts the writes of each subject: a (namespace, key), a namespace, or EVERYTHING; on the event loop only.

    A read of an entry that is being written queues behind the write, on the writer's connection.  Values of others that
    were read or set lately are remembered: a read of one waits for no thread.  One is forgotten as soon as another
    write of it is asked for, so it is never older than the last commit.
    """

    def __init__(self) -> None:
        self._writes: dict[Hashable, int] = {}  # subject → how many wait or run
        self._cached: dict[Hashable, CachedValue] = {}  # by subject

    def begin(self, subject: Hashable) -> None:
        self._writes[subject] = self._writes.get(subject, 0) + 1
        self._forget(subject)

    def end(self, subject: Hashable) -> None:
        """End a write that was committed."""
        left = self._writes[subject] - 1
        if left:
            self._writes[subject] = left
        else:
            del self._writes[subject]

    def drop(self, subject: Hashable) -> None:
        """End a write that was cancelled or refused."""
        self.end(subject)
        self._forget(subject)

    def clear(self) -> None:
        self._writes.clear()
        self._cached.clear()

    def is_written(self, namespace: str, key: bytes) -> bool:
        """Return whether a write of this entry, alone or with others, waits or runs, cancelled or not."""
        writes = self._writes
        return bool(writes) and ((namespace, key) in writes or namespace in writes or EVERYTHING in writes)

    def cached(self, namespace: str, key: bytes) -> CachedValue:
        """Return the cached entry; an unknown one is filled by the next read."""
        return self._cached.get((namespace, key)) or self.cache(namespace, key)

    def cache(self, namespace: str, key: bytes) -> CachedValue:
        """Return what will be known of an entry: a write just asked for, or the next read, fills it."""
        new = CachedValue()
        if len(key) <= LONGEST_KEY:
            if len(self._cached) >= MOST_CACHED:
                # The older half at once: finding the first key of a dictionary takes long after deletions at its front.
                for place in list(islice(self._cached, MOST_CACHED // 2)):
                    del self._cached[place]
            self._cached[namespace, key] = new
        return new

    def _forget(self, subject: Hashable) -> None:
        if isinstance(subject, tuple) and subject is not EVERYTHING:
            self._cached.pop(subject, None)
        else:
            self._cached.clear()


class BatchQueue:
    """One connection, and the queue before it.

    It wakes when an op is queued, and runs batches until none is left.  Should that ever fail, the waiting ops fail
    with a StoreError, the loop's exception handler gets the error, and the queue goes on.
    """

    def __init__(self, connection: Connection, path: Path | str, clock: Clock, *, limit: int = BATCH_LIMIT) -> None:
        self._connection = connection
        self._path = path
        self._clock = clock
        self._limit = limit
        self._queue: list[Op] = []
        self._queued_since = 0.0
        self._batch: list[Op] = []
        self._batch_since = 0.0
        self._went_on = 0.0  # when something last did
        self.pending_writes = PendingWrites()
        self._running: asyncio.Task[None] | None = None  # as long as there are ops that are awaited
        self._timer: Handle | None = None  # for those that are not
        self.is_closing = False
        self.loop = asyncio.get_running_loop()
        self.writes = self.batches = self.errors = 0
        self.commit_sizes = Histogram(SIZES)
        self.last_commit_ms: int | None = None
        self.tell_of_rows: Callable[[int], object] = int  # called after each batch with how many it has changed
        self.tell_of_fence: Callable[[StoreFenced], object] = str  # called where this node's writes are refused
        self._changed = connection.total_changes
        self.files: FileIdentity | None = None  # looked for before each batch; None: nothing is written
        self.damage = Damage()
        self.committer: Committer | None = None  # of the connection that writes
        self._fault = ""  # why the latest batch failed as a whole, if it did

    def submit(
        self,
        kind: OpKind,
        function: Callable[[sqlite3.Connection, *Ts], T],
        *arguments: *Ts,
        subject: Hashable = None,
        after: Callable[[], None] | None = None,
        is_awaited: bool = True,
    ) -> Future[T]:
        """Queue an op; the future has its result once it is committed.

        One that nobody awaits waits a moment for others, so that they share a commit; it is committed before what is
        asked for after it.
        """
        if self.is_closing or (self.damage.found and kind is not OpKind.READ):
            return self._refused()
        if subject is not None:
            self.pending_writes.begin(subject)
        if not self._queue:
            self._queued_since = self._clock.monotonic()
        future: Future[T] = self.loop.create_future()
        self._queue.append(Op(kind, function, arguments, future, subject, after))
        if self._running is None:
            if is_awaited or len(self._queue) >= MOST_UNAWAITED:
                self._wake()
            elif self._timer is None:
                self._timer = self._clock.call_later(UNAWAITED_S, self._wake)
        return future

    def _wake(self) -> None:
        self._timer = None
        if self._queue and self._running is None:
            self._running = self.loop.create_task(self._run_batches(), name="store")

    def _refused(self) -> Future[T]:
        future: Future[T] = self.loop.create_future()
        found = self.damage.found
        # A new one each time: an exception that several callers raise would gather their tracebacks.
        again = StoreCorrupt(found.path, found.reason) if found and not self.is_closing else StoreClosed()
        future.set_exception(again)
        return future

    @property
    def trouble(self) -> str:
        """Return why nothing is written, if nothing is."""
        moved = self.files.trouble() if self.files else None
        return str(self.damage.found or moved or self._fault)

    @property
    def pending(self) -> int:
        return len(self._batch) + len(self._queue)

    @property
    def oldest_pending_s(self) -> float:
        if not self.pending:
            return 0.0
        return self._clock.monotonic() - (self._batch_since if self._batch else self._queued_since)

    @property
    def stalled_s(self) -> float:
        """Return for how many seconds there was no progress: a long import makes some, a stuck disk none."""
        return min(self.oldest_pending_s, self._clock.monotonic() - self._went_on)

    async def begin_writing(self, note: Callable[[LastCommit], None] | None) -> LastCommit:
        """Notice from now on that a long op goes on, and count commits, each noted before it is acknowledged.

        Return the one before.
        """
        try:
            await self._connection.run(lambda db: db.set_progress_handler(self._note_progress, STEPS_OF_PROGRESS))
            last = await self._connection.run(find_last_commit, self.files.stamp if self.files else None)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        self.committer = Committer(self._clock, last, note)
        return last

    def _note_progress(self) -> None:
        """Note progress, on the loop or the connection's thread; anything but None would end the statement."""
        self._went_on = self._clock.monotonic()

    async def close(self) -> None:
        """Let everything that is queued be committed, then close the connection."""
        self.is_closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._wake()
        if self._running:
            await asyncio.wait([self._running])
        await self._connection.close()

    async def _run_batches(self) -> None:
        """Begin in the loop's next turn: what else is asked for in this one goes into the same batch."""
        try:
            while self._queue:
                self._take_batch()
                if self._batch:
                    results = await self._connection.run(commit, self._batch, self.committer)
                    self._fault = ""
                    self._answer(results)
        except Exception as error:  # noqa: BLE001 - the boundary of the queue: nothing may be left waiting
            self._fail_all(error)
        finally:
            self._running = None

    def _take_batch(self) -> None:
        """Take the next batch without the ops cancelled so far; from here on, its ops will be committed."""
        self._batch, self._queue = self._queue[: self._limit], self._queue[self._limit :]
        dropped = [op for op in self._batch if op.future.cancelled()]
        if dropped:
            self._batch = [op for op in self._batch if not op.future.cancelled()]
            for op in dropped:
                self._forget(op)
        self._batch_since = self._queued_since
        self._note_progress()
        # Here, not on the thread: there it would give the interpreter's lock away twice more for each batch.
        moved = self.files.trouble() if self.files else None
        if moved:
            self._answer([moved] * len(self._batch))
        elif self.files and self.committer:
            self.committer.file = self.files.stamp

    def _answer(self, results: Results) -> None:
        batch = self._batch
        self.batches += 1
        committed = 0
        callbacks: dict[Callable[[], None], None] = {}  # each once
        for op, result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                self._forget(op)
                self._refuse(op, result)
                continue
            kind, _, _, future, subject, after = op
            if subject is not None:
                self.pending_writes.end(subject)
            committed += kind is not OpKind.READ
            if not future.done():  # cancelled meanwhile: the write stands, nobody wants its result
                future.set_result(result)
            if after:
                callbacks[after] = None
        self._batch = []
        for callback in callbacks:
            self.loop.call_soon(callback)
        if committed:
            self._note_commit(committed)

    def _note_commit(self, writes: int) -> None:
        self.writes += writes
        self.commit_sizes.observe(writes)
        self.last_commit_ms = self._clock.now_ms()
        changed = self._connection.total_changes
        if changed != self._changed:
            # Without the row that counts commits: its page is one, however often it is written.
            self.tell_of_rows(changed - self._changed - (self.committer is not None))
        self._changed = changed

    def _forget(self, op: Op) -> None:
        """Drop an op that will not be committed."""
        if op.subject is not None:
            self.pending_writes.drop(op.subject)

    def _refuse(self, op: Op, error: Exception) -> None:
        self.errors += isinstance(error, FAULTS)
        refusal = translate(error, self._path)
        if isinstance(refusal, NoAccess):
            refusal = StoreError(str(refusal))  # NoAccess is for those who open a store
        elif isinstance(refusal, StoreCorrupt):
            self.damage.note(refusal)
        elif isinstance(refusal, StoreFenced):
            self.tell_of_fence(refusal)
        if not op.future.done():
            op.future.set_exception(refusal)

    def _fail_all(self, error: BaseException) -> None:
        """Fail all waiting ops: whether they were committed is unknown."""
        self._fault = f"{self._path}: the writer failed: {str(error) or type(error).__name__}"
        stranded, self._batch, self._queue = self._batch + self._queue, [], []
        for op in stranded:
            if not op.future.done():
                op.future.set_exception(StoreError(self._fault))
        self.pending_writes.clear()
        self.loop.call_exception_handler({"message": self._fault, "exception": error})
