"""Notify other nodes at once of commits that they may want to hear of, and hear of theirs.

A word names the part of the store in which something is new; a node that hears it reads what that is.  Nothing depends
on it, since each does so with each of its beats, too: a word may be lost.  The words are sent beside the writer, since
PostgreSQL has transactions that send some commit one after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

import psycopg
import structlog

from spyweb.clock import Clock, Handle
from spyweb.errors import StoreError
from spyweb.store.postgres.server import PgServer, PgSession
from spyweb.store.sqlite.store import Store

PARTS = ("events", "outbox", "locks", "incidents", "keys", "runs")  # of a store: each has a `ring`
TOGETHER_S = 0.005  # words of this time are sent together
AGAIN_S = 2.0  # before a lost connection is made again

log = structlog.get_logger()


class Bell:
    """One connection, which listens and notifies while `keep_listening` runs; used on the event loop."""

    def __init__(self, server: PgServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._rung: set[str] = set()
        self._timer: Handle | None = None
        self._session: PgSession | None = None
        self._is_sending = False  # the last words are not acknowledged yet
        self._lost = asyncio.Event()
        self._is_over = False
        self.hear: Callable[[Collection[str]], object] = len  # takes the words of others

    def hang(self, store: Store) -> None:
        """Have what the parts of a store announce sent to others."""
        for part in PARTS:
            getattr(store, part).ring = partial(self.ring, part)

    def ring(self, part: str) -> None:
        """Notify others soon that a part of the store has something new."""
        self._rung.add(part)
        if self._timer is None:
            self._timer = self._clock.call_later(TOGETHER_S, self._send)

    async def keep_listening(self) -> None:
        """Listen until cancelled; a lost connection is made again, after which everything may be new."""
        try:
            while True:
                try:
                    await self._listen(await asyncio.to_thread(self._connect))
                except StoreError as error:
                    log.info("other nodes are not heard: what they change is noticed later", reason=str(error))
                await self._clock.sleep(AGAIN_S)
        finally:
            self._is_over = True

    def _connect(self) -> PgSession:
        try:
            session = self._server.connect()
            session.execute(f"LISTEN {self._server.quoted_schema}")
        except psycopg.Error as error:
            raise self._server.explain(error) from error
        session.pgconn.nonblocking = 1
        if self._is_over:
            session.close()
        return session

    async def _listen(self, session: PgSession) -> None:
        loop, socket = asyncio.get_running_loop(), session.fileno()
        self._session, self._is_sending = session, False
        self._lost.clear()
        loop.add_reader(socket, self._read, session)
        try:
            self.hear(PARTS)
            await self._lost.wait()
        finally:
            loop.remove_reader(socket)
            self._session = None
            session.close()

    def _send(self) -> None:
        self._timer = None
        if self._session is None:
            self._rung.clear()
        elif not self._is_sending:
            words, self._is_sending = " ".join(sorted(self._rung)), True
            self._rung.clear()
            try:
                self._session.pgconn.send_query(f"NOTIFY {self._server.quoted_schema}, '{words}'".encode())
                self._session.pgconn.flush()
            except psycopg.Error:
                self._lost.set()

    def _read(self, session: PgSession) -> None:
        heard, connection = set[str](), session.pgconn
        try:
            connection.consume_input()
            while found := connection.notifies():
                if found.be_pid != connection.backend_pid:
                    heard.update(found.extra.decode("ascii", "replace").split())
            while self._is_sending and not connection.is_busy():
                self._is_sending = connection.get_result() is not None
        except psycopg.Error:
            self._lost.set()
        if self._rung and not self._is_sending and self._timer is None:
            self._send()
        if known := heard.intersection(PARTS):
            self.hear(known)
