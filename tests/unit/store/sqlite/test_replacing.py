"""Values that are put without a look at what is there leave what they would have left after a look."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import StoreError
from spyweb.model import NULL, Value
from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.protocol import Leave, Put, Replacement
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.recording import change
from spyweb.store.sqlite.replacing import replace, replace_many
from tests.fakes.tables import committed, entry_table

NOW = 1000
Asked = tuple[EntryContext, Replacement]

keys = st.integers(0, 20).map(lambda number: b"k%d" % number)
expiries = st.sampled_from([None, NOW - 1, NOW, NOW + 2, NOW + 100])
entries = st.dictionaries(keys, expiries, max_size=12)
values: st.SearchStrategy[Value] = st.sampled_from([b"text", 7, 1.5, True, NULL, [1, b"x"], {b"a": 1}, {1: b"\xff"}])
puts = st.tuples(values, st.sampled_from([None, NOW + 1, NOW + 50]), st.integers()).map(lambda fields: Put(*fields))
decisions = puts | st.text().map(Leave)
asks = st.lists(st.tuples(keys, decisions, st.integers(NOW, NOW + 3)), min_size=1, max_size=70)


def table(rows: dict[bytes, int | None]) -> AbstractContextManager[sqlite3.Connection]:
    return entry_table([("state", key, "i", 1, expires_ms) for key, expires_ms in rows.items()], version=4)


def rows_of(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """In the order of their creation, which is all that a rowid says."""
    return connection.execute("SELECT * FROM entry ORDER BY rowid").fetchall()


def ask(key: bytes, decision: Put | Leave, now_ms: int = NOW) -> Asked:
    return EntryContext(PLAIN, "state", key, now_ms), Replacement(lambda: decision)


def put_together(connection: sqlite3.Connection, asked: Sequence[Asked]) -> list[object]:
    return committed(connection, OpKind.WRITE, replace, asked)


@given(rows=entries, asked=asks)
def test_a_batch_leaves_the_same_entries_and_results_as_a_look_at_each(
    rows: dict[bytes, int | None], asked: list[tuple[bytes, Put | Leave, int]]
) -> None:
    several = [ask(*each) for each in asked]
    with table(rows) as together, table(rows) as apart:
        expected = [change(apart, *each) for each in several]
        assert put_together(together, several) == expected
        assert rows_of(together) == rows_of(apart)


@pytest.mark.parametrize(("puts", "statements"), [(1, 2), (2, 1), (32, 1), (33, 2)])
def test_several_are_put_without_a_look(puts: int, statements: int) -> None:
    with table({b"k1": None, b"k3": NOW + 1}) as connection:
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        put_together(connection, [ask(b"k%d" % number, Put(number)) for number in range(puts)])
        assert len([statement for statement in seen if not statement.startswith(("BEGIN", "COMMIT"))]) == statements


def test_one_over_an_expired_entry_undoes_all_of_them_until_each_is_done_by_itself() -> None:
    asked = [ask(b"new", Put(1)), ask(b"old", Put(2)), ask(b"live", Put(3))]
    with table({b"old": NOW, b"live": None}) as connection:
        before = rows_of(connection)
        with pytest.raises(sqlite3.IntegrityError):
            replace_many(connection, asked)
        assert rows_of(connection) == before
        put_together(connection, asked)
        assert [(row[1], row[3], row[5]) for row in rows_of(connection)] == [
            (b"live", 3, 5),
            (b"new", 1, 1),
            (b"old", 2, 5),
        ]


def test_what_one_of_them_raises_fails_that_one() -> None:
    def fail() -> Put:
        raise LookupError("the rule's own")

    loser = EntryContext(PLAIN, "state", b"a", NOW), Replacement(fail)
    with table({}) as connection:
        results = put_together(connection, [loser, ask(b"b", Put(2.0**70, None, "b")), ask(b"c", Put(2**64)), loser])
        assert [result if isinstance(result, str) else type(result) for result in results] == [
            LookupError,
            "b",
            StoreError,
            LookupError,
        ]
        assert [row[1] for row in rows_of(connection)] == [b"b"]
