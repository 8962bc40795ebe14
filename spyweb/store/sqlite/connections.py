"""The connections of a store: which of them answers what, so that each answer sees the writes asked for before."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, TypeVarTuple

from msgspec import Struct, convert

from spyweb.clock import Clock
from spyweb.store.lock import Lock
from spyweb.store.marker import Marker
from spyweb.store.sqlite.batch import BatchQueue, OpKind, execute_each
from spyweb.store.sqlite.checkpoints import Checkpoints

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
P = ParamSpec("P")
S = TypeVar("S", bound="StorePart")

SLICE = 200  # rows deleted in one op: the writes queued behind it hardly wait
JOBS_AT_ONCE = 100  # read in one query, so that other queries get their turn

Rows = Sequence[tuple[Any, ...]]  # each as a DELETE takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    writer: BatchQueue
    reader: BatchQueue
    questions: BatchQueue
    checkpoints: Checkpoints | None = None  # None: nothing is written
    lock: Lock | None = None  # the same
    marker: Marker | None = None
    is_shared: bool = False  # other nodes write to the database, too

    def reading(self, namespace: str, key: bytes) -> BatchQueue:
        """Return the queue for a read of an entry: no commit is waited for, but where that is being written."""
        return self.writer if self.writer.pending_writes.is_written(namespace, key) else self.reader

    def ask(self, function: Callable[[sqlite3.Connection, *Ts], T], *arguments: *Ts) -> Future[T]:
        """Ask a question about many keys, once the writes asked for so far are committed."""
        if not self.writer.pending:
            return self.questions.submit(OpKind.READ, function, *arguments)
        barrier = self.writer.submit(OpKind.READ, do_nothing)

        async def ask_then() -> T:
            await barrier
            return await self.questions.submit(OpKind.READ, function, *arguments)

        return self.writer.loop.create_task(ask_then())

    async def close(self) -> None:
        """The writer last: the last connection folds the log into the database, so it must be able to write."""
        if self.checkpoints:
            await self.checkpoints.stop()
        await self.questions.close()
        await self.reader.close()
        await self.writer.close()
        if self.checkpoints:
            self.checkpoints.close()
        if self.marker:
            self.marker.note_closed()
        if self.lock:
            self.lock.release()


class StorePart:
    """A part of the store; its methods with a parameter `connection` run on the connection's thread."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        self._connections = connections
        self._writer = connections.writer
        self._questions = connections.questions
        self._clock = clock
        self.ring: Callable[[], Any] = int  # after commits that other nodes may want to hear of

    async def _prune(self, find: Callable[[sqlite3.Connection, str], tuple[Rows, str | None]], delete: str) -> int:
        """Delete in slices: a reader finds rows, given and giving where to go on, and the writer deletes them."""
        deleted = 0
        after: str | None = ""
        while after is not None:
            rows, after = await self._questions.submit(OpKind.READ, find, after)
            if rows:
                await self._writer.submit(OpKind.SEVERAL, execute_each, delete, rows)
                deleted += len(rows)
        return deleted

    async def _prune_older(self, outdated: str, than_ms: int, delete: str) -> int:
        """Delete the rows that a statement gives for the moment and a limit; return how many."""

        def find(connection: sqlite3.Connection, after: str) -> tuple[Rows, str | None]:
            rows = connection.execute(outdated, (than_ms, SLICE)).fetchall()
            return rows, after if rows else None

        return await self._prune(find, delete)

    async def _prune_jobs(
        self, table: str, outdated: Callable[[sqlite3.Connection, str, int], Rows], delete: str
    ) -> int:
        """Delete what `outdated` gives of each job in this table, at most so many of one at once; return how many."""

        def find(connection: sqlite3.Connection, after: str) -> tuple[Rows, str | None]:
            found: list[tuple[Any, ...]] = []
            for _ in range(JOBS_AT_ONCE):
                job = connection.execute(f"SELECT min(job) FROM {table} WHERE job > ?", (after,)).fetchone()[0]
                if job is None:
                    return found, None
                most = SLICE - len(found)
                of_job = outdated(connection, job, most)
                found += of_job
                if len(of_job) == most:  # there may be more of this job
                    break
                after = job
            return found, after

        return await self._prune(find, delete)


