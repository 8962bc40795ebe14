"""Ops of one kind that come in a row, done with one statement for many rows.

Each statement gives the interpreter's lock away and takes it back, and beside a busy loop that is what takes the time:
32 additions were 64 statements and 200 us, of which SQLite had 90.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, TypeVarTuple

SIZES = (8, 32)  # rows of a statement; what is missing is NULL, and costs next to nothing

Rows = Sequence[Sequence[object]]


T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Bulk(Generic[T, *Ts]):
    """An op's function that knows how to do many in a row: `together` gives the results, in order, of what `each` would
    have done one after the other.

    What one of them fails with is its result.  An exception that is raised undoes the whole batch, which is then done
    one by one.
    """

    __slots__ = ("at_once", "each", "together")

    def __init__(
        self,
        each: Callable[[sqlite3.Connection, *Ts], T],
        together: Callable[[sqlite3.Connection, Sequence[tuple[*Ts]]], Sequence[T | Exception]],
        *,
        at_once: int = 0,
    ) -> None:
        self.each = each
        self.together = together  # takes the arguments of each
        self.at_once = at_once  # so many are one statement, which undoes itself where it fails, and nothing else

    def __call__(self, connection: sqlite3.Connection, *arguments: *Ts) -> T:
        return self.each(connection, *arguments)


class Wide:
    """A statement for many rows: `{rows}` stands in it for what follows VALUES."""

    def __init__(self, statement: str, columns: int) -> None:
        row = f"({','.join('?' * columns)})"
        self._statements = {size: statement.format(rows=",".join([row] * size)) for size in SIZES}
        self._missing = (None,) * columns

    def execute(self, connection: sqlite3.Connection, rows: Rows) -> list[tuple[Any, ...]]:
        """Gives all that the statements give."""
        given: list[tuple[Any, ...]] = []
        for cursor in self._run(connection, rows):
            given += cursor.fetchall()
        return given

    def write(self, connection: sqlite3.Connection, rows: Rows) -> int:
        """Gives how many rows of the table were written."""
        return sum(cursor.rowcount for cursor in self._run(connection, rows))

    def _run(self, connection: sqlite3.Connection, rows: Rows) -> Iterator[sqlite3.Cursor]:
        for start in range(0, len(rows), SIZES[-1]):
            some = rows[start : start + SIZES[-1]]
            size = next(size for size in SIZES if size >= len(some))
            filled = chain.from_iterable((*some, *[self._missing] * (size - len(some))))
            yield connection.execute(self._statements[size], tuple(filled))
