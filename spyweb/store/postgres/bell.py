"""Notify other nodes at once of commits that they may want to hear of, and hear of theirs.

A word names the part of the store in which something is new; a node that hears it reads what that is.  Nothing depends
on it, since each does so with each of its beats, too: a word may be lost.  The words are sent beside the writer, since
PostgreSQL has transactions that send some commit one after another.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from asyncio import Event, Future
from collections.abc import Callable, Collection
from functools import partial

import psycopg
import structlog

from spyweb.clock import Clock, Handle
from spyweb.store.postgres.server import PgServer, PgSession
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import Connections
from spyweb.store.sqlite.store import Store

PARTS = ("events", "outbox", "locks", "incidents", "keys", "runs")  # of a store: each has a `ring`
TOGETHER_S = 0.005  # words of this time are sent together
AGAIN_S = 2.0  # before a lost connection is made again

log = structlog.get_logger()


class Bell:
    """Sends what the parts of a store announce by a connection for reading, and hears others by one of its own."""

    def __init__(self, server: PgServer, connections: Connections, clock: Clock, store: Store) -> None:
        self._server = server
        self._reader = connections.reader
        self._clock = clock
        self._name = secrets.token_hex(8)  # before its words: it does not hear them itself
        self._rung: set[str] = set()
        self._timer: Handle | None = None
        self.hear: Callable[[Collection[str]], object] = len  # takes the words of others
        for part in PARTS:
            getattr(store, part).ring = partial(self.ring, part)

    def ring(self, part: str) -> None:
        """Notify others soon that a part of the store has something new."""
        self._rung.add(part)
        if self._timer is None:
            self._timer = self._clock.call_later(TOGETHER_S, self._send)

    def _send(self) -> None:
        words, self._rung, self._timer = " ".join([self._name, *sorted(self._rung)]), set(), None
        self._reader.submit(OpKind.READ, notify, self._server.schema, words).add_done_callback(Future.exception)

    async def keep_listening(self) -> None:
        """Listen until cancelled; a lost connection is made again, after which everything may be new."""
        while True:
            try:
                await self._listen(await asyncio.to_thread(self._connect))
            except psycopg.Error as error:
                reason = str(self._server.explain(error))
                log.debug("other nodes are not heard: what they change is noticed later", reason=reason)
            await self._clock.sleep(AGAIN_S)

    def _connect(self) -> PgSession:
        session = self._server.connect()
        session.execute(f"LISTEN {self._server.quoted_schema}")
        return session

    async def _listen(self, session: PgSession) -> None:
        loop, socket, lost = asyncio.get_running_loop(), session.fileno(), Event()
        loop.add_reader(socket, self._read, session, lost)
        try:
            self.hear(PARTS)
            await lost.wait()
        finally:
            loop.remove_reader(socket)
            session.close()

    def _read(self, session: PgSession, lost: Event) -> None:
        heard = set[str]()
        try:
            session.pgconn.consume_input()
            while found := session.pgconn.notifies():
                sender, _, words = found.extra.decode("ascii", "replace").partition(" ")
                heard.update(words.split() if sender != self._name else ())
        except psycopg.Error:
            lost.set()
        if known := heard.intersection(PARTS):
            self.hear(known)


def notify(connection: sqlite3.Connection, schema: str, words: str) -> None:
    connection.execute("SELECT pg_notify(?, ?)", (schema, words))
