"""Open a store on PostgreSQL: the classes of spyweb/store/sqlite, with other connections."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from functools import partial

import psycopg
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.model import Durability
from spyweb.settings.sections import Settings
from spyweb.store.encryption import BYTES, Codec, codec_for
from spyweb.store.model.entries import NO_HISTORY, HistoryRules
from spyweb.store.postgres.bell import Bell
from spyweb.store.postgres.connection import PgConnection
from spyweb.store.postgres.migrate import bring_up_to_date, refuse_other
from spyweb.store.postgres.nodes import ALIVE, Nodes, bury, read_nodes, refuse_living
from spyweb.store.postgres.server import QUESTION_S, READ_S, PgServer
from spyweb.store.sqlite.batch import BatchQueue, OpKind
from spyweb.store.sqlite.connections import Connections
from spyweb.store.sqlite.failures import opening
from spyweb.store.sqlite.migrate import load_migrations, refuse_moved
from spyweb.store.sqlite.store import Store, open_queue
from spyweb.store.sqlite.vault import check_key, find_seal, rewrite_values

BEATS_WAIT_S = 10.0
SIZE_S = 60.0  # between two questions for it
SIZE = "SELECT sum(pg_total_relation_size(format('%I', tablename))) FROM pg_tables WHERE schemaname = current_schema()"


class SchemaSize:
    """The size of the store: asked for anew by who reads it, at most once a minute."""

    def __init__(self, questions: BatchQueue, clock: Clock) -> None:
        self._questions, self._clock = questions, clock
        self._bytes, self._next_s = 0, 0.0
        self()

    def __call__(self) -> int:
        if self._clock.monotonic() >= self._next_s:
            self._next_s = self._clock.monotonic() + SIZE_S
            asked = self._questions.submit(OpKind.READ, lambda connection: connection.execute(SIZE).fetchone())
            asked.add_done_callback(self._learn)
        return self._bytes

    def _learn(self, asked: Future[tuple[int]]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            (self._bytes,) = asked.result()


async def open_postgres(
    server: PgServer,
    *,
    clock: Clock,
    durability: Durability = Durability.FULL,
    read_only: bool = False,
    key: bytes | None = None,
    history: HistoryRules = NO_HISTORY,
) -> Store:
    """Open the schema, made if it is absent and migrated; with `read_only`, as it is or not at all.

    Raises StoreError with one clear line; StoreUnreachable where it may help to try again.
    """
    codec: Codec = BYTES if key is None else codec_for(key)
    is_relaxed = durability is Durability.NORMAL
    async with AsyncExitStack() as opened:
        queue = partial(open_queue, opened, server.name, clock)
        writing = partial(open_up_to_date, server, clock.now_ms(), codec, read_only=read_only, is_relaxed=is_relaxed)
        writer = await queue(writing)
        reader = await queue(partial(connect, server, READ_S))
        questions = await queue(partial(connect, server, QUESTION_S), limit=1)
        connections = Connections(writer=writer, reader=reader, questions=questions, is_shared=True)
        if read_only and not await connections.ask(find_seal):
            codec = BYTES
        store = Store(server.name, connections, clock, codec, history)
        # Beats do not wait long for PostgreSQL: that it is away is to be known soon.
        impatient = replace(server, lease_s=min(server.lease_s / 2, BEATS_WAIT_S))
        heart = await queue(partial(connect, impatient, server.lease_s / 4))
        store.nodes = Nodes(connections, clock, heart, Bell(server, connections, clock, store))
        store.size = SchemaSize(questions, clock)
        opened.pop_all()
    return store


def open_up_to_date(
    server: PgServer, now_ms: int, codec: Codec, *, read_only: bool = False, is_relaxed: bool = False
) -> sqlite3.Connection:
    known = load_migrations()
    with translating(server), closing(server.connect(statement_s=0)) as session:
        server.refuse_unfit(session)
        if read_only:
            refuse_other(server, session, known)
        else:
            bring_up_to_date(server, session, known, now_ms)
    opened = PgConnection(server, statement_s=server.lease_s / 2, is_relaxed=is_relaxed)
    connection = opened.as_sqlite()
    try:
        refuse_moved(connection, server.name)
        seal = find_seal(connection)
        if codec is not BYTES and not read_only and seal is None:
            reseal(server, codec, codec)
            seal = find_seal(connection)
        known_key = f"'\\x{seal.column.hex()}'" if seal and isinstance(seal.column, bytes) else "NULL"
        opened.same_key = f"WHERE (SELECT value FROM seal) IS NOT DISTINCT FROM {known_key}"
        check_key(connection, server.name, codec)
    except BaseException:
        opened.close()
        raise
    return connection


def reseal(server: PgServer, old: Codec, new: Codec) -> None:
    """Rewrite all values for another key, or none.  Raises StoreError while a node is alive.

    `old` reads them, unless they have not been encrypted yet; BYTES: they are not to be.
    """
    raw = PgConnection(server, statement_s=0)
    connection = raw.as_sqlite()
    with opening(server.name), closing(raw):
        raw.begin_values(())  # after the lock it reads what others have committed
        connection.execute("LOCK TABLE node, entry, past, event, seal IN EXCLUSIVE MODE")
        check_key(connection, server.name, old)
        is_sealed = find_seal(connection) is not None
        if is_sealed and old is new:  # another was faster
            return
        refuse_living(connection, server.name)
        for late in read_nodes(connection, f"WHERE {ALIVE}"):  # it may come back, and has the old key
            bury(connection, late.id, None)
        rewrite_values(connection, old if is_sealed else BYTES, new)
        connection.execute("COMMIT")
    with translating(server), closing(server.connect(statement_s=0)) as session:
        for table in ("entry", "past", "event"):  # in which the values still are as they were
            session.execute(f"VACUUM FULL {table}")


def connect(server: PgServer, statement_s: float) -> sqlite3.Connection:
    return PgConnection(server, statement_s=statement_s).as_sqlite()


def server_of(settings: Settings) -> PgServer:
    store, cluster = settings.store, settings.cluster
    return PgServer(
        url=store.url,
        password=store.hidden,
        schema=store.schema,
        application=f"spyweb {cluster.name}",
        lease_s=cluster.lease_ms / 1000,
    )


@contextmanager
def translating(server: PgServer) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise server.explain(error) from error
