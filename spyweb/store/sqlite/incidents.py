"""Incidents in SQLite: the decisions are those of incidents/truth.py and incidents/telling.py."""

from __future__ import annotations

import sqlite3
from asyncio import Future
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from sys import maxsize
from typing import Any

import msgspec
from msgspec.structs import replace

from spyweb.clock import Clock
from spyweb.incidents import telling
from spyweb.incidents.policy import Level
from spyweb.incidents.truth import JOB, Decision, Sign, SubjectState, advance, first_sign
from spyweb.model import JobId
from spyweb.store.model.incidents import (
    AlertChannelNow,
    BegunMaintenance,
    Incident,
    Note,
    OpenIncident,
    Planned,
    ScriptTold,
    Silence,
    SubjectChange,
    SubjectEvent,
    SubjectNow,
)
from spyweb.store.model.messages import Channel, NewMessage, Target
from spyweb.store.sqlite.batch import OpKind, execute_each
from spyweb.store.sqlite.connections import Announcer, Connections, columns_of, on_questions, on_writer, read_as, upsert
from spyweb.store.sqlite.outbox import Outbox, add_one

MOST_NOTES = 50  # of an incident's history, the newest
MOST_FOR_SCRIPTS = 100  # incidents read in one query, so that other queries get their turn
NAMED = 20  # incidents of a digest; the others are counted
SETTLED_AT_ONCE = 200  # in one op: the writes queued behind it hardly wait

FIND_SUBJECT = """
    SELECT failures, successes, first_failure_ms, signs, openings, bad_ms, is_pausing, silent_until_ms
    FROM subject WHERE name = ?
"""
FIND_OPEN = "SELECT id, opened_ms, is_flapping FROM incident WHERE subject = ? AND closed_ms IS NULL"
SAVE_SUBJECT = upsert(
    "subject", "name, failures, successes, first_failure_ms, signs, openings, bad_ms, wake_ms, is_pausing", key="name"
)
FORGET_SUBJECT = "DELETE FROM subject WHERE name = ?"
OPEN = """
    INSERT INTO incident (subject, level, reason, text, run, opened_ms, since_ms, is_flapping)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
CLOSE = "UPDATE incident SET closed_ms = ?, closed_run = ? WHERE id = ?"
RAISE = "UPDATE incident SET level = ?, reason = ?, text = ? WHERE id = ?"
KNOWN = "SELECT name, wake_ms FROM subject"
SIGNS = "SELECT name, signs FROM subject WHERE signs <> '{}'"
UNSETTLED = "SELECT DISTINCT subject FROM incident INDEXED BY incident_unsettled WHERE is_settled = 0"
TO_TELL = """
    SELECT incident.id, incident.subject, level, opened_ms, closed_ms, acked_ms IS NOT NULL, state, remind_ms,
        silent_until_ms, silent_for_ms
    FROM incident INDEXED BY incident_unsettled
    LEFT JOIN told ON told.incident = incident.id AND told.channel = ?
    LEFT JOIN subject ON subject.name = incident.subject
    WHERE is_settled = 0 ORDER BY incident.id
"""
FIND_CHANNEL = "SELECT next_ms, sent FROM alert_channel WHERE name = ?"
SAVE_CHANNEL = upsert("alert_channel", "name, next_ms, sent", key="name")
TELL = upsert("told", "incident, channel, state, remind_ms", key="incident, channel")
CLOSED_UNSETTLED = """
    SELECT id, subject, level FROM incident INDEXED BY incident_unsettled WHERE is_settled = 0 AND closed_ms IS NOT NULL
