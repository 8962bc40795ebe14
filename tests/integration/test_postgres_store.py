"""A store on PostgreSQL that is restarted, slow or full, to which the connection is lost, or where others intervene."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from spyweb.clock import RealClock
from spyweb.errors import StoreError, StoreFenced, StoreNewer, StoreUnreachable
from spyweb.store.model.entries import Order
from spyweb.store.postgres import store as opening
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres
from spyweb.store.postgres.texts import translate_schema
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.migrate import Migration, load_migrations, split_statements
from spyweb.store.sqlite.store import Store
from tests.fakes.postgres import PORT, PostgresServer, connected, own_server, short_folder
from tests.fakes.postgres_proxy import PostgresProxy, a_proxy
from tests.fakes.stores import all_items, become_node, counting, fresh_server, look, put

pytestmark = pytest.mark.slow

NODE = 7
LEASE_S = 2.0
COMMIT = b"COMMIT\0"


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with own_server({"fsync": "off"}) as server:
        yield server


@pytest.fixture
def place() -> Iterator[PgServer]:
    with fresh_server() as server:
        yield server


@pytest.fixture
async def proxy(running: PostgresServer) -> AsyncIterator[PostgresProxy]:
    execute(running.url, "DROP SCHEMA IF EXISTS spyweb CASCADE")
    async with a_proxy(running.url) as proxy:
        yield proxy


def execute(url: str, statement: str, schema: str = "spyweb") -> list[tuple[object, ...]]:
    with connected(url, schema) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@asynccontextmanager
async def opened(url: str, schema: str = "spyweb") -> AsyncIterator[Store]:
    """Open a store, and join as a node."""
    store = await open_postgres(PgServer(url=url, schema=schema, lease_s=LEASE_S), clock=RealClock())
    try:
        await become_node(store, NODE)
        yield store
    finally:
        await store.close()


async def add(store: Store, key: bytes = b"hits") -> object:
    return await store.values.transform("state", key, counting(1))


@pytest.mark.parametrize(
    ("at", "is_done"), [(COMMIT, True), (COMMIT, False), (b"unnest", False)], ids=["answer", "commit", "write"]
)
async def test_what_is_lost_on_the_way_is_done_once(proxy: PostgresProxy, at: bytes, is_done: bool) -> None:
    async with opened(proxy.url) as store:
        lost: list[bytes] = []

        def lose(request: bytes) -> None:
            if at in request and not lost:
                lost.append(request)
                (proxy.hold_answers if is_done else proxy.hold_requests)()
                asyncio.get_running_loop().call_later(0.2, proxy.cut)
                asyncio.get_running_loop().call_later(0.3, proxy.release)

        proxy.hear = lose
        assert await asyncio.gather(*(add(store, b"%d" % number) for number in range(5))) == [1] * 5
        assert lost
        assert [await look(store, b"%d" % number) for number in range(5)] == [1] * 5


async def test_many_entries_are_read_in_parts_and_anew_where_the_connection_is_lost(proxy: PostgresProxy) -> None:
    async with opened(proxy.url) as store:
        await asyncio.gather(*(put(store, b"%03d" % number, number) for number in range(200)))
        parts: list[bytes] = []

        def lose_the_second(request: bytes) -> None:
            if b"FETCH" in request:
                parts.append(request)
                if len(parts) == 2:
                    proxy.cut()

        proxy.hear = lose_the_second
        found = await all_items(store, "state", order=Order.CREATED)
        assert sorted(key for key, _ in found) == [b"%03d" % number for number in range(200)]
        assert len(parts) > 4
        assert await store.values.gather("state", b"", next) == found[0]
        assert await look(store, b"007") == 7


async def test_a_crash_of_postgresql_during_a_commit_is_no_guess(running: PostgresServer, proxy: PostgresProxy) -> None:
    async with opened(proxy.url) as store:
        assert await add(store) == 1

        def crash(request: bytes) -> None:
            if COMMIT in request:
                proxy.hear = lambda request: None
                proxy.hold_requests()
                running.kill()
                running.start()
                proxy.cut()
                proxy.release()

        proxy.hear = crash
        assert await add(store) == 2
        assert execute(running.url, "SELECT value FROM entry") == [(b"2",)]


async def test_a_doubt_that_outlasts_a_lease_ends_the_incarnation(proxy: PostgresProxy) -> None:
    async with opened(proxy.url) as store:
        fences: list[StoreFenced] = []
        store.on_fenced(fences.append)

        def lose_the_server(request: bytes) -> None:
            if COMMIT in request:
                proxy.refuses = True
                proxy.hold_answers()
                asyncio.get_running_loop().call_later(0.1, proxy.cut)

        proxy.hear = lose_the_server
        with pytest.raises(StoreFenced, match="unknown"):
            await add(store)
        proxy.hear = lambda request: None
        proxy.refuses = False
        proxy.release()
        with pytest.raises(StoreFenced):
            await add(store)
        assert len(fences) == 2


async def test_a_restart_of_postgresql_is_waited_for_by_writes_and_reads(running: PostgresServer) -> None:
    execute(running.url, "DROP SCHEMA IF EXISTS spyweb CASCADE")
    async with opened(running.url) as store:
        await put(store, b"a", b"1")
        running.restart()
        assert await look(store, b"a") == b"1"
        assert (await store.values.stats()).total_keys == 1
        await put(store, b"a", b"2")
        running.stop()
        waiting = asyncio.gather(put(store, b"b", b"3"), look(store, b"a"))
        await asyncio.sleep(0.3)
        running.start()
        assert list(await waiting) == [None, b"2"]


@pytest.mark.parametrize("is_frozen", [False, True], ids=["away", "frozen"])
async def test_while_postgresql_does_not_answer_ops_are_refused_with_one_line(
    proxy: PostgresProxy, is_frozen: bool
) -> None:
    async with opened(proxy.url) as store:
        await put(store, b"a", b"1")
        if is_frozen:
            proxy.hold_answers()
        else:
            proxy.refuses = True
            proxy.cut()
        with pytest.raises(StoreUnreachable, match="can't be reached") as refused:
            await put(store, b"a", b"2")
        assert "\n" not in str(refused.value)
        proxy.refuses = False
        proxy.release()
        await put(store, b"a", b"3")
        assert await look(store, b"a") == b"3"


async def test_a_database_that_failed_over_ends_the_incarnation(running: PostgresServer, proxy: PostgresProxy) -> None:
    standby = PostgresServer(short_folder())
    async with opened(proxy.url) as store:
        try:
            await asyncio.to_thread(standby.make, standby_of=running)
            standby.start()
            await asyncio.to_thread(standby.promote)
            proxy._socket = Path(parse_qs(urlsplit(standby.url).query)["host"][0]) / f".s.PGSQL.{PORT}"
            proxy.cut()
            with pytest.raises(StoreFenced, match="failed over"):
                await add(store)
        finally:
            standby.close()


async def test_a_node_that_was_declared_dead_in_its_transaction_writes_nothing(place: PgServer) -> None:
    async with opened(place.url, place.schema) as store:
        fences: list[StoreFenced] = []
        store.on_fenced(fences.append)

        def freeze(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT INTO alert_channel (name) VALUES (?)", [("a",), ("b",), ("c",), ("d",)])
            time.sleep(LEASE_S / 2)
            connection.execute("DELETE FROM alert_channel")

        frozen = store._connections.writer.submit(OpKind.WRITE, freeze)
        await asyncio.sleep(LEASE_S / 8)  # it is in its transaction
        await asyncio.to_thread(execute, place.url, f"UPDATE lane SET state = 'x' WHERE node = {NODE}", place.schema)
        assert not frozen.done()
        with pytest.raises(StoreFenced, match="declared"):
            await frozen
        assert len(fences) == 1
        assert execute(place.url, "SELECT name FROM alert_channel", place.schema) == []


async def test_nodes_that_start_at_once_make_one_schema(place: PgServer) -> None:
    stores = await asyncio.gather(*(open_postgres(place, clock=RealClock()) for _ in range(4)))
    for number, store in enumerate(stores):
        await put(store, b"from", number)
    for store in stores:
        assert await look(store, b"from") == 3
        await store.values.stats()  # after the question for its size
        assert store.stats().size_bytes > 100_000
        await store.close()


async def test_a_full_disk_refuses_what_is_written_and_nothing_else(place: PgServer) -> None:
    store = await open_postgres(place, clock=RealClock())
    await put(store, b"a", b"1")
    execute(
        place.url,
        """
        CREATE FUNCTION full() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER is_full BEFORE INSERT OR UPDATE ON entry FOR EACH ROW EXECUTE FUNCTION full();
        """,
        place.schema,
    )
    with pytest.raises(StoreError, match="no room left"):
        await put(store, b"a", b"2")
    assert await look(store, b"a") == b"1"
    execute(place.url, "DROP FUNCTION full CASCADE", place.schema)
    await put(store, b"a", b"3")
    assert await look(store, b"a") == b"3"
    await store.close()


async def test_a_schema_is_migrated_once_and_one_that_is_newer_is_refused(
    place: PgServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_migrations()
    with pytest.raises(StoreError, match="there is no database yet"):
        await open_postgres(place, clock=RealClock(), read_only=True)
    await (await open_postgres(place, clock=RealClock())).close()

    sql = "ALTER TABLE run ADD COLUMN more TEXT; CREATE TABLE extra (id INTEGER PRIMARY KEY, what BLOB) WITHOUT ROWID;"
    later = [*known, Migration(number=9998, name="9998_more", sql=sql)]
    monkeypatch.setattr(opening, "load_migrations", lambda: later)
    with pytest.raises(StoreError, match="older spyweb"):
        await open_postgres(place, clock=RealClock(), read_only=True)
    for store in await asyncio.gather(*(open_postgres(place, clock=RealClock()) for _ in range(3))):
        await store.close()
    assert execute(place.url, "SELECT more, extra.id, what FROM run, extra", place.schema) == []

    monkeypatch.setattr(opening, "load_migrations", lambda: known)
    with pytest.raises(StoreNewer, match="9998_more"):
        await open_postgres(place, clock=RealClock())

    breaking = [*later, Migration(number=9999, name="9999_less", sql="-- breaking\nDROP TABLE extra;")]
    monkeypatch.setattr(opening, "load_migrations", lambda: breaking)
    columns = "name, place, version, lease_ms"
    execute(place.url, f"INSERT INTO node ({columns}) VALUES ('fra', '', 'old', 10000)", place.schema)
    execute(place.url, "INSERT INTO lane SELECT id, 'a' FROM node", place.schema)
    execute(place.url, "INSERT INTO heart SELECT id FROM node", place.schema)
    with pytest.raises(StoreError, match=r"9999_less .* fra \(old\)"):
        await open_postgres(place, clock=RealClock())
    execute(place.url, "UPDATE lane SET state = 'l'", place.schema)
    await (await open_postgres(place, clock=RealClock())).close()


async def test_uptime_that_earlier_versions_have_counted_is_kept(place: PgServer) -> None:
    await (await open_postgres(place, clock=RealClock())).close()
    known = {each.number: each for each in load_migrations()}
    for sql in (
        "DROP TABLE sample, standing, uptime",
        "DROP FUNCTION sample_of_run CASCADE",
        "ALTER TABLE run DROP COLUMN stale_ms, DROP COLUMN latency",
        *map(translate_schema, split_statements(known[23].sql)),
        "INSERT INTO uptime VALUES ('a', 'day', 0, 100, 0, 0, 1, 0, 'A2')",
        "INSERT INTO standing VALUES ('a', 3600005, 3600900, 1, 32400000, 700, 20, 3, 2, 1, 'B')",
        "DELETE FROM migration WHERE number >= 26",
    ):
        execute(place.url, sql, place.schema)
    await (await open_postgres(place, clock=RealClock())).close()

    sums = execute(place.url, "SELECT unit, start_ms, up_ms, ok, latency FROM uptime ORDER BY unit", place.schema)
    assert sums == [("day", 0, 800, 3, "{}"), ("hour", 3_600_000, 700, 2, "{}")]
    found = execute(place.url, "SELECT job, at_ms, stale_ms, counted_ms FROM standing", place.schema)
    assert found == [("a", 3_600_005, 32_400_000, 3_600_900)]
