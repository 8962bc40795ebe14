"""Tell other nodes at once of commits that they may want to hear of, and hear of theirs.

A word names the part of the store in which something is new; who hears it looks there.  Nothing depends on it, since a
node looks with each of its beats, too: a word may be lost.  The words go by themselves, beside the writer: PostgreSQL
lets transactions that tell something commit one after another.
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
TOGETHER_S = 0.005  # words in this time are told at once
AGAIN_S = 2.0  # before a lost connection is made again

log = structlog.get_logger()


class Bell:
    """One connection, which listens and tells while `keep_listening` runs; used on the event loop."""

    def __init__(self, server: PgServer, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._rung: set[str] = set()
        self._timer: Handle | None = None
        self._session: PgSession | None = None
        self._is_telling = False  # what was told last is not answered yet
        self._lost = asyncio.Event()
        self._is_over = False
        self.hear: Callable[[Collection[str]], object] = len  # takes the parts of which others have told

    def hang(self, store: Store) -> None:
        """Have what the parts of a store announce told to others."""
        for part in PARTS:
            getattr(store, part).ring = partial(self.ring, part)

    def ring(self, part: str) -> None:
        """Tell others soon that a part of the store has something new."""
        self._rung.add(part)
        if self._timer is None:
            self._timer = self._clock.call_later(TOGETHER_S, self._tell)

    async def keep_listening(self) -> None:
        """Listen until cancelled; a lost connection is made again, after which everything may be new."""
        try:
            while True:
                try:
                    await self._listen(await asyncio.to_thread(self._connect))
                except StoreError as error:
                    log.info("what other nodes tell is not heard: this one looks by itself", reason=str(error))
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
        self._session, self._is_telling = session, False
        self._lost.clear()
        loop.add_reader(socket, self._read, session)
        try:
            self.hear(PARTS)
            await self._lost.wait()
        finally:
            loop.remove_reader(socket)
            self._session = None
            session.close()

    def _tell(self) -> None:
        self._timer = None
        if self._session is None:
            self._rung.clear()
        elif not self._is_telling:
            words, self._is_telling = " ".join(sorted(self._rung)), True
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
            while told := connection.notifies():
                if told.be_pid != connection.backend_pid:
                    heard.update(told.extra.decode("ascii", "replace").split())
            while self._is_telling and not connection.is_busy():
                self._is_telling = connection.get_result() is not None
        except psycopg.Error:
            self._lost.set()
        if self._rung and not self._is_telling and self._timer is None:
            self._tell()
        if known := heard.intersection(PARTS):
            self.hear(known)
