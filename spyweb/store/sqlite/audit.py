"""Store the audit trail in SQLite; a trigger of its table deletes what is too old."""

from __future__ import annotations

import sqlite3

from msgspec.structs import astuple

from spyweb.store.model.access import AuditLine, NewAuditLine
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import StorePart, columns_of, on_writer, read_as

ADD = f"INSERT INTO audit ({columns_of(NewAuditLine)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
LIST = f"SELECT {columns_of(AuditLine)} FROM audit WHERE ?1 IS NULL OR id < ?1 ORDER BY id DESC LIMIT ?2"


class AuditTrail(StorePart):
    """Lists on the writer's connection, so that a line is there as soon as it was added."""

    @on_writer(OpKind.WRITE)
    def add(self, connection: sqlite3.Connection, line: NewAuditLine) -> None:
        connection.execute(ADD, astuple(line))

    @on_writer(OpKind.READ)
    def list(self, connection: sqlite3.Connection, *, limit: int, before: int | None = None) -> list[AuditLine]:
        """Return lines, newest first, older than the one with this id."""
        return [read_as(AuditLine, row) for row in connection.execute(LIST, (before, limit))]
