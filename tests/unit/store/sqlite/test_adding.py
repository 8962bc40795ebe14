"""Additions in a row do what each would have done after the other."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import defaultdict
from itertools import chain, pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyweb.store.crypto.sealing import PLAIN
from spyweb.store.encoding import LARGEST
from spyweb.store.protocol import Addition
from spyweb.store.sqlite.adding import SET_VALUES, Outdated, add, add_many, add_one
from spyweb.store.sqlite.batch import Op, OpKind, commit
from spyweb.store.sqlite.changes import EntryContext
from spyweb.store.sqlite.pending_writes import Count
from tests.fakes.stores import counting
from tests.fakes.tables import Entry, entry_table

NOW = 1000
Asked = tuple[EntryContext, Addition, Count]

cells = st.sampled_from([("i", 5), ("i", LARGEST - 1), ("s", b"7"), ("f", 1.5)])
expiries = st.sampled_from([None, NOW + 2, NOW + 100, NOW - 1])
keys = st.integers(0, 40).map(lambda number: b"k%d" % number)
entries = st.dictionaries(keys, st.tuples(cells, expiries), max_size=12)
additions = st.lists(st.tuples(keys, st.integers(-2, 3), st.integers(NOW, NOW + 4)), min_size=1, max_size=70)


def rows_of(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return connection.execute("SELECT rowid, * FROM entry ORDER BY rowid").fetchall()


def ask(key: bytes, delta: int, now_ms: int, count: Count | None = None) -> Asked:
    addition = counting(delta)
    assert isinstance(addition, Addition)
    return EntryContext(PLAIN, "state", key, now_ms), addition, count or Count()


@given(entries=entries, asked=additions, cuts=st.sets(st.integers(1, 69), max_size=3))
def test_many_at_once_leave_the_same_entries_and_results_as_one_by_one(
    entries: dict[bytes, tuple[tuple[str, object], int | None]], asked: list[tuple[bytes, int, int]], cuts: set[int]
) -> None:
    rows: list[Entry] = [("state", key, *cell, expires_ms) for key, (cell, expires_ms) in entries.items()]
    counts: defaultdict[bytes, Count] = defaultdict(Count)
    several = [ask(*each, counts[each[0]]) for each in asked]
    with entry_table(rows) as together, entry_table(rows) as apart:
        expected = outcome_apart(apart, [ask(*each) for each in asked])
        assert list(chain(*(outcome_together(together, batch) for batch in pieces(several, cuts)))) == expected
        assert rows_of(together) == rows_of(apart)


def pieces(several: list[Asked], cuts: set[int]) -> list[list[Asked]]:
    ends = [0, *sorted(cuts), len(several)]
    return [several[start:end] for start, end in pairwise(ends) if start < end]


def outcome_together(connection: sqlite3.Connection, several: list[Asked]) -> list[object]:
    return [shown(result) for result in add_many(connection, several)]


def outcome_apart(connection: sqlite3.Connection, several: list[Asked]) -> list[object]:
    results: list[object] = []
    for each in several:
        try:
            results.append(shown(add_one(connection, *each)))
        except Exception as error:  # noqa: BLE001 - an op's own failure is its result
            results.append(shown(error))
    return results


def shown(result: object) -> object:
    return repr(result) if isinstance(result, Exception) else result


@pytest.mark.parametrize("count", [2, 9, 33])
def test_one_key_is_read_once_and_written_once(count: int) -> None:
    with entry_table([("state", b"k", "i", 1, None)]) as connection:
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        known = Count()
        assert add_many(connection, [ask(b"k", 1, NOW, known)] * count)[-1] == count + 1
        assert len(seen) == 2
        assert add_many(connection, [ask(b"k", 1, NOW, known)] * count)[-1] == 2 * count + 1
        assert len(seen) == 3, "by now it is known"
        (row,) = rows_of(connection)
        assert row[6] == 2 * count + 1  # its version


def test_additions_between_which_a_write_was_cancelled_count_one_entry() -> None:
    with entry_table([("state", b"k", "i", 1, None)]) as connection:
        known = Count()
        add_many(connection, [ask(b"k", 1, NOW, known)])
        assert add_many(connection, [ask(b"k", 1, NOW, known), ask(b"k", 1, NOW, Count())]) == [3, 4]


@pytest.mark.parametrize("happens_before", ["BEGIN", "SELECT 1"])
def test_what_a_batch_counted_that_was_rolled_back_is_noticed(happens_before: str) -> None:
    with entry_table([("state", b"k", "i", 1, None)]) as connection:
        known = Count()
        add_many(connection, [ask(b"k", 1, NOW, known)])
        connection.execute(happens_before)
        add_many(connection, [ask(b"k", 1, NOW, known)])
        if not connection.in_transaction:  # another process wrote
            connection.execute("UPDATE entry SET version = version + 1, value = 70")
        else:
            connection.execute("ROLLBACK")
        with pytest.raises(Outdated):
            add_many(connection, [ask(b"k", 1, NOW, known)])
        before = cast(int, rows_of(connection)[0][4])
        assert add_one(connection, *ask(b"k", 1, NOW, known)) == before + 1, "as a queue then does"
        assert add_many(connection, [ask(b"k", 1, NOW, known)]) == [before + 2]


def test_a_count_of_an_entry_that_expires_is_kept_for_one_batch() -> None:
    with entry_table([("state", b"k", "i", 1, NOW + 9)]) as connection:
        known = Count()
        assert add_many(connection, [ask(b"k", 1, NOW, known), ask(b"k", 1, NOW, known)]) == [2, 3]
        connection.execute("DELETE FROM entry")  # swept
        assert add_many(connection, [ask(b"k", 5, NOW + 20, known)]) == [5]


def test_a_statement_for_many_is_not_undone_by_itself() -> None:
    with entry_table([("state", b"a", "i", 1, None), ("state", b"b", "i", 1, None)]) as connection:
        with pytest.raises(sqlite3.IntegrityError):
            SET_VALUES.write(connection, [(1, 5, 2, NOW, 1), (2, 5, None, NOW, 1)])
        assert [row[4] for row in rows_of(connection)] in ([1, 5], [5, 1]), "no page was copied to be put back"


async def test_where_it_fails_half_way_its_batch_is_undone_and_each_is_counted_once() -> None:
    with entry_table([("state", b"k%d" % number, "i", number, None) for number in range(20)]) as connection:
        refuse = "SELECT RAISE(FAIL, 'not both at once')"
        connection.execute(
            f"CREATE TRIGGER fussy BEFORE UPDATE ON entry WHEN NEW.version <> OLD.version + 1 BEGIN {refuse}; END"
        )
        future = asyncio.get_running_loop().create_future()
        asked = [ask(b"k%d" % min(number, 19), 1, NOW) for number in range(21)]  # the last of them twice
        batch = [Op(OpKind.WRITE, add, arguments, future, None) for arguments in asked]
        assert commit(connection, batch) == [*range(1, 22)]
        assert [row[4] for row in rows_of(connection)] == [*range(1, 20), 21]