class Announcer(StorePart, Generic[T]):
    """A part of the store whose commits others want to hear of."""

    def __init__(self, connections: Connections, clock: Clock) -> None:
        super().__init__(connections, clock)
        self._callbacks: list[Callable[[Sequence[T]], object]] = []

    def on_committed(self, callback: Callable[[Sequence[T]], object]) -> None:
        """Have this called on the loop, after each commit of what this part announces, with that."""
        self._callbacks.append(callback)

    def tell(self, what: Sequence[T]) -> None:
        """Announce the committed changes."""
        if what:
            for callback in self._callbacks:
                callback(what)
            self.ring()


Work = Callable[Concatenate[S, sqlite3.Connection, P], T]  # a method as it is written
Call = Callable[Concatenate[S, P], Future[T]]  # the same as it is called


def queued(ask: Callable[[S, Callable[[sqlite3.Connection], T]], Future[T]], work: Work[S, P, T]) -> Call[S, P, T]:
    @wraps(work)
    def call(part: S, /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        return ask(part, lambda connection: work(part, connection, *arguments, **named))

    return call


def on_writer(kind: OpKind, *, rings: bool = False) -> Callable[[Work[S, P, T]], Call[S, P, T]]:
    """Make a method an op of the writer; `rings`: other nodes may want to hear of it."""

    def ask(part: S, call: Callable[[sqlite3.Connection], T]) -> Future[T]:
        return part._writer.submit(kind, call, after=part.ring if rings else None)

    return lambda work: queued(ask, work)


def on_reader(work: Work[S, P, T]) -> Call[S, P, T]:
    """Make a method a short question."""
    return queued(lambda part, work: part._connections.reader.submit(OpKind.READ, work), work)


def on_questions(work: Work[S, P, T]) -> Call[S, P, T]:
    """Make a method a question that may look at many rows."""
    return queued(lambda part, work: part._questions.submit(OpKind.READ, work), work)


def on_questions_after_writes(work: Work[S, P, T]) -> Call[S, P, T]:
    """Make a method a question that sees every write requested before it."""
    return queued(lambda part, work: part._connections.ask(work), work)


def columns_of(kind: type[Struct]) -> str:
    """Return the columns of a table whose rows are read as this type: the names of its fields."""
    return ", ".join(f'"{name}"' for name in kind.__struct_fields__)


def insert_into(table: str, columns: str) -> str:
    """Return the statement that adds a row of these columns."""
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(columns.split(',')))})"


def upsert(table: str, columns: str, key: str) -> str:
    """Return the statement that adds a row, or gives the row with the same key the other columns."""
    others = (column for column in columns.split(", ") if column.strip('"') not in key.split(", "))
    changes = ", ".join(f"{column} = excluded.{column}" for column in others)
    return f"{insert_into(table, columns)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def read_as(kind: type[T], row: Sequence[object], **changes: object) -> T:
    """Return a row of these columns, or of the first of them, with other values for some fields."""
    fields = dict(zip(kind.__struct_fields__, row, strict=False)) | changes  # type: ignore[attr-defined]
    return convert(fields, kind, strict=False)


def do_nothing(connection: sqlite3.Connection) -> None:
    pass


def write_and_undo(connection: sqlite3.Connection) -> None:
    """Change a page and change it back: it is written all the same, as that of any row."""
    connection.execute("INSERT INTO alert_channel (name) VALUES ('') ON CONFLICT DO NOTHING")  # no channel's
    connection.execute("DELETE FROM alert_channel WHERE name = ''")