"""
# By the newest messages: why a channel did not get the notification that it was last sent.
UNDELIVERED = f"""
    SELECT incident, told.channel, CASE WHEN dead_ms IS NOT NULL THEN 'given up: ' || error ELSE coalesce(
        nullif(error, ''), (SELECT error FROM message AS ahead INDEXED BY message_waiting
            WHERE dead_ms IS NULL AND ahead.channel = message.channel AND ahead.address = told.channel
            ORDER BY id LIMIT 1)
    ) END
    FROM message CROSS JOIN json_each(CAST(payload AS TEXT), '$.incidents')
    JOIN told ON incident = CAST(key AS bigint) AND told.channel = address AND state = value
    WHERE message.id IN (
        SELECT id FROM message INDEXED BY message_waiting WHERE dead_ms IS NULL AND channel = '{Channel.ALERT}'
        UNION ALL SELECT id FROM message INDEXED BY message_dead WHERE dead_ms > 0 AND channel = '{Channel.ALERT}'
        ORDER BY id DESC LIMIT 1000
    ) AND incident IN (SELECT CAST(value AS bigint) FROM json_each(?))
"""
SETTLE = "UPDATE incident SET is_settled = 1 WHERE id = ?"
KNOWS = "SELECT channel, state FROM told WHERE incident = ?"
ACKNOWLEDGE = """
    UPDATE incident SET acked_ms = coalesce(acked_ms, ?), acked_by = CASE WHEN acked_ms IS NULL THEN ? ELSE acked_by END
    WHERE id = ? AND closed_ms IS NULL
"""
WITHDRAW = """
    UPDATE incident SET acked_ms = NULL, acked_by = '' WHERE id = ? AND acked_ms IS NOT NULL AND closed_ms IS NULL
