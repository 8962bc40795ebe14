"""Many rows with one statement, and what a batch does with ops that know how to be done in bulk."""

from __future__ import annotations

import asyncio
import sqlite3
from asyncio import Future
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from spyweb.store.sqlite.batch import Op, OpKind, commit
from spyweb.store.sqlite.bulk import Bulk, Wide
from tests.fakes.tables import make_table, numbers, put

INSERT = Wide("INSERT INTO number SELECT column1, NULL FROM (VALUES {rows}) WHERE column1 IS NOT NULL", columns=1)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = make_table(tmp_path / "numbers.db")
    yield connection
    connection.close()


def put_one(connection: sqlite3.Connection, value: int) -> int:
    return put(connection, value)


def put_many(connection: sqlite3.Connection, several: Sequence[tuple[int]]) -> list[int]:
    INSERT.execute(connection, several)
    return [value for (value,) in several]


def op(value: int, function: object) -> Op:
    nobody: Future[object] = Future(loop=asyncio.new_event_loop())
    nobody.get_loop().close()
    return Op(OpKind.WRITE, function, (value,), nobody, None)  # type: ignore[arg-type]  # each takes one number


PUT = Bulk(put_one, put_many)
PUT_AT_ONCE = Bulk(put_one, put_many, at_once=8)


@pytest.mark.parametrize(("rows", "statements"), [(1, 1), (8, 1), (9, 1), (32, 1), (33, 2), (100, 4)])
def test_so_many_rows_are_so_many_statements(table: sqlite3.Connection, rows: int, statements: int) -> None:
    seen: list[str] = []
    table.set_trace_callback(seen.append)

    INSERT.execute(table, [(number,) for number in range(rows)])

    assert len(seen) == statements
    assert numbers(table) == list(range(rows))


def test_ops_in_a_row_are_done_together_and_others_keep_their_place(table: sqlite3.Connection) -> None:
    seen: list[str] = []
    table.set_trace_callback(seen.append)
    batch = [op(1, PUT), op(2, PUT), op(3, put_one), op(4, PUT)]

    assert commit(table, batch) == [1, 2, 3, 4]

    assert len(seen) == 2 + 3
    assert numbers(table) == [1, 2, 3, 4]


@pytest.mark.parametrize(("ops", "statements"), [(2, 1), (8, 1), (9, 1 + 2)])
def test_a_batch_that_is_one_statement_has_no_transaction_around_it(
    table: sqlite3.Connection, ops: int, statements: int
) -> None:
    seen: list[str] = []
    table.set_trace_callback(seen.append)

    assert commit(table, [op(number, PUT_AT_ONCE) for number in range(ops)]) == list(range(ops))

    assert len(seen) == statements
    assert numbers(table) == list(range(ops))


def test_a_batch_of_one_statement_waits_once_for_another_process(table: sqlite3.Connection, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "numbers.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waits: list[str] = []
    table.set_trace_callback(waits.append)

    results = commit(table, [op(1, PUT_AT_ONCE), op(2, PUT_AT_ONCE)])

    other.close()
    assert [type(result) for result in results] == [sqlite3.OperationalError] * 2
    assert len(waits) == 1
    assert numbers(table) == []


@pytest.mark.parametrize("how", [PUT, PUT_AT_ONCE])
def test_where_one_of_them_cannot_be_done_the_others_are(table: sqlite3.Connection, how: Bulk[int, int]) -> None:
    results = commit(table, [op(1, how), op(5000, how), op(2, how)])  # the table wants numbers below 1000

    assert [result if isinstance(result, int) else type(result) for result in results] == [
        1,
        sqlite3.IntegrityError,
        2,
    ]
    assert numbers(table) == [1, 2]
