"""The SQLite store: one connection for writing, one for reading entries, and one for long queries.

`open_store` checks the file before it is used: it must be a database, and not damaged as far as a quick check can tell;
it is then migrated to this spyweb's schema.  A failure raises a StoreError, or a NoAccess, with one clear line.
"""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Callable
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from spyweb.clock import Clock
from spyweb.errors import StoreError, StoreFenced
from spyweb.histogram import Histogram
from spyweb.model import Durability
from spyweb.store.encryption import PLAIN, Codec, codec_for
from spyweb.store.lock import hold_database
from spyweb.store.marker import Marker
from spyweb.store.model.entries import NO_HISTORY, HistoryRules, StoreStats
from spyweb.store.sqlite import damage
from spyweb.store.sqlite.batch import BATCH_LIMIT, BatchQueue, OpKind
from spyweb.store.sqlite.checkpoints import Checkpoints
from spyweb.store.sqlite.connection import Connection
from spyweb.store.sqlite.connections import Connections, do_nothing, write_and_undo
from spyweb.store.sqlite.events import Events
from spyweb.store.sqlite.failures import BUSY_TIMEOUT_MS, opening
from spyweb.store.sqlite.incidents import Incidents
from spyweb.store.sqlite.keys import AccessKeys, AuditTrail
from spyweb.store.sqlite.locks import Locks
from spyweb.store.sqlite.migrate import create, find_pending, load_migrations, migrate, refuse_moved, refuse_older
from spyweb.store.sqlite.outbox import Outbox
from spyweb.store.sqlite.past_runs import PastRuns
from spyweb.store.sqlite.records import Records
from spyweb.store.sqlite.runs import Runs
from spyweb.store.sqlite.tasks import Tasks
from spyweb.store.sqlite.values import Values
from spyweb.store.sqlite.vault import check_key, codec_of, encrypt_first, purge, rewrite

if TYPE_CHECKING:  # else psycopg would be needed
    from spyweb.store.postgres.nodes import Nodes

log = structlog.get_logger()

IN_MEMORY = Path(":memory:")  # as SQLite spells it
STATEMENTS_KEPT_PREPARED = 64  # more than the store has
WAL_KEPT_BYTES = 64 << 20
PAGES_BETWEEN_CHECKPOINTS = 8000  # of the log, before a commit copies it


class Store:
    """The store as the rest of spyweb sees it.  A write is acknowledged only once it is committed.

    Calls return futures and are not coroutines: an op passes the future directly to the run that waits for it, which
    saves a task for each.  If a future is cancelled before its write has begun, the write is dropped; after that it is
    completed.  A read of a key sees every write of it that was requested before; a query about many keys sees every
    write requested before it; one about runs what was acknowledged before it.
    """

    def __init__(
        self, place: Path | str, connections: Connections, clock: Clock, codec: Codec, history: HistoryRules
    ) -> None:
        """Take the path of a database, or the name of one that is no file."""
        self._place = place
        self._connections = connections
        self._closing = asyncio.Lock()
        self.outbox = Outbox(connections, clock)
        self.incidents = Incidents(connections, clock, self.outbox)
        self.locks = Locks(connections, clock)
        self.events = Events(connections, clock, codec)
        self.values = Values(connections, clock, codec, self.events, self.locks, history)
        self.runs = Runs(connections, clock, self.locks, self.incidents, self.outbox)
        self.uptime = self.runs.uptime
        self.past_runs = PastRuns(connections, clock, codec)
        self.tasks = Tasks(connections, clock)
        self.records = Records(connections, clock)
        self.keys = AccessKeys(connections, clock)
        self.audit = AuditTrail(connections, clock)
        self.nodes: Nodes | None = None  # of a cluster on PostgreSQL
        self.size: Callable[[], int] = self._size

    def stats(self) -> StoreStats:
        writer = self._connections.writer
        return StoreStats(
            path=str(self._place),
            writes=writer.writes,
            batches=writer.batches,
            errors=writer.errors,
            size_bytes=self.size(),
            last_commit_ms=writer.last_commit_ms,
            pending=writer.pending,
            oldest_pending_s=writer.oldest_pending_s,
            stalled_s=writer.stalled_s,
            failed=writer.trouble,
            commit_s=writer.committer.usual_s if writer.committer else 0.0,
        )

    def _size(self) -> int:
        return sum(map(damage.size_of, damage.files_of(Path(self._place))))

    def commit_sizes(self) -> Histogram:
        """Return how many writes the commits have had since the store was opened."""
        return self._connections.writer.commit_sizes

    def on_fenced(self, callback: Callable[[StoreFenced], object]) -> None:
        """Have this called on the loop where writes are refused since this node is over."""
        self._connections.writer.tell_of_fence = callback

    def probe(self) -> Future[None]:
        """Commit nothing, after all waiting ops: it shows whether the writer makes progress."""
        return self._connections.writer.submit(OpKind.WRITE, do_nothing)

    def try_write(self) -> Future[None]:
        """Commit a write that leaves nothing behind: whether the disk takes any."""
        return self._connections.writer.submit(OpKind.SEVERAL, write_and_undo)

    async def close(self) -> None:
        """Commit the queued writes, then close; twice is harmless.  A later call fails with StoreClosed."""
        async with self._closing:
            if self.nodes:
                await self.nodes.close()
            await self._connections.close()


