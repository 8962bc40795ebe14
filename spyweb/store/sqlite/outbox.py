"""Store the outbox of messages in SQLite, and notices of scripts: messages that are kept from being too many."""

from __future__ import annotations

import secrets
import sqlite3
from asyncio import Future
from collections.abc import Sequence
from functools import partial
from sys import maxsize
from typing import Any

import msgspec

from spyweb.incidents.telling import MessageKind
from spyweb.incidents.truth import JOB
from spyweb.model import JobId
from spyweb.store.model.messages import (
    Backlog,
    Channel,
    NewMessage,
    Notice,
    NoticeFate,
    QueuedMessage,
    Target,
    TargetBacklog,
)
from spyweb.store.sqlite import records
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import Announcer, insert_into, on_reader, on_writer, read_as, upsert

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
PUT_OFF = "UPDATE message SET attempts = attempts + 1, next_ms = ?, error = ?, holds = ? WHERE id = ?"
GIVE_UP_LEFT = """
    UPDATE message SET dead_ms = ?, error = 'its node has not come back'
    WHERE dead_ms IS NULL AND channel = 'desktop' AND address <> '' AND created_ms < ?
"""
GIVE_UP = "UPDATE message SET attempts = attempts + 1, dead_ms = ?, error = ? WHERE id = ?"
LIST = (
    f"SELECT {COLUMNS} FROM message WHERE (CAST(?1 AS text) IS NULL OR job = ?1) AND id < ?3 ORDER BY id DESC LIMIT ?2"
)
RETRY = """
    UPDATE message SET next_ms = ?1, holds = 1, attempts = iif(dead_ms IS NULL, attempts, 0),
        created_ms = CASE WHEN dead_ms IS NULL THEN created_ms ELSE ?1 END, dead_ms = NULL
    WHERE CAST(?2 AS bigint) IS NULL OR id = ?2 RETURNING id, channel, address
"""
# From the index alone: a row's payload stands before its time.
BACKLOG = "SELECT count(*), min(id) FROM message INDEXED BY message_waiting WHERE dead_ms IS NULL"
DEAD = "SELECT count(*) FROM message WHERE dead_ms IS NOT NULL"
BACKLOGS = """
    SELECT address, count(*), min(id) FROM message INDEXED BY message_waiting
    WHERE dead_ms IS NULL AND channel = ? GROUP BY address
"""

MOST_A_MINUTE = 10  # messages of one job
MINUTE_MS = 60_000
NAMED = 20  # notices of a digest; the others are counted
LONGEST_GATHERED = 300  # characters of the text of each
MOST_KEYS = 1_000  # of a job, the newest

FIND_KEY = "SELECT day FROM notice_key WHERE job = ? AND channel = ? AND key = ?"
SAVE_KEY = upsert("notice_key", "job, channel, key, day, at_ms", key="job, channel, key")
# From the index alone, as far as the first that is one too many.
FORGET_OLDEST = """
    DELETE FROM notice_key WHERE job = ?1 AND at_ms < (
        SELECT at_ms FROM notice_key INDEXED BY notice_key_age WHERE job = ?1 ORDER BY at_ms DESC LIMIT 1 OFFSET ?2
    )
"""
SAVE_PACE = upsert("notice_pace", "job, sent", key="job")
FORGET_PACES = "DELETE FROM notice_pace WHERE CAST(coalesce(json_extract(sent, '$[#-1]'), '0') AS bigint) < ?"
# One that was attempted, or is due, may be under way.
FIND_DIGEST = """
    SELECT message.id, next_ms, payload FROM notice_digest JOIN message ON message.id = notice_digest.message
    WHERE notice_digest.job = ? AND notice_digest.channel = ? AND is_held = ?
        AND attempts = 0 AND dead_ms IS NULL AND next_ms > ?
"""
SAVE_DIGEST = upsert("notice_digest", "job, channel, is_held, message", key="job, channel, is_held")

decode_moments = msgspec.json.Decoder(tuple[int, ...]).decode