"""
SILENCE = """
    INSERT INTO subject (
        name, failures, successes, signs, openings, silent_until_ms, silent_for_ms, silent_by
    ) VALUES (?, 0, 0, '{}', '[]', ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET
        silent_until_ms = excluded.silent_until_ms, silent_for_ms = excluded.silent_for_ms,
        silent_by = excluded.silent_by
"""
# Those of its fields that are stored with it.
COLUMNS = columns_of(Incident).partition(', "told"')[0]
NOTES = Incident.__struct_fields__.index("notes")
LIST = f"""
    SELECT {COLUMNS} FROM incident {{}} AND id < ?2 AND (closed_ms IS NULL OR closed_ms >= ?4)
        AND (CAST(?1 AS text) IS NULL OR subject IN (SELECT value FROM json_each(?1))) ORDER BY id DESC LIMIT ?3
"""
LIST_ALL, LIST_CLOSED = LIST.format("WHERE TRUE"), LIST.format("WHERE closed_ms IS NOT NULL")
LIST_OPEN = LIST.format("INDEXED BY incident_open WHERE closed_ms IS NULL")  # few, among very many
STANDING = "SELECT failures, signs, silent_until_ms, silent_for_ms, silent_by FROM subject WHERE name = ?"
OPEN_AMONG = """
    SELECT subject, id FROM incident INDEXED BY incident_open
    WHERE subject IN (SELECT value FROM json_each(?)) AND closed_ms IS NULL
"""
ALL_OPEN = f"""
    SELECT {columns_of(OpenIncident)} FROM incident INDEXED BY incident_open
    WHERE closed_ms IS NULL ORDER BY id DESC LIMIT ?
"""
GET = f"SELECT {COLUMNS} FROM incident WHERE id = ?"
FOR_SCRIPTS = f"""
    SELECT {COLUMNS} FROM incident INDEXED BY incident_unsettled
    LEFT JOIN told ON told.incident = incident.id AND told.channel = ?1
    WHERE is_settled = 0 AND subject IN (SELECT value FROM json_each(?2))
        AND (state IS NULL OR (state = '{telling.Told.OPEN.value}' AND closed_ms IS NOT NULL))
    ORDER BY id LIMIT ?3
"""

BEGIN_MAINTENANCE = """
    INSERT INTO maintenance (start_ms, end_ms, jobs, tags, text, by) VALUES (?, ?, ?, ?, ?, ?) RETURNING id
"""

NO_SIGN = Sign(0, "")

encode = msgspec.json.encode
decode = msgspec.json.Decoder(tuple[str, ...]).decode
decode_signs = msgspec.json.Decoder(dict[str, Sign]).decode
decode_moments = msgspec.json.Decoder(tuple[int, ...]).decode
decode_notes = msgspec.json.Decoder(tuple[Note, ...]).decode


class Incidents(Announcer[SubjectChange]):
    """Announces each change that led a subject to another state, also by a run's end."""

    def __init__(self, connections: Connections, clock: Clock, outbox: Outbox) -> None:
        super().__init__(connections, clock)
        self._outbox = outbox

    def note(self, events: Sequence[SubjectEvent]) -> Future[list[SubjectChange]]:
        """Lead subjects from one state to the next, in one transaction; runs do so by their ends (`End.alert`)."""
        changes: list[SubjectChange] = []  # filled on the writer's thread, read after the commit

        def note_all(connection: sqlite3.Connection) -> list[SubjectChange]:
            changes[:] = [apply(connection, event) for event in events]
            return changes

        return self._writer.submit(OpKind.SEVERAL, note_all, after=lambda: self.tell(changes))

    @on_writer(OpKind.READ)
    def known(self, connection: sqlite3.Connection) -> dict[str, int | None]:
        """Return the subjects that have a row, each with the moment at which to look at it again."""
        return dict(connection.execute(KNOWN).fetchall())

    @on_writer(OpKind.READ)
    def signs(self, connection: sqlite3.Connection) -> dict[str, Mapping[str, Sign]]:
        """Return the signs of each subject that has some."""
        return {name: decode_signs(signs) for name, signs in connection.execute(SIGNS)}

    @on_writer(OpKind.READ)
    def pausing(self, connection: sqlite3.Connection) -> dict[str, int]:
        """Return the subjects whose jobs are still to be paused, each with its failures in a row."""
        return dict(connection.execute("SELECT name, failures FROM subject WHERE is_pausing = 1").fetchall())

    @on_questions
    def unsettled(self, connection: sqlite3.Connection) -> list[str]:
        """Return the subjects of incidents that some channel may still have to be notified of."""
        return [subject for (subject,) in connection.execute(UNSETTLED)]

    @on_questions
    def undelivered(self, connection: sqlite3.Connection, incidents: Sequence[int]) -> dict[int, dict[str, str]]:
        """Return for each of these incidents the channels without its last notification, each with the reason."""
        found: dict[int, dict[str, str]] = {}
        for number, channel, reason in connection.execute(UNDELIVERED, (encode(incidents).decode(),)):
            found.setdefault(number, {})[channel] = reason
        return found

    async def plan(self, channels: Sequence[AlertChannelNow], subjects: Mapping[str, SubjectNow]) -> Planned:
        """Write the missing messages, for each channel in one transaction with the note of its notifications.

        One plan at a time: none may begin before the one before has ended.  Messages are decided beside the writer,
        since thousands of incidents would hold it up, from facts that may be outdated when it writes.  That does no
        harm: nothing else writes what a channel knows, and each new event causes another plan.
        """
        now_ms = self._clock.now_ms()
        wakes, messages = list[int](), 0
        for channel in channels:
            planned = await self._questions.submit(OpKind.READ, decide, channel, subjects, now_ms)
            if planned.told:
                after = partial(self._outbox.tell, [Target(Channel.ALERT, channel.name)])
                await self._writer.submit(
                    OpKind.SEVERAL, tell, channel.name, planned, now_ms, after=after if planned.messages else None
                )
            messages += len(planned.messages)
            wakes += [] if planned.wake_ms is None else [planned.wake_ms]
        told_to_all = await self._questions.submit(OpKind.READ, find_told_to_all, channels, subjects)
        for at in range(0, len(told_to_all), SETTLED_AT_ONCE):
            some = [(number,) for number in told_to_all[at : at + SETTLED_AT_ONCE]]
            await self._writer.submit(OpKind.SEVERAL, execute_each, SETTLE, some)
        unsettled = await self.unsettled()
        unknown = tuple(name for name in unsettled if name not in subjects)
        return Planned(messages=messages, wake_ms=min(wakes, default=None), unknown=unknown)

    @on_writer(OpKind.READ)
    def for_scripts(self, connection: sqlite3.Connection, subjects: Sequence[str]) -> list[Incident]:
        """Return incidents of these subjects whose state their files do not know yet, the oldest first.

        At most MOST_FOR_SCRIPTS at once: `Change.told` notes what the files know.
        """
        rows = connection.execute(
            FOR_SCRIPTS, (telling.SCRIPTS, encode(subjects).decode(), MOST_FOR_SCRIPTS)
        ).fetchall()
        return [whole(connection, read(row)) for row in rows]

    @on_writer(OpKind.SEVERAL, rings=True)
    def acknowledge(self, connection: sqlite3.Connection, incident: int, by: str, *, undo: bool = False) -> bool:
        """Acknowledge an incident, or withdraw that; gives False where it is closed, or was not acknowledged."""
        now_ms = self._clock.now_ms()
        asked: tuple[str, Sequence[object]] = (WITHDRAW, [incident]) if undo else (ACKNOWLEDGE, [now_ms, by, incident])
        is_done = connection.execute(*asked).rowcount == 1
        if is_done:
            words = "acknowledgement withdrawn" if undo else "acknowledged"
            add_notes(connection, incident, [Note(now_ms, f"{words} by {by}")])
        return is_done

    @on_writer(OpKind.SEVERAL, rings=True)
    def add_note(self, connection: sqlite3.Connection, incident: int, text: str, by: str, is_public: bool) -> bool:
        """Add a note to the history of an incident, also of one that has closed; give False where there is none."""
        return add_notes(connection, incident, [Note(self._clock.now_ms(), text, by, is_public)])

    @on_writer(OpKind.SEVERAL, rings=True)
    def silence(self, connection: sqlite3.Connection, subject: str, for_ms: int | None, by: str) -> None:
        """Tell nothing of a subject for so long; None ends that."""
        now_ms = self._clock.now_ms()
        until_ms = None if for_ms is None else now_ms + for_ms
        connection.execute(SILENCE, (subject, until_ms, for_ms, by))
        opened = connection.execute(FIND_OPEN, (subject,)).fetchone()
        if opened:
            text = f"unsilenced by {by}" if for_ms is None else f"silenced by {by}"
            add_notes(connection, opened[0], [Note(now_ms, text)])
        if for_ms is None and find_subject(connection, subject, opened, now_ms)[0].is_blank:
            connection.execute(FORGET_SUBJECT, (subject,))

    @on_writer(OpKind.READ)
    def maintenance(self, connection: sqlite3.Connection) -> list[BegunMaintenance]:
        """Return the maintenance windows that were begun at runtime."""
        rows = connection.execute(f"SELECT {columns_of(BegunMaintenance)} FROM maintenance ORDER BY id")
        return [read_as(BegunMaintenance, row, jobs=decode(row[3]), tags=decode(row[4])) for row in rows]

    @on_writer(OpKind.SEVERAL, rings=True)
    def begin_maintenance(self, connection: sqlite3.Connection, new: BegunMaintenance) -> BegunMaintenance:
        """Store a window under a new id, and delete those that have ended."""
        connection.execute("DELETE FROM maintenance WHERE end_ms <= ?", (new.start_ms,))
        jobs, tags = encode(new.jobs).decode(), encode(new.tags).decode()
        row = (new.start_ms, new.end_ms, jobs, tags, new.text, new.by)
        return replace(new, id=connection.execute(BEGIN_MAINTENANCE, row).fetchone()[0])

    @on_writer(OpKind.WRITE, rings=True)
    def end_maintenance(self, connection: sqlite3.Connection, window: int) -> bool:
        """Delete a window; give False where there is none."""
        return connection.execute("DELETE FROM maintenance WHERE id = ?", (window,)).rowcount > 0

    @on_questions
    def silence_of(self, connection: sqlite3.Connection, subject: str) -> Silence | None:
        """Return the silence of a subject, also one that has passed."""
        row = connection.execute(STANDING, (subject,)).fetchone()
        return None if row is None or row[2] is None else Silence(*row[2:])

    @on_questions
    def all_open(self, connection: sqlite3.Connection, limit: int) -> list[OpenIncident]:
        """Return the newest incidents that are open."""
        return [read_as(OpenIncident, row) for row in connection.execute(ALL_OPEN, (limit,))]

    @on_questions
    def get(self, connection: sqlite3.Connection, incident: int) -> Incident | None:
        row = connection.execute(GET, (incident,)).fetchone()
        return whole(connection, read(row)) if row else None

    @on_questions
    def open_among(self, connection: sqlite3.Connection, subjects: Collection[str]) -> dict[str, int]:
        """Return those of the subjects that have an open incident, with its id."""
        return dict(connection.execute(OPEN_AMONG, (encode(tuple(subjects)).decode(),)).fetchall())

    async def prune(self, *, older_than_ms: int) -> int:
        """Delete settled incidents that ended before this moment; return how many."""
        outdated = "SELECT id FROM incident WHERE is_settled = 1 AND closed_ms < ? LIMIT ?"
        return await self._prune_older(outdated, older_than_ms, "DELETE FROM incident WHERE id = ?")

    @on_questions
    def list(
        self,
        connection: sqlite3.Connection,
        *,
        is_open: bool | None = None,
        subjects: Collection[str] | None = None,
        since_ms: int | None = None,
        before: int | None = None,
        limit: int = 30,
    ) -> list[Incident]:
        """Return the incidents, of these subjects or of all, that were open at `since_ms` or later, newest first."""
        text = LIST_ALL if is_open is None else LIST_OPEN if is_open else LIST_CLOSED
        asked = None if subjects is None else encode(tuple(subjects)).decode()
        rows = connection.execute(text, (asked, before or maxsize, limit, since_ms or 0)).fetchall()
        return [whole(connection, read(row)) for row in rows]


# On the thread of a connection: the state of subjects


def apply(connection: sqlite3.Connection, happened: SubjectEvent) -> SubjectChange:
    """Lead one subject to its next state."""
    name, at_ms, policy = happened.subject, happened.at_ms, happened.policy
    opened = connection.execute(FIND_OPEN, (name,)).fetchone()
    before, is_silent = find_subject(connection, name, opened, at_ms)
    decision = advance(before, happened.event, policy, at_ms, in_maintenance=happened.in_maintenance)
    incident: int | None = opened[0] if opened else None
    reason, sign = first_sign(decision.subject.signs) if decision.opens else ("", NO_SIGN)
    if decision.opens:
        is_flapping = decision.subject.is_flapping
        row = (name, policy.level.value, reason, sign.text, happened.run, at_ms, sign.since_ms, is_flapping)
        incident = connection.execute(OPEN, row).fetchone()[0]
    elif incident is not None:
        raise_incident(connection, incident, before, decision.subject, policy.level)
    if incident is not None and decision.notes:
        add_notes(connection, incident, [Note(at_ms, text) for text in decision.notes])
    if decision.closes and incident is not None:
        connection.execute(CLOSE, (at_ms, happened.run, incident))
    is_known = save_subject(connection, before, decision, is_silent=is_silent)
    return SubjectChange(
        subject=name,
        is_known=is_known,
        incident=incident if decision.opens or decision.closes else None,
        opened=decision.opens,
        closed=decision.closes,
        pauses=decision.subject.failures if decision.subject.is_pausing else 0,
        wake_ms=decision.wake_ms,
        at_ms=at_ms,
        level=policy.level,
        reason=reason,
        text=sign.text,
        signs=decision.subject.signs,
    )


def find_subject(
    connection: sqlite3.Connection, name: str, opened: tuple[int, int, int] | None, at_ms: int
) -> tuple[SubjectState, bool]:
    """Return a subject, and whether it is silent, so that its row must stay."""
    row = connection.execute(FIND_SUBJECT, (name,)).fetchone()
    subject = SubjectState(name=name)
    if row:
        signs, openings = decode_signs(row[3]), decode_moments(row[4])
        subject = read_as(SubjectState, (name, *row[:6]), signs=signs, openings=openings, is_pausing=row[6])
    if opened:
        subject = replace(subject, opened_ms=opened[1], is_flapping=bool(opened[2]))
    return subject, bool(row and row[-1] is not None and at_ms < row[-1])


def save_subject(connection: sqlite3.Connection, before: SubjectState, decision: Decision, *, is_silent: bool) -> bool:
    """Store a subject, unless it is as before; return whether it has a row."""
    after = decision.subject
    if after.is_blank and not is_silent:
        connection.execute(FORGET_SUBJECT, (after.name,))
        return False
    if after != before or decision.wake_ms is not None:
        row = (
            after.name, after.failures, after.successes, after.first_failure_ms, encode(after.signs).decode(),
            encode(after.openings).decode(), after.bad_ms, decision.wake_ms, after.is_pausing,
        )  # fmt: skip
        connection.execute(SAVE_SUBJECT, row)
    return True


def raise_incident(
    connection: sqlite3.Connection, incident: int, before: SubjectState, after: SubjectState, level: Level
) -> None:
    """Raise an open incident to the level of a graver new sign: channels that want only that level are notified."""
    new = {sign: seen for sign, seen in after.signs.items() if sign not in before.signs}
    if not new:
        return
    (known,) = connection.execute("SELECT level FROM incident WHERE id = ?", (incident,)).fetchone()
    if level.rank > Level(known).rank:
        reason, sign = first_sign(new)
        connection.execute(RAISE, (level.value, reason, sign.text, incident))


def add_notes(connection: sqlite3.Connection, incident: int, notes: Sequence[Note]) -> bool:
    row = connection.execute("SELECT notes FROM incident WHERE id = ?", (incident,)).fetchone()
    if row:
        kept = [*decode_notes(row[0]), *notes][-MOST_NOTES:]
        connection.execute("UPDATE incident SET notes = ? WHERE id = ?", (encode(kept).decode(), incident))
    return row is not None


# On the thread of a connection: which channel is notified


def decide(
    connection: sqlite3.Connection, channel: AlertChannelNow, subjects: Mapping[str, SubjectNow], now_ms: int
) -> telling.TellingPlan:
    """Decide which messages a channel gets now; nothing is written."""
    next_ms, sent = find_channel(connection, channel.name, now_ms)
    state = telling.ChannelState(
        name=channel.name, quiet_until_ms=channel.quiet_until_ms, next_ms=next_ms, sent_lately=len(sent)
    )
    return telling.plan(state, known_to(connection, channel, subjects, now_ms), now_ms)


def find_channel(connection: sqlite3.Connection, channel: str, now_ms: int) -> tuple[int | None, list[int]]:
    """Return when a channel may be sent the next message after a digest, and when it was in the last minute."""
    next_ms, sent = connection.execute(FIND_CHANNEL, (channel,)).fetchone() or (None, "[]")
    return next_ms, [moment for moment in decode_moments(sent) if now_ms - telling.DIGEST_EVERY_MS < moment <= now_ms]


def tell(connection: sqlite3.Connection, channel: str, planned: telling.TellingPlan, now_ms: int) -> None:
    """Write the messages to a channel, and the note of its notifications."""
    told = [(each.incident, channel, each.told.value, each.remind_ms) for each in planned.told]
    connection.executemany(TELL, told)
    for items in planned.messages:
        add_message(connection, channel, items, now_ms)
    if planned.messages:
        _, sent = find_channel(connection, channel, now_ms)
        moments = [*sent, *(now_ms for _ in planned.messages)]
        connection.execute(SAVE_CHANNEL, (channel, planned.next_ms, encode(moments).decode()))


def tell_scripts(connection: sqlite3.Connection, told: Sequence[ScriptTold]) -> None:
    """Note what the files of jobs know, in the transaction that records the runs that report it."""
    connection.executemany(TELL, [(each.incident, telling.SCRIPTS, each.told.value, None) for each in told])


def known_to(
    connection: sqlite3.Connection, channel: AlertChannelNow, subjects: Mapping[str, SubjectNow], now_ms: int
) -> list[telling.KnownIncident]:
    """Return the incidents that a notification channel may have to be notified of."""
    parents = {parent for each in subjects.values() for parent in each.policy.depends_on}
    open_parents = {parent for parent in parents if connection.execute(FIND_OPEN, (parent,)).fetchone()}
    found, least = [], channel.level.rank
    for row in connection.execute(TO_TELL, (channel.name,)):
        number, name, level, opened_ms, closed_ms, is_acknowledged, state, remind_ms, silent_ms, silent_for_ms = row
        subject = subjects.get(name)
        level = Level(level)
        if subject is None or level.rank < least:
            continue
        is_silent = silent_ms is not None and Silence(silent_ms, silent_for_ms, "").holds(now_ms)
        incident = telling.KnownIncident(
            id=number,
            opened_ms=opened_ms,
            closed_ms=closed_ms,
            is_acknowledged=bool(is_acknowledged),
            told=None if state is None else telling.Told(state),
            remind_ms=remind_ms,
            policy=subject.policy,
            level=level,
            maintenance_until_ms=subject.maintenance_until_ms,
            silent_until_ms=silent_ms if is_silent else None,
            quiet_until_ms=None if channel.has_own_quiet else subject.quiet_until_ms,
            is_under_another=not open_parents.isdisjoint(subject.policy.depends_on),
        )
        found.append(incident)
    return found


def add_message(
    connection: sqlite3.Connection, channel: str, items: Sequence[telling.MessageItem], now_ms: int
) -> None:
    """Put a message into the outbox: the facts, from which its text is made when it is sent."""
    named = [facts_of(connection, item) for item in items[:NAMED]]
    kinds = {each.incident: each.kind for each in items if each.kind is not telling.MessageKind.REMINDER}
    states = {number: "open" if kind is telling.MessageKind.OPENED else "closed" for number, kind in kinds.items()}
    facts = {"channel": channel, "at_ms": now_ms, "items": named, "count": len(items), "incidents": states}
    job = JobId(str(named[0]["subject"]).removeprefix(JOB) if len(items) == 1 else "")
    message = NewMessage(job=job, target=Target(Channel.ALERT, channel), payload=encode(facts))
    add_one(connection, message, now_ms)


def facts_of(connection: sqlite3.Connection, item: telling.MessageItem) -> dict[str, object]:
    incident = read(connection.execute(GET, (item.incident,)).fetchone())
    subject = connection.execute(FIND_SUBJECT, (incident.subject,)).fetchone()
    same = ("subject", "level", "reason", "text", "run", "since_ms", "opened_ms", "closed_ms")
    return {name: getattr(incident, name) for name in same} | {
        "incident": incident.id,
        "kind": item.kind,
        "failures": subject[0] if subject else 0,
        "flapping": incident.is_flapping,
        "gone": incident.is_gone,
    }


def find_told_to_all(
    connection: sqlite3.Connection, channels: Sequence[AlertChannelNow], subjects: Mapping[str, SubjectNow]
) -> list[int]:
    """Return the closed incidents that no channel has to be notified of any more."""
    found = []
    for number, name, level in connection.execute(CLOSED_UNSETTLED):
        if name not in subjects:
            continue
        knows = dict(connection.execute(KNOWS, (number,)).fetchall())
        concerned = [each.name for each in channels if each.level.rank <= Level(level).rank]
        concerned += [telling.SCRIPTS] if subjects[name].has_hooks else []
        if all(knows.get(channel) in (telling.Told.CLOSED, telling.Told.SPARED) for channel in concerned):
            found.append(number)
    return found


# On the thread of a connection: reading


def whole(connection: sqlite3.Connection, incident: Incident) -> Incident:
    """Return an incident with the notified channels, and while it is open with the state of its subject."""
    told = dict(connection.execute(KNOWS, (incident.id,)).fetchall())
    row = connection.execute(STANDING, (incident.subject,)).fetchone() if incident.closed_ms is None else None
    if row is None:
        return replace(incident, told=told)
    failures, signs, until_ms, for_ms, by = row
    silence = None if until_ms is None else Silence(until_ms, for_ms, by)
    return replace(incident, told=told, failures=failures, signs=decode_signs(signs), silence=silence)


def read(row: Sequence[Any]) -> Incident:
    return read_as(Incident, row, notes=decode_notes(row[NOTES]))
