"""Everything that is stored goes from one engine to the other, or nothing does."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from spyweb.errors import Refused, StoreError, StoreFenced
from spyweb.model import NULL, Durability, Value
from spyweb.store.encoding import encode
from spyweb.store.encryption import BYTES, codec_for
from spyweb.store.model.nodes import Node
from spyweb.store.opening import refuse_beside_nodes
from spyweb.store.postgres.moving import (
    MovedTable,
    PgSide,
    Side,
    SqliteSide,
    layout_of,
    move,
    postgres_side,
    sqlite_side,
)
from spyweb.store.postgres.server import PgServer
from spyweb.store.postgres.store import open_postgres, reseal
from spyweb.store.sqlite.store import Store, open_store
from tests.fakes.clock import FakeClock
from tests.fakes.stores import KEY, LOGGED, RULES, fresh_server, putting

VALUES: list[Value] = [
    b"", b"a\0\xff\xed\xa0\x80", b"\xf4\x8f\xbf\xbf", 0, -(1 << 63), (1 << 63) - 1, 1.5, -0.0, float("-inf"),
    True, False, NULL, [], {b"a": [1, {b"b": NULL}]}, [b"\xff"], {1: b"x"}, b"big" * 400_000,
]  # fmt: skip
CLOCK = FakeClock()


@pytest.fixture
def server() -> Iterator[PgServer]:
    with fresh_server() as server:
        yield server


def on_sqlite(path: Path, *, is_source: bool = False, key: bytes | None = None) -> AbstractContextManager[Side]:
    return sqlite_side(path, key=key, clock=CLOCK, is_source=is_source)


def on_postgres(server: PgServer, *, is_source: bool = False) -> AbstractContextManager[Side]:
    return postgres_side(server, clock=CLOCK, is_source=is_source)


@asynccontextmanager
async def closed(store: Store) -> AsyncIterator[Store]:
    try:
        yield store
    finally:
        await store.close()


def go(source: AbstractContextManager[Side], target: AbstractContextManager[Side]) -> list[MovedTable]:
    return move(source, target, lambda _: None, lambda _: None)


async def make(path: Path, key: bytes | None = None) -> None:
    """Make a database with rows in every table."""
    async with closed(await open_store(path, clock=CLOCK, durability=Durability.NORMAL, key=key)) as store:
        for number, value in enumerate(VALUES):
            await store.values.transform("job:x", b"key %d" % number, putting(value))
    with closing(sqlite3.connect(path)) as connection, connection:
        for table, columns in layout_of().items():
            declared = {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({table})")}
            kinds = {name: "BLOB" if key and name.endswith("value") else kind for name, kind in declared.items()}
            rows = [[value_of(column, kinds[column], number) for column in columns] for number in (1, 2, 3)]
            marks = ", ".join("?" * len(columns))
            if table != "seal":
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows[: 1 if table == "link_key" else 3])
        connection.execute("DELETE FROM message WHERE id = 3")


def value_of(column: str, declared: str, number: int) -> object:
    if column.endswith("type"):
        return encode(VALUES[number]).type
    if column.endswith("value") and declared != "BLOB":
        return encode(VALUES[number]).column
    if column.endswith("version") or column == "id":
        return number
    return {"INTEGER": number << 40, "TEXT": f"{column}\0ß\U0010ffff{number}", "BLOB": b"\0\\x\xff%d" % number}[
        declared
    ]


def rows_of(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = layout_of()
        return {table: sorted(connection.execute(f"SELECT * FROM {table}"), key=repr) for table in tables}


@pytest.mark.parametrize("key", [None, KEY])
async def test_every_row_of_every_table_is_the_same_there_and_back(
    tmp_path: Path, server: PgServer, key: bytes | None
) -> None:
    first, last = tmp_path / "first.db", tmp_path / "last.db"
    await make(first, key)
    there = go(on_sqlite(first, is_source=True, key=key), on_postgres(server))
    assert all(each.rows for each in there if each.table != "seal")
    async with closed(await open_postgres(server, clock=CLOCK, key=key)) as store:
        for number, value in enumerate(VALUES):
            assert repr(await store.values.get("job:x", b"key %d" % number)) == repr(value)
    assert go(on_postgres(server, is_source=True), on_sqlite(last, key=key)) == there
    assert rows_of(last) == rows_of(first)
    with closing(sqlite3.connect(last)) as connection:
        assert dict(connection.execute("SELECT * FROM sqlite_sequence"))["message"] == 3
    async with closed(await open_store(last, clock=CLOCK, key=key)) as store:
        assert await store.values.get("job:x", b"key 6") == 1.5


async def test_the_source_is_refused_from_then_on_and_a_target_with_anything_in_it(
    tmp_path: Path, server: PgServer
) -> None:
    first, last = tmp_path / "first.db", tmp_path / "last.db"
    await make(first)
    go(on_sqlite(first, is_source=True), on_postgres(server))
    refused = (
        f"^{first}: everything was moved to {re.escape(server.name)}, schema {server.schema}: set \\[store\\] url$"
    )
    for read_only in (False, True):
        with pytest.raises(StoreError, match=refused):
            await open_store(first, clock=CLOCK, read_only=read_only)
    with pytest.raises(StoreError, match=r"everything was moved to"):
        go(on_postgres(server, is_source=True), on_sqlite(first))
    await make(other := tmp_path / "other.db", KEY)
    with pytest.raises(
        StoreError, match=r": entry has other rows than in .*: expected a database or schema with nothing"
    ):
        go(on_sqlite(other, is_source=True, key=KEY), on_postgres(server))
    async with closed(await open_postgres(server, clock=CLOCK)) as command:
        go(on_postgres(server, is_source=True), on_sqlite(last))
        with pytest.raises(StoreError, match=f"everything was moved to {last}: set"):
            await command.values.set("state", b"late", b"1")
    for read_only in (False, True):
        with pytest.raises(StoreError, match=f"everything was moved to {last}: set"):
            await open_postgres(server, clock=CLOCK, read_only=read_only)
    with pytest.raises(StoreError, match="everything was moved to"):
        go(on_sqlite(last, is_source=True), on_postgres(server))


class Cut(Exception):
    """The process is killed there."""


@pytest.mark.parametrize("commits", [0, 1, 2])
@pytest.mark.parametrize("is_back", [False, True])
async def test_wherever_it_is_cut_the_old_database_is_as_before_or_everything_has_arrived_and_it_goes_on(
    tmp_path: Path, server: PgServer, monkeypatch: pytest.MonkeyPatch, commits: int, is_back: bool
) -> None:
    """Cut before the commit of the target, before that of the source, or at the very end."""
    first, last = tmp_path / "first.db", tmp_path / "last.db"
    await make(first)
    if is_back:
        go(on_sqlite(first, is_source=True), on_postgres(server))

    def again() -> list[MovedTable]:
        if is_back:
            return go(on_postgres(server, is_source=True), on_sqlite(last))
        return go(on_sqlite(first, is_source=True), on_postgres(server))

    async def look(*, at_target: bool) -> Value | None:
        path = last if is_back else first
        opening = open_store(path, clock=CLOCK) if at_target is is_back else open_postgres(server, clock=CLOCK)
        async with closed(await opening) as store:
            return await store.values.get("job:x", b"key 6")

    cut_after(commits, monkeypatch)
    with pytest.raises(Cut) if commits < 2 else nullcontext():
        again()
    monkeypatch.undo()
    if commits < 2:
        assert await look(at_target=False) == 1.5
        assert await look(at_target=True) == (1.5 if commits else None)
        assert all(each.rows for each in again() if each.table != "seal")
    assert await look(at_target=True) == 1.5
    with pytest.raises(StoreError, match="everything was moved"):
        await look(at_target=False)


def cut_after(commits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = itertools.count()
    for kind in (SqliteSide, PgSide):

        def commit(end: Side, really: Callable[[Any], None] = kind.commit) -> None:
            if next(done) == commits:
                raise Cut
            really(end)

        monkeypatch.setattr(kind, "commit", commit)


async def test_values_are_encrypted_on_postgresql_and_with_another_key(server: PgServer) -> None:
    async def look(key: bytes | None, *, read_only: bool = False) -> None:
        opening = open_postgres(server, clock=CLOCK, key=key, read_only=read_only, history=RULES)
        async with closed(await opening) as store:
            for number, value in enumerate(VALUES):
                assert repr(await store.values.get(LOGGED, b"key %d" % number)) == repr(value)
            assert len(await store.values.history(LOGGED, b"key 0", None)) == 2

    def raw() -> list[bytes]:
        with closing(server.connect()) as session:
            tables = (session.execute(f"SELECT value FROM {table}").fetchall() for table in ("entry", "past"))
            return [value for found in tables for (value,) in found]

    async with closed(await open_postgres(server, clock=CLOCK, history=RULES)) as store:
        for number, value in enumerate(VALUES):
            await store.values.transform(LOGGED, b"key %d" % number, putting(b"sesame"))
            await store.values.transform(LOGGED, b"key %d" % number, putting(value))
    assert b"sesame" in raw()
    await look(KEY, read_only=True)  # which changes nothing
    assert b"sesame" in raw()
    await look(KEY)
    assert not any(b"sesame" in value for value in raw())
    for wrong, said in [(None, "no key is given: see .* key_file"), (bytes(32), "with another key than this")]:
        with pytest.raises(StoreError, match=said):
            await look(wrong)
    reseal(server, codec_for(KEY), codec_for(bytes(32)))
    await look(bytes(32))
    with pytest.raises(StoreError, match="with another key than this"):
        reseal(server, codec_for(KEY), BYTES)
    reseal(server, codec_for(bytes(32)), BYTES)
    await look(None)
    assert b"sesame" in raw()


async def test_who_has_it_open_from_before_writes_nothing_with_the_old_key(server: PgServer) -> None:
    new = bytes(32)
    stores = [await open_postgres(server, clock=CLOCK, key=KEY) for _ in range(3)]
    command, late, joins = stores
    assert late.nodes
    assert joins.nodes
    await late.nodes.join(Node(name="fra", lease_ms=1), b"place")
    await command.values.set("state", b"k", b"1")
    reseal(server, codec_for(KEY), codec_for(new))
    with pytest.raises(StoreError, match="encrypted with another key meanwhile: start again"):
        await command.values.set("state", b"k", b"2")
    with pytest.raises(StoreFenced):
        await late.values.set("state", b"k", b"3")
    with pytest.raises(StoreError, match="start again"):
        await joins.nodes.join(Node(name="ber", lease_ms=1), b"elsewhere")
    for store in stores:
        await store.close()
    async with closed(await open_postgres(server, clock=CLOCK, key=new)) as again:
        assert await again.values.get("state", b"k") == b"1"


async def test_while_a_node_is_up_nothing_is_moved_or_encrypted(tmp_path: Path, server: PgServer) -> None:
    async with closed(await open_postgres(server, clock=CLOCK)) as store:
        assert store.nodes
        await store.nodes.join(Node(name="fra", url="http://fra:7979", lease_ms=60_000), b"place")
        assert [node.name for node in await store.nodes.living()] == ["fra"]
        with pytest.raises(Refused, match=r"the node fra is up, .*: `spyweb --url http://fra:7979` asks it"):
            await refuse_beside_nodes(store)
        for change in (
            lambda: go(on_postgres(server, is_source=True), on_sqlite(tmp_path / "last.db")),
            lambda: reseal(server, BYTES, codec_for(KEY)),
        ):
            with pytest.raises(StoreError, match="end every node first: fra"):
                change()
    go(on_postgres(server, is_source=True), on_sqlite(tmp_path / "last.db"))
