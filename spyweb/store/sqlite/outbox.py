"""Store the outbox of messages in SQLite."""

from __future__ import annotations

import secrets
import sqlite3
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from spyweb.clock import Clock
from spyweb.model import JobId
from spyweb.store.model.messages import Backlog, Channel, NewMessage, QueuedMessage, Target, TargetBacklog
from spyweb.store.sqlite import records
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import Connections, StorePart, insert_into, on_reader, on_writer, read_as
from spyweb.store.sqlite.pruning import prune_older

COLUMNS = "job, channel, address, payload, headers, id, delivery, created_ms, next_ms, attempts, error, dead_ms"
ADD = insert_into("message", "delivery, job, channel, address, headers, payload, created_ms, next_ms, holds")
REPLACE_PING = """
    DELETE FROM message INDEXED BY message_waiting
    WHERE channel = ? AND address = ? AND headers = ? AND dead_ms IS NULL
"""
# From target to target in the index, instead of over every message.
NEXT_TARGET = """
    SELECT channel, address FROM message INDEXED BY message_waiting
    WHERE dead_ms IS NULL AND (channel, address) > (?, ?) ORDER BY channel, address LIMIT 1
"""
TO_TARGET = f"""
    SELECT {COLUMNS} FROM message INDEXED BY message_waiting
    WHERE dead_ms IS NULL AND channel = ? AND address = ?
"""
IN_TURN = f"{TO_TARGET} AND (holds OR next_ms <= ?) ORDER BY id LIMIT 1"
EARLIEST = f"{TO_TARGET} ORDER BY next_ms, id LIMIT 1"
DONE = "DELETE FROM message WHERE id = ?"
PUT_OFF = "UPDATE message SET attempts = attempts + 1, next_ms = ?, error = ?, holds = ? WHERE id = ?"
GIVE_UP = "UPDATE message SET attempts = attempts + 1, dead_ms = ?, error = ? WHERE id = ?"
LIST = f"SELECT {COLUMNS} FROM message WHERE (?1 IS NULL OR job = ?1) AND id < ?3 ORDER BY id DESC LIMIT ?2"
RETRY = """
    UPDATE message SET next_ms = ?1, holds = 1, attempts = attempts * (dead_ms IS NULL),
        created_ms = CASE WHEN dead_ms IS NULL THEN created_ms ELSE ?1 END, dead_ms = NULL
    WHERE ?2 IS NULL OR id = ?2 RETURNING id, channel, address
"""
COUNT_DEAD = "SELECT count(*) FROM message WHERE dead_ms IS NOT NULL"
# From the index alone: a row's payload stands before its time.
BACKLOG = "SELECT count(*), min(id) FROM message INDEXED BY message_waiting WHERE dead_ms IS NULL"
BACKLOGS = """
    SELECT address, count(*), min(id) FROM message INDEXED BY message_waiting
    WHERE dead_ms IS NULL AND channel = ? GROUP BY address
"""
OLDEST = "SELECT created_ms, error FROM message WHERE id = ?"
ADDED_AT = "SELECT created_ms FROM message WHERE id = ?"
OUTDATED = "SELECT id FROM message WHERE dead_ms < ? LIMIT ?"

LAST = (1 << 63) - 1  # no message has a greater id