async def open_store(  # noqa: PLR0913 - each but the first is an option
    path: Path,
    *,
    clock: Clock,
    durability: Durability = Durability.FULL,
    read_only: bool = False,
    key: bytes | None = None,
    history: HistoryRules = NO_HISTORY,
    marker: Marker | None = None,
) -> Store:
    """Open the database, made if it is absent and migrated; with `read_only`, as it is or not at all.

    With a key, values are encrypted, including those that are not yet.  The marker tells what an earlier process has
    noted about the database.
    """
    codec = codec_for(key)
    damage.refuse_missing(path, marker.folder if marker and marker.found else None)
    if read_only:
        return await open_to_look(path, clock, partial(open_as_it_is, path, codec, durability, marker), codec, history)
    return Store(path, await open_connections(path, clock, durability, codec, marker), clock, codec, history)


async def open_in_memory(*, clock: Clock, history: HistoryRules = NO_HISTORY) -> Store:
    """Open a database in memory.  It has one connection, since another would not see its writes."""

    def make() -> sqlite3.Connection:
        connection = connect(IN_MEMORY, "memory")
        create(connection, clock.now_ms())
        return connection

    return await open_to_look(IN_MEMORY, clock, make, PLAIN, history)


async def open_to_look(
    path: Path, clock: Clock, connect: Callable[[], sqlite3.Connection], codec: Codec, history: HistoryRules
) -> Store:
    async with AsyncExitStack() as opened:
        queue = await open_queue(opened, path, clock, connect)
        connections = Connections(writer=queue, reader=queue, questions=queue)
        store = Store(path, connections, clock, await connections.ask(codec_of, codec), history)
        opened.pop_all()
    return store


async def open_connections(
    path: Path, clock: Clock, durability: Durability, codec: Codec, marker: Marker | None = None
) -> Connections:
    async with AsyncExitStack() as opened:
        lock = hold_database(path, clock=clock)
        opened.callback(lock.release)
        queue = partial(open_queue, opened, path, clock)
        writer = await queue(partial(open_up_to_date, path, durability, clock.now_ms(), codec, marker))
        reader = await queue(partial(connect, path, "ro"))
        questions = await queue(partial(connect, path, "ro"), limit=1)
        writer.files = files = damage.FileIdentity(path, reads_index=True)
        writer.damage = reader.damage = questions.damage
        last = await writer.begin_writing(marker.note_commit if marker else None)
        checkpoints = Checkpoints(path, files, partial(connect, path, "rw"))
        opened.pop_all()
    writer.tell_of_rows = checkpoints.note
    if marker:
        marker.note_opened(last)
    return Connections(
        writer=writer, reader=reader, questions=questions, checkpoints=checkpoints, lock=lock, marker=marker
    )


async def open_queue(
    opened: AsyncExitStack,
    path: Path | str,
    clock: Clock,
    connect: Callable[[], sqlite3.Connection],
    *,
    limit: int = BATCH_LIMIT,
) -> BatchQueue:
    """Connect.  A `limit` of 1: a short query does not wait for a long one behind it."""
    with opening(path):
        queue = BatchQueue(await Connection.open(connect), path, clock, limit=limit)
    opened.push_async_callback(queue.close)
    return queue