class Outbox(Announcer[Target]):
    """Waiting messages, each kept until it arrives or is given up.  A dead one is kept for a while, but not sent.

    Announces the targets of those that were added.  Reads on the writer's connection: its queries are short, and must
    see every message that was announced.
    """

    def add(
        self, messages: Sequence[NewMessage], *, settles: Sequence[int] = (), notices: Sequence[Notice] = ()
    ) -> Future[list[int]]:
        """Add messages and notices in one transaction, and return the ids of the messages.

        In the same transaction the records with these timestamps are marked as announced: these messages announce
        them, or they need none.
        """
        now_ms = self._clock.now_ms()
        targets = [message.target for message in messages]
        targets += [Target(Channel.ALERT, notice.channel) for notice in notices]

        def add(connection: sqlite3.Connection) -> list[int]:
            for notice in notices:
                add_notice(connection, notice, now_ms)
            connection.executemany(records.NOTE_ANNOUNCED, [(records.LATEST_NS - number,) for number in settles])
            return [add_one(connection, message, now_ms) for message in messages]

        return self._writer.submit(OpKind.SEVERAL, add, after=partial(self.tell, targets))

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
        in_turn = f"{TO_TARGET} AND (holds = 1 OR next_ms <= ?) ORDER BY id LIMIT 1"
        earliest = f"{TO_TARGET} ORDER BY next_ms, id LIMIT 1"
        found = connection.execute(in_turn, (*of_target, now_ms)).fetchone()
        row = found or connection.execute(earliest, of_target).fetchone()
        return read(row) if row else None

    @on_writer(OpKind.WRITE)
    def done(self, connection: sqlite3.Connection, message: int) -> None:
        """Delete a message that has arrived."""
        connection.execute("DELETE FROM message WHERE id = ?", (message,))

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
        rows = connection.execute(LIST, (job, limit, maxsize if before is None else before))
        return [read(row) for row in rows]

    def retry(self, message: int | None) -> Future[list[int]]:
        """Make this message, or all, due now, a dead one as if it were new; return their ids."""
        targets: list[Target] = []  # filled on the writer's thread, read after the commit
        now_ms = self._clock.now_ms()

        def retry(connection: sqlite3.Connection) -> list[int]:
            rows = sorted(connection.execute(RETRY, (now_ms, message)))
            targets[:] = dict.fromkeys(Target(Channel(channel), address) for _, channel, address in rows)
            return [number for number, _, _ in rows]

        return self._writer.submit(OpKind.SEVERAL, retry, after=partial(self.tell, targets))

    @on_reader
    def backlog(self, connection: sqlite3.Connection) -> Backlog:
        """Return how many messages wait or are dead, and how old the oldest is that waits."""
        waiting, oldest = connection.execute(BACKLOG).fetchone()
        row = connection.execute("SELECT created_ms FROM message WHERE id = ?", (oldest,)).fetchone()
        return Backlog(waiting, row and row[0], connection.execute(DEAD).fetchone()[0])

    @on_reader
    def backlogs(self, connection: sqlite3.Connection, channel: Channel) -> dict[str, TargetBacklog]:
        """Return what waits for each address of a kind of channel for which something does."""
        found = {}
        for address, waiting, oldest in connection.execute(BACKLOGS, (channel.value,)).fetchall():
            first = connection.execute("SELECT created_ms, error FROM message WHERE id = ?", (oldest,)).fetchone()
            found[address] = TargetBacklog(waiting, *first)
        return found

    def notify(self, notice: Notice) -> Future[NoticeFate]:
        """Put a notice into the outbox, unless its key was sent today; in one transaction with the note of that.

        A job has ten messages a minute.  Notices beyond them, and those held by quiet hours, are gathered in one
        message, sent at the end of the minute or of the quiet hours.
        """
        tell = partial(self.tell, [Target(Channel.ALERT, notice.channel)])
        return self._writer.submit(OpKind.SEVERAL, add_notice, notice, self._clock.now_ms(), after=tell)

    async def prune(self, *, older_than_ms: int) -> int:
        """Delete messages given up before this moment, and give up those that only an absent node can send."""
        left = (self._clock.now_ms(), older_than_ms)
        await self._writer.submit(OpKind.WRITE, lambda connection: connection.execute(GIVE_UP_LEFT, left).rowcount)
        outdated = "SELECT id FROM message WHERE dead_ms < ? LIMIT ?"
        delete = "DELETE FROM message WHERE id = ? AND dead_ms IS NOT NULL"  # unless somebody retries it meanwhile
        return await self._prune_older(outdated, older_than_ms, delete)

    @on_writer(OpKind.SEVERAL)
    def prune_notices(self, connection: sqlite3.Connection, *, older_than_ms: int) -> None:
        """Forget keys that were last sent before this moment."""
        connection.execute("DELETE FROM notice_key WHERE at_ms < ?", (older_than_ms,))
        connection.execute(FORGET_PACES, (older_than_ms,))
        connection.execute("DELETE FROM notice_digest WHERE message NOT IN (SELECT id FROM message)")