class Outbox(StorePart):
    """Waiting messages, each kept until it arrives or is given up.  A dead one is kept for a while, but not sent.

    Reads on the writer's connection: its queries are short, and must see every message that was announced.
    """

    def __init__(self, connections: Connections, clock: Clock) -> None:
        super().__init__(connections, clock)
        self._callbacks: list[Callable[[Sequence[Target]], None]] = []

    def add(self, messages: Sequence[NewMessage], *, settles: Sequence[int] = ()) -> Future[list[int]]:
        """Add messages in one transaction, and return their ids.

        In the same transaction the records with these timestamps stop being owed: these messages announce them, or
        they need no message.
        """
        now_ms = self._clock.now_ms()
        tell = partial(self.tell, tuple(message.target for message in messages))
        return self._writer.submit(OpKind.SEVERAL, add, messages, now_ms, settles, after=tell)

    def on_added(self, callback: Callable[[Sequence[Target]], None]) -> None:
        """Have this called on the loop, with their targets, each time that messages were added and committed."""
        self._callbacks.append(callback)

    def tell(self, targets: Sequence[Target]) -> None:
        """Call those who want to hear of messages, which have been committed."""
        for callback in self._callbacks:
            callback(targets)

    @on_writer(OpKind.READ)
    def targets(self, connection: sqlite3.Connection) -> list[Target]:
        """Return the targets of waiting messages."""
        found: list[Target] = []
        last: tuple[str, str] = ("", "")
        while row := connection.execute(NEXT_TARGET, last).fetchone():
            last = row
            found.append(Target(Channel(row[0]), row[1]))
        return found

    @on_writer(OpKind.READ)
    def next(self, connection: sqlite3.Connection, target: Target, now_ms: int) -> QueuedMessage | None:
        """Return the message to send next, due or not; None when none waits.

        Messages go in the order in which they were added.  One that was put off holds up those behind it, unless
        `put_off` said not to.
        """
        of_target = (target.channel.value, target.address)
        row = (
            connection.execute(IN_TURN, (*of_target, now_ms)).fetchone()
            or connection.execute(EARLIEST, of_target).fetchone()
        )
        return read(row) if row else None

    @on_writer(OpKind.WRITE)
    def done(self, connection: sqlite3.Connection, message: int) -> None:
        """Delete a message that has arrived."""
        connection.execute(DONE, (message,))

    @on_writer(OpKind.WRITE)
    def put_off(self, connection: sqlite3.Connection, message: int, *, next_ms: int, error: str, holds: bool) -> None:
        """Note a failed attempt; with `holds` the messages behind this one wait for the next attempt."""
        connection.execute(PUT_OFF, (next_ms, error, holds, message))

    @on_writer(OpKind.WRITE)
    def give_up(self, connection: sqlite3.Connection, message: int, *, error: str) -> None:
        connection.execute(GIVE_UP, (self._clock.now_ms(), error, message))

    @on_writer(OpKind.READ)
    def unsent(
        self, connection: sqlite3.Connection, job: JobId | None, limit: int, *, before: int | None = None
    ) -> list[QueuedMessage]:
        """Return the waiting and the dead messages, newest first; of ids below `before`."""
        rows = connection.execute(LIST, (job, limit, LAST if before is None else before))
        return [read(row) for row in rows]

    def retry(self, message: int | None) -> Future[list[int]]:
        """Make this message, or all, due now, a dead one as if it were new; return their ids."""
        targets: list[Target] = []
        tell = partial(self.tell, targets)  # filled on the writer's thread, read after the commit
        return self._writer.submit(OpKind.SEVERAL, retry, message, self._clock.now_ms(), targets, after=tell)

    @on_writer(OpKind.READ)
    def count_dead(self, connection: sqlite3.Connection) -> int:
        number: int = connection.execute(COUNT_DEAD).fetchone()[0]
        return number

    @on_reader
    def backlog(self, connection: sqlite3.Connection) -> Backlog:
        """Return how many messages wait, and how old the oldest of them is."""
        waiting, oldest = connection.execute(BACKLOG).fetchone()
        row = connection.execute(ADDED_AT, (oldest,)).fetchone()
        return Backlog(waiting, row and row[0])

    @on_reader
    def backlogs(self, connection: sqlite3.Connection, channel: Channel) -> dict[str, TargetBacklog]:
        """Return what waits for each address of a kind of channel for which something does."""
        found = {}
        for address, waiting, oldest in connection.execute(BACKLOGS, (channel.value,)).fetchall():
            created_ms, error = connection.execute(OLDEST, (oldest,)).fetchone()
            found[address] = TargetBacklog(waiting, created_ms, error)
        return found

    async def prune(self, *, older_than_ms: int) -> int:
        """Delete messages given up before this moment; return how many."""
        return await prune_older(self._writer, self._writer, OUTDATED, DONE, older_than_ms)


def add(
    connection: sqlite3.Connection, messages: Sequence[NewMessage], now_ms: int, settles: Sequence[int]
) -> list[int]:
    records.note_announced(connection, settles)
    return [add_one(connection, message, now_ms) for message in messages]


def add_one(connection: sqlite3.Connection, message: NewMessage, due_ms: int, *, holds: bool = True) -> int:
    """Add a message, which is as old as it may be delivered; those behind one that does not hold pass it."""
    headers = msgspec.json.encode(message.headers).decode()
    sort = (message.target.channel.value, message.target.address, headers)
    if message.target.channel is Channel.PING:
        connection.execute(REPLACE_PING, sort)
    row = (secrets.token_hex(16), message.job, *sort, message.payload, due_ms, due_ms, holds)
    return connection.execute(ADD, row).lastrowid or 0


def retry(connection: sqlite3.Connection, message: int | None, now_ms: int, targets: list[Target]) -> list[int]:
    rows = connection.execute(RETRY, (now_ms, message)).fetchall()
    targets[:] = dict.fromkeys(Target(Channel(channel), address) for _, channel, address in rows)
    return sorted(number for number, _, _ in rows)


def read(row: Sequence[Any]) -> QueuedMessage:
    job, channel, address, payload, headers, *rest = row
    return read_as(QueuedMessage, (job, (channel, address), payload, msgspec.json.decode(headers), *rest))
