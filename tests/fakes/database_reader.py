"""Read a project's database once its daemon is gone, without any of spyweb's own code."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    due_ms: int
    last_due_ms: int | None  # of a skipped range
    count: int
    state: str
    outcome: str | None
    attempt: int
    reason: str
    trigger: str


@dataclass(frozen=True, slots=True)
class DatabaseReader:
    root: Path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.root / "data" / "spyweb.db")) as connection:
            yield connection

    def rows(self, job: str) -> list[Row]:
        """Return every row about due times, oldest first."""
        columns = 'due_ms, last_due_ms, count, state, outcome, attempt, reason, "trigger"'
        with self._open() as connection:
            found = connection.execute(
                f"SELECT {columns} FROM run WHERE job = ? AND due_ms IS NOT NULL ORDER BY id", (job,)
            )
            return [Row(*row) for row in found]

    def outcomes(self, job: str) -> Counter[str | None]:
        """Count how runs have ended, None for those under way; what waits in line goes on with the next daemon."""
        return Counter(row.outcome for row in self.rows(job) if row.state != "waiting")

    def cursor_ms(self, job: str) -> int:
        with self._open() as connection:
            return int(connection.execute("SELECT due_ms FROM cursor WHERE job = ?", (job,)).fetchone()[0])

    def value(self, namespace: str, key: str) -> bytes | None:
        with self._open() as connection:
            query = "SELECT value FROM entry WHERE namespace = ? AND key = ?"
            found = connection.execute(query, (namespace, key.encode())).fetchone()
        return found[0] if found else None

    def gaps(self, job: str, period_ms: int) -> list[str]:
        """Return what is wrong with the record of an `every` job: due times without a row, and due times in two."""
        due = Counter[int]()
        for row in self.rows(job):
            if row.attempt == 1:
                last_ms = row.due_ms if row.last_due_ms is None else row.last_due_ms
                due.update(range(row.due_ms, last_ms + 1, period_ms))
        expected = range(min(due, default=0), self.cursor_ms(job) + 1, period_ms) if due else ()
        missing = [f"nothing about {moment}" for moment in expected if moment not in due]
        return missing + [f"{moment} twice" for moment, count in due.items() if count > 1]