def open_up_to_date(
    path: Path, durability: Durability, now_ms: int, codec: Codec = PLAIN, marker: Marker | None = None
) -> sqlite3.Connection:
    """Open a database for writing, and migrate it.

    1. look for damage and loss; 2. refuse a newer one, or one with another key; 3. set up the connection; 4. migrate,
    or create; 5. encrypt values that are not.

    Steps 1 and 2 use a connection that can't write: closing the last one that can moves the log into the database.
    """
    is_new = not damage.size_of(path)
    if not is_new and (loss := refuse_unfit(path, codec, durability, marker)):
        log.error("the database does not hold all that was stored last", missing=loss)
    connection = connect(path)
    try:
        set_up_writing(connection, durability)
        if is_new:
            create(connection, now_ms)
        else:
            refuse_moved(connection, path)
            migrate(connection, path, load_migrations(), now_ms)
        encrypt_first(connection, codec)
        purge(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_unfit(path: Path, codec: Codec, durability: Durability, marker: Marker | None) -> str:
    """Return what `find_loss` finds."""
    killed = damage.was_killed(path, marker)
    with closing(connect(path, "ro")) as connection:
        damage.check(connection, path, killed=killed)
        find_pending(connection, path, load_migrations())
        check_key(connection, path, codec)
        return damage.find_loss(connection, path, marker, durability) if marker else ""


def refuse_unsound(path: Path, known_in: Path | None) -> None:
    """Raise StoreIncomplete or StoreCorrupt if another database of the project is missing or damaged."""
    damage.refuse_missing(path, known_in)
    if damage.size_of(path):
        killed = damage.was_killed(path)
        with opening(path), closing(connect(path, "ro")) as connection:
            damage.check(connection, path, killed=killed)


def rotate_key(path: Path, *, old: bytes | None, new: bytes | None, marker: Marker | None = None) -> bool:
    """Rewrite all values, their history and their events, or none (None: unencrypted values).

    Return whether nothing of their old form is left in the file; if something is, the next opening removes it.  The
    caller holds the lock of the data directory.  Raises a StoreError with one clear line.
    """
    before, after = codec_for(old), codec_for(new)
    damage.refuse_missing(path, marker.folder if marker and marker.found else None)
    with opening(path), hold_database(path):
        refuse_unfit(path, before, Durability.FULL, marker)
        with closing(connect(path)) as connection:
            refuse_older(connection, path, load_migrations())
            refuse_moved(connection, path)
            set_up_writing(connection, Durability.FULL)
            rewrite(connection, codec_of(connection, before), after)
            with suppress(sqlite3.Error):  # the values have their new key by now: no failure may hide that
                return purge(connection)
            return False


def open_as_it_is(
    path: Path, codec: Codec = PLAIN, durability: Durability = Durability.FULL, marker: Marker | None = None
) -> sqlite3.Connection:
    if not path.exists():
        raise StoreError(f"{path}: there is no database yet: `spyweb start` makes it")
    connection = connect(path, "ro")
    try:
        damage.check_schema(connection)
        if marker:
            damage.find_loss(connection, path, marker, durability)
        refuse_older(connection, path, load_migrations())
        refuse_moved(connection, path)
        check_key(connection, path, codec)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    """Connect to a database; it is made only with `rwc`, or `memory`."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,  # the store begins transactions, not the sqlite3 module
        cached_statements=STATEMENTS_KEPT_PREPARED,
    )


def set_up_writing(connection: sqlite3.Connection, durability: Durability) -> None:
    """Set the connection's pragmas, the journal mode first: it is stored in the file, and others depend on it."""
    # Readers and the writer do not wait for each other, and a commit is one append.
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: the log is on the disk before a write is acknowledged.  NORMAL: at the next checkpoint.
    connection.execute(f"PRAGMA synchronous = {durability.value}")
    # A checkpoint that is left to a commit (checkpoints.py) makes it wait for further syncs.
    connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_BETWEEN_CHECKPOINTS}")
    # Otherwise the log would keep its largest size for ever.
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    # A damaged page is noticed when it is read, before its neighbours are written.
    connection.execute("PRAGMA cell_size_check = ON")
    # A file that was tampered with must not run functions through its schema.
    connection.execute("PRAGMA trusted_schema = OFF")
    # Some builds of SQLite overwrite deleted values.  This leaves whole pages out, so that large values are deleted
    # quickly.  Encryption begins with a VACUUM.
    connection.execute("PRAGMA secure_delete = FAST")
