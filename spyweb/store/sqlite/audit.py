"""Store the audit trail in SQLite; a trigger of its table deletes what is too old."""

from __future__ import annotations

import sqlite3
from asyncio import Future

from spyweb.store.model.access import AuditLine, NewAuditLine
from spyweb.store.sqlite.batch import BatchQueue, OpKind

COLUMNS = ("at_ms", "who", "source", "action", "job", "target", "status", "address", "times")
ADD = f"INSERT INTO audit ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
LIST = f"SELECT id, {', '.join(COLUMNS)} FROM audit WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2"


class AuditTrail:
    """Lists on the writer's connection, so that a line is there as soon as it was added."""

    def __init__(self, writer: BatchQueue) -> None:
        self._writer = writer

    def add(self, line: NewAuditLine) -> Future[None]:
        return self._writer.submit(OpKind.WRITE, add, line)

    def list(self, *, limit: int, before: int | None = None) -> Future[list[AuditLine]]:
        """Return lines, newest first, older than the one with this id."""
        return self._writer.submit(OpKind.READ, find, limit, before)


# On the thread of a connection


def add(connection: sqlite3.Connection, line: NewAuditLine) -> None:
    connection.execute(ADD, [getattr(line, column) for column in COLUMNS])


def find(connection: sqlite3.Connection, limit: int, before: int | None) -> list[AuditLine]:
    rows = connection.execute(LIST, (before, limit))
    return [AuditLine(id=number, **dict(zip(COLUMNS, values, strict=True))) for number, *values in rows]
