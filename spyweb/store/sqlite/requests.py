"""Store the keys of requests that have started runs, and what they have sent along."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from spyweb.limits import IDEMPOTENCY_KEYS
from spyweb.model import RunId
from spyweb.settings.units import DAY_MS
from spyweb.store.model.runs import End, KnownRequest, NewRun, RequestKey
from spyweb.store.sqlite.connections import StorePart, on_reader

KEPT_MS = DAY_MS  # a key that is older may be anybody's again

ADD_PAYLOAD = "INSERT INTO payload (run, content) VALUES (?, ?)"
DROP_PAYLOAD = "DELETE FROM payload WHERE run = ?"
FIND_PAYLOAD = "SELECT content FROM payload WHERE run = ?"
ADD_REQUEST = "INSERT OR REPLACE INTO request (scope, key, fingerprint, run, at_ms) VALUES (?, ?, ?, ?, ?)"
FIND_REQUEST = "SELECT fingerprint, run, at_ms FROM request WHERE scope = ? AND key = ?"
# Each new one clears two, so there are never many more than those of a day, or than are kept.
CLEAR = """
    DELETE FROM request
    WHERE id IN (SELECT id FROM request ORDER BY id LIMIT 2) AND (at_ms < ?1 OR id <= ?2 - ?3)
"""


class Requests(StorePart):
    """The requests that have started runs: their keys, and what they sent along."""

    @on_reader
    def find(self, connection: sqlite3.Connection, scope: str, key: bytes) -> KnownRequest | None:
        row = connection.execute(FIND_REQUEST, (scope, key)).fetchone()
        return KnownRequest(fingerprint=row[0], run=RunId(row[1]), at_ms=row[2]) if row else None

    @on_reader
    def payload(self, connection: sqlite3.Connection, run: RunId) -> bytes | None:
        """Return what was kept with this run; None once it is gone."""
        row = connection.execute(FIND_PAYLOAD, (run,)).fetchone()
        return row[0] if row else None


# On the thread of a connection


def keep(connection: sqlite3.Connection, new: NewRun, run: RunId) -> None:
    """Keep what has come with the request for a run that was just recorded."""
    if new.payload is not None:
        connection.execute(ADD_PAYLOAD, (run, new.payload))
    if new.request is not None:
        note_request(connection, new.request, run)


def note_request(connection: sqlite3.Connection, request: RequestKey, run: RunId) -> None:
    row = (request.scope, request.key, request.fingerprint, run, request.at_ms)
    newest = connection.execute(ADD_REQUEST, row).lastrowid or 0
    connection.execute(CLEAR, (request.at_ms - KEPT_MS, newest, IDEMPOTENCY_KEYS))


def drop_payloads(connection: sqlite3.Connection, ends: Sequence[End], new: Collection[NewRun]) -> None:
    """Drop the payloads of runs that have ended and that nothing follows which needs them."""
    for end in ends:
        if end.of_payload is not None and not any(run.of_payload == end.of_payload for run in new):
            connection.execute(DROP_PAYLOAD, (end.of_payload,))
