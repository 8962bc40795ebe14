"""Rows that several nodes write: what a batch reads stays as it has read it until it is committed."""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import psycopg
import pytest

from spyweb.errors import StoreError
from spyweb.settings.units import HOUR_MS, MINUTE_MS
from spyweb.store.model.entries import Put
from spyweb.store.postgres.connection import PgConnection, Place
from spyweb.store.postgres.server import PgServer, PgSession
from spyweb.store.postgres.store import open_postgres
from spyweb.store.sqlite import uptime
from spyweb.store.sqlite.batch import Op, OpKind, commit
from spyweb.store.sqlite.entries import DELETE_EXPIRED, FIND, PUT, UPDATE
from spyweb.store.sqlite.values import DELETE_ROW
from tests.fakes.changes import PRICES
from tests.fakes.clock import FakeClock
from tests.fakes.uptime import record, result

LOCK = "SELECT 1 FROM entry WHERE key = $1 FOR UPDATE NOWAIT"


@pytest.fixture
def connection(server: PgServer) -> Iterator[PgConnection]:
    with closing(PgConnection(server)) as connection:
        yield connection


@pytest.fixture
def other(server: PgServer) -> Iterator[PgSession]:
    with server.connect() as session:
        put(session, b"here")
        yield session


def put(session: PgSession, key: bytes) -> None:
    session.execute(
        "INSERT INTO entry (namespace, key, type, value, expires_ms, version, created_ms, updated_ms) "
        "VALUES ('state', $1, 't', '1', 5, 1, 1, 1)",
        (key,),
    )


def is_locked(session: PgSession, key: bytes) -> bool:
    try:
        session.execute(LOCK, (key,))
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def test_a_row_that_another_node_has_made_meanwhile_is_locked_when_it_is_read(
    connection: PgConnection, other: PgSession
) -> None:
    connection.begin_values([("state", b"here"), ("state", b"new")])
    assert is_locked(other, b"here")
    put(other, b"new")
    assert connection.execute(FIND, ("state", b"new")).fetchone() is None, "as it was read at the beginning"

    connection.execute(DELETE_ROW, (0,))  # it might be of any entry
    assert connection.execute(FIND, ("state", b"new")).fetchone() is not None
    assert is_locked(other, b"new")


def test_an_expired_entry_makes_room_without_the_others_being_read_again(
    connection: PgConnection, other: PgSession
) -> None:
    connection.begin_values([("state", b"here"), ("state", b"new")])
    connection.execute(DELETE_EXPIRED, ("state", b"here", 10))
    connection.execute(PUT, ("state", b"here", "t", b"2", None, 2, 10, 10))
    put(other, b"new")

    assert connection.execute(FIND, ("state", b"new")).fetchone() is None
    assert connection.execute(FIND, ("state", b"here")).fetchone()[:2] == ("t", b"2")  # type: ignore[index]
    connection.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM entry").fetchone() == (2,)