def add_one(connection: sqlite3.Connection, message: NewMessage, due_ms: int, *, holds: bool = True) -> int:
    """Add a message, which is as old as it may be delivered; those behind one that does not hold pass it."""
    headers = msgspec.json.encode(message.headers).decode()
    sort = (message.target.channel.value, message.target.address, headers)
    if message.target.channel is Channel.PING:
        connection.execute(REPLACE_PING, sort)
    row = (secrets.token_hex(16), message.job, *sort, message.payload, due_ms, due_ms, holds)
    return connection.execute(ADD, row).lastrowid or 0


def read(row: Sequence[Any]) -> QueuedMessage:
    job, channel, address, payload, headers, *rest = row
    return read_as(QueuedMessage, (job, (channel, address), payload, msgspec.json.decode(headers), *rest))


def add_notice(connection: sqlite3.Connection, notice: Notice, now_ms: int) -> NoticeFate:
    if notice.key and not take_key(connection, notice, now_ms):
        return NoticeFate.REPEATED
    if notice.held_until_ms is not None:
        gather(connection, notice, now_ms, notice.held_until_ms)
        return NoticeFate.HELD
    row = connection.execute("SELECT sent FROM notice_pace WHERE job = ?", (notice.job,)).fetchone()
    sent = [moment for moment in decode_moments(row[0]) if now_ms - MINUTE_MS < moment <= now_ms] if row else []
    if len(sent) >= MOST_A_MINUTE or find_digest(connection, notice, now_ms, None):
        gather(connection, notice, now_ms, (sent[0] if sent else now_ms) + MINUTE_MS)
        return NoticeFate.GATHERED
    add_message(connection, notice, now_ms, now_ms)
    connection.execute(SAVE_PACE, (notice.job, msgspec.json.encode([*sent, now_ms]).decode()))
    return NoticeFate.QUEUED


def take_key(connection: sqlite3.Connection, notice: Notice, now_ms: int) -> bool:
    """Note that a key is sent today; return False where it was already."""
    row = connection.execute(FIND_KEY, (notice.job, notice.channel, notice.key)).fetchone()
    if row and row[0] == notice.day:
        return False
    connection.execute(SAVE_KEY, (notice.job, notice.channel, notice.key, notice.day, now_ms))
    connection.execute(FORGET_OLDEST, (notice.job, MOST_KEYS - 1))
    return True


def gather(connection: sqlite3.Connection, notice: Notice, now_ms: int, until_ms: int) -> None:
    """Add a notice to the message that tells of several at once; make it where there is none yet."""
    found = find_digest(connection, notice, now_ms, notice.held_until_ms)
    if found is None:
        message = add_message(connection, notice, now_ms, until_ms)
        is_held = notice.held_until_ms is not None
        connection.execute(SAVE_DIGEST, (notice.job, notice.channel, is_held, message))
        return
    message, payload = found
    facts = msgspec.json.decode(payload)
    facts["count"] += 1
    if len(facts["items"]) < NAMED:
        items = [*facts["items"], item_of(notice, now_ms)]
        facts["items"] = [{**item, "text": item["text"][:LONGEST_GATHERED]} for item in items]
    connection.execute("UPDATE message SET payload = ? WHERE id = ?", (msgspec.json.encode(facts), message))


def find_digest(
    connection: sqlite3.Connection, notice: Notice, now_ms: int, held_until_ms: int | None
) -> tuple[int, bytes] | None:
    """Return the message that gathers notices until then, with its payload."""
    is_held = held_until_ms is not None
    row = connection.execute(FIND_DIGEST, (notice.job, notice.channel, is_held, now_ms)).fetchone()
    if row is None or (is_held and row[1] != held_until_ms) or (not is_held and row[1] > now_ms + MINUTE_MS):
        return None
    return row[0], row[2]


def add_message(connection: sqlite3.Connection, notice: Notice, now_ms: int, due_ms: int) -> int:
    facts = {"channel": notice.channel, "at_ms": now_ms, "items": [item_of(notice, now_ms)], "count": 1}
    message = NewMessage(
        job=notice.job, target=Target(Channel.ALERT, notice.channel), payload=msgspec.json.encode(facts)
    )
    return add_one(connection, message, due_ms, holds=due_ms <= now_ms)


def item_of(notice: Notice, now_ms: int) -> dict[str, object]:
    """Return a notice as the facts of a message have it: shaped like an incident, for templates and webhooks."""
    same = ("level", "title", "text", "link", "page_url", "run")
    return {name: getattr(notice, name) for name in same} | {
        "incident": None,
        "kind": MessageKind.MESSAGE,
        "subject": f"{JOB}{notice.job}",
        "reason": "",
        "since_ms": now_ms,
        "opened_ms": now_ms,
        "closed_ms": None,
        "failures": 0,
        "flapping": False,
    }
