"""Notices of scripts in SQLite: messages of the outbox, with what keeps them from being too many."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from functools import partial

import msgspec

from spyweb.clock import Clock
from spyweb.incidents.telling import MessageKind
from spyweb.incidents.truth import JOB
from spyweb.store.model.messages import Channel, NewMessage, Notice, NoticeFate, Target
from spyweb.store.sqlite.batch import OpKind
from spyweb.store.sqlite.connections import Connections, StorePart, upsert
from spyweb.store.sqlite.outbox import Outbox, add_one

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
FORGET_OLD = "DELETE FROM notice_key WHERE at_ms < ?"
FIND_PACE = "SELECT sent FROM notice_pace WHERE job = ?"
SAVE_PACE = upsert("notice_pace", "job, sent", key="job")
FORGET_PACES = "DELETE FROM notice_pace WHERE coalesce(json_extract(sent, '$[#-1]'), 0) < ?"
# One that was attempted, or is due, may be under way.
FIND_DIGEST = """
    SELECT message.id, next_ms, payload FROM notice_digest JOIN message ON message.id = notice_digest.message
    WHERE notice_digest.job = ? AND notice_digest.channel = ? AND is_held = ?
        AND attempts = 0 AND dead_ms IS NULL AND next_ms > ?
"""
SAVE_DIGEST = upsert("notice_digest", "job, channel, is_held, message", key="job, channel, is_held")
FORGET_DIGESTS = "DELETE FROM notice_digest WHERE message NOT IN (SELECT id FROM message)"
SET_PAYLOAD = "UPDATE message SET payload = ? WHERE id = ?"

encode = msgspec.json.encode
decode = msgspec.json.decode
decode_moments = msgspec.json.Decoder(tuple[int, ...]).decode


class ScriptNotices(StorePart):
    def __init__(self, connections: Connections, clock: Clock, outbox: Outbox) -> None:
        super().__init__(connections, clock)
        self._outbox = outbox

    def add(self, notice: Notice) -> Future[NoticeFate]:
        """Put a notice into the outbox, unless its key was told today; in one transaction with the note of that.

        A job has ten messages a minute.  What is more, and what quiet hours hold, is gathered: one message tells of all
        of it, at the end of the minute or of the quiet hours.
        """
        tell = partial(self._outbox.tell, [Target(Channel.ALERT, notice.channel)])
        return self._writer.submit(OpKind.SEVERAL, add, notice, self._clock.now_ms(), after=tell)

    async def prune(self, *, older_than_ms: int) -> None:
        """Forget keys that were last told before this moment."""
        await self._writer.submit(OpKind.SEVERAL, prune, older_than_ms)


# On the thread of a connection


def add(connection: sqlite3.Connection, notice: Notice, now_ms: int) -> NoticeFate:
    if notice.key and not take_key(connection, notice, now_ms):
        return NoticeFate.REPEATED
    if notice.held_until_ms is not None:
        gather(connection, notice, now_ms, notice.held_until_ms)
        return NoticeFate.HELD
    row = connection.execute(FIND_PACE, (notice.job,)).fetchone()
    sent = [moment for moment in decode_moments(row[0]) if now_ms - MINUTE_MS < moment <= now_ms] if row else []
    if len(sent) >= MOST_A_MINUTE or find_digest(connection, notice, now_ms, None):
        gather(connection, notice, now_ms, (sent[0] if sent else now_ms) + MINUTE_MS)
        return NoticeFate.GATHERED
    add_message(connection, notice, now_ms, now_ms)
    connection.execute(SAVE_PACE, (notice.job, encode([*sent, now_ms]).decode()))
    return NoticeFate.QUEUED


def take_key(connection: sqlite3.Connection, notice: Notice, now_ms: int) -> bool:
    """Note that a key is told today; return False where it was already."""
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
    facts = decode(payload)
    facts["count"] += 1
    if len(facts["items"]) < NAMED:
        items = [*facts["items"], item_of(notice, now_ms)]
        facts["items"] = [{**item, "text": item["text"][:LONGEST_GATHERED]} for item in items]
    connection.execute(SET_PAYLOAD, (encode(facts), message))


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
    message = NewMessage(job=notice.job, target=Target(Channel.ALERT, notice.channel), payload=encode(facts))
    return add_one(connection, message, due_ms, holds=due_ms <= now_ms)


def item_of(notice: Notice, now_ms: int) -> dict[str, object]:
    """Return a notice as the facts of a message have it: shaped like an incident, for templates and webhooks."""
    return {
        "incident": None,
        "kind": MessageKind.MESSAGE.value,
        "subject": f"{JOB}{notice.job}",
        "level": notice.level.value,
        "reason": "",
        "title": notice.title,
        "text": notice.text,
        "run": notice.run,
        "since_ms": now_ms,
        "opened_ms": now_ms,
        "closed_ms": None,
        "failures": 0,
        "flapping": False,
    }


def prune(connection: sqlite3.Connection, older_than_ms: int) -> None:
    connection.execute(FORGET_OLD, (older_than_ms,))
    connection.execute(FORGET_PACES, (older_than_ms,))
    connection.execute(FORGET_DIGESTS)