async def test_an_op_that_fails_before_it_has_written_leaves_its_neighbours_in_one_transaction(
    connection: PgConnection, other: PgSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    begin = connection.begin_values

    def note(places: Collection[Place]) -> None:
        begun.append(places)
        begin(places)

    monkeypatch.setattr(connection, "begin_values", note)

    def fail(connection: sqlite3.Connection, *, writes: bool) -> None:
        if writes:
            change(connection)
        raise StoreError("no number")

    def change(connection: sqlite3.Connection) -> int:
        row = connection.execute(FIND, ("state", b"here")).fetchone()
        return connection.execute(UPDATE, (*row[:1], row[1] + b"1", *row[2:])).rowcount

    def op(function: Callable[..., object]) -> Op:
        return Op(OpKind.SEVERAL, function, (), Future(), ("state", b"here"))

    for writes, transactions, value in ((False, 1, b"111"), (True, 4, b"11111")):
        begun.clear()
        results = commit(connection.as_sqlite(), [op(change), op(partial(fail, writes=writes)), op(change)])
        assert [str(result) for result in results] == ["1", "no number", "1"]
        assert len(begun) == transactions
        assert other.execute("SELECT value FROM entry").fetchone() == (value,)


@pytest.mark.parametrize(("namespace", "expires_ms"), [("state", 1 << 70), ("\ud800", None)])
async def test_what_postgresql_can_not_hold_is_refused_and_its_neighbours_are_stored(
    server: PgServer, clock: FakeClock, namespace: str, expires_ms: int | None
) -> None:
    store = await open_postgres(server, clock=clock)
    for turn in range(2):  # a new entry, then one that is there
        asked = [store.values.set("state", b"before", b"%d" % turn)]
        asked.append(store.values.transform(namespace, b"odd", lambda entry: Put(b"x", expires_ms)))
        asked.append(store.values.set("state", b"after", b"%d" % turn))
        told = await asyncio.gather(*asked, return_exceptions=True)

        assert [isinstance(each, Exception) for each in told] == [False, True, False]
        assert [await store.values.get("state", key) for key in (b"before", b"odd", b"after")] == [
            b"%d" % turn, b"y" if turn else None, b"%d" % turn,
        ]  # fmt: skip
        await store.values.set("state", b"odd", b"y")
    await store.close()


async def test_a_namespace_may_have_any_character(server: PgServer, clock: FakeClock) -> None:
    store = await open_postgres(server, clock=clock)
    names = ["a\0b", "a\U0010ffffb", "a\U0010ffff0b", "?"]
    for turn in range(2):
        await asyncio.gather(*(store.values.set(name, b"k", b"%d" % turn) for name in names))
        assert await asyncio.gather(*(store.values.get(name, b"k") for name in names)) == [b"%d" % turn] * 4
    assert sorted(await store.values.namespaces()) == sorted(names)
    await store.close()


def test_a_statement_for_many_rows_gives_the_result_of_each(connection: PgConnection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    add = "INSERT INTO request (scope, key, fingerprint, run, at_ms) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    results = connection.each(add, [("job", key, b"", 1, 1) for key in (b"a", b"b", b"a")])
    assert [result.rowcount for result in results] == [1, 1, 0]
    assert [bool(result.lastrowid) for result in results] == [True, True, False]
    assert connection.executemany("DELETE FROM request WHERE key = ?", [(b"a",), (b"b",), (b"c",)]).rowcount == 2
    assert connection.each("SELECT ?", []) == []

    with pytest.raises(Exception, match="null value"):
        connection.each(add, [("job", b"c", b"", 1, 1), ("job", b"d", None, 1, 1)])
    assert not connection.in_transaction
    connection.execute("BEGIN IMMEDIATE")
    assert connection.execute("SELECT count(*) FROM request").fetchone() == (0,)


async def test_a_result_that_is_committed_while_others_are_counted_is_counted_later_although_its_id_is_smaller(
    server: PgServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, at_ms, follow_all = await open_postgres(server, clock=clock), clock.now_ms(), uptime.follow_all
    with server.connect() as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO sample (job, at_ms, up, stale_ms) VALUES ($1, $2, 1, $2)", (PRICES, at_ms))
        await record(store, result(at_ms + MINUTE_MS, up=False))

        def commit_after(*asked: Any) -> Any:
            monkeypatch.undo()
            found = follow_all(*asked)
            other.execute("COMMIT")
            return found

        monkeypatch.setattr(uptime, "follow_all", commit_after)
        await store.uptime.prune(at_ms + HOUR_MS)
        left = other.execute("SELECT up FROM sample").fetchall()
    await store.uptime.prune(at_ms + HOUR_MS)
    span = (await store.uptime.read([PRICES], at_ms + HOUR_MS, ["24h"]))[PRICES].spans["24h"]
    await store.close()
    assert (left, span.ok, span.failed) == ([(1,)], 1, 1)
