"""The promises that hold at every moment, whatever happens: each a sentence of the docs, and how it is checked."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from spyweb.ownership import slot_of

if TYPE_CHECKING:
    from spyweb.model import JobId, JobSpec, Run, RunId
    from spyweb.store.model.messages import QueuedMessage
    from spyweb.subjects.when.audit import JobAudit
    from tests.fakes.simulation.database import SimDatabase
    from tests.fakes.simulation.world import Daemon

PERIOD = "SELECT substr(schedule, 7) FROM cursor WHERE job = ?"  # of `every 700`
RECORDED = "SELECT 1 FROM run WHERE job = ?1 AND due_ms <= ?2 AND coalesce(last_due_ms, due_ms) >= ?2"
LATE_MS = 3_000


class Promise(NamedTuple):
    """A sentence, or a part of one, as it stands in a file."""

    words: str
    file: str


README, CLUSTER, SCHEDULE = "README.md", "docs/reference/cluster.md", "docs/reference/settings/schedule.md"
JOB, LOCKS, CHANGES = "docs/reference/settings/job.md", "docs/how-to/locks.md", "docs/how-to/react-to-changes.md"
NOTIFICATIONS, WEBHOOKS = "docs/how-to/notifications.md", "docs/how-to/webhooks.md"
CURSOR, PIPELINE = "docs/design/0005-schedule-cursor.md", "docs/how-to/deployment-pipeline.md"
COMMANDS = "docs/reference/cli.md"
ARCHITECTURE, TRIGGERS = "docs/architecture.md", "docs/reference/settings/triggers.md"

NO_LOSS = Promise("**No due time is lost silently.**", README)
STORED = Promise("**Stored means stored.** When `store_set` returns, the value is on the disk", README)
ONCE = Promise("A due time is neither lost nor run twice by a crash or a restart.", CURSOR)
ON_RECORD = Promise("records the run and the cursor in one transaction: never lost, never twice", ARCHITECTURE)
PAUSES = Promise("Due times of a paused, disabled or absent job are not missed: one row says `paused`.", SCHEDULE)
CADENCE = Promise("Due times follow from the last handled one, which is stored.", SCHEDULE)
CLOCK = Promise("When a clock was set back, also while the daemon was down, `every` continues from now", SCHEDULE)
OVERLAP = Promise("What happens when the job is due during a run: skip, queue, replace the running one", SCHEDULE)
RETRIES = Promise("The number of retries of a failed run.", JOB)
AFTER = Promise("Start when another job has succeeded", TRIGGERS)
TAKEN_UP = Promise("records the open runs as lost, with what follows them", ARCHITECTURE)
RESUMED = Promise("The end of each task is on the disk before the next one begins.", PIPELINE)
EXCLUSIVE = Promise("One run holds it, the others wait or give up", LOCKS)
LEASE = Promise("is free once its timeout has passed", LOCKS)
DELIVERED = Promise("**At least once, with the same id**: a message is sent until it is delivered", NOTIFICATIONS)
IN_ORDER = Promise("in order for each channel", NOTIFICATIONS)
TWICE_AFTER_CRASH = Promise("A crash between the delivery and its record sends it twice.", NOTIFICATIONS)
INCIDENTS = Promise("The incident is recorded in the transaction that records the run's end", NOTIFICATIONS)
NOTIFIED = Promise("each message in the one that records who is notified", NOTIFICATIONS)
HOOKS = Promise("Each is called once for an [`incident`]", NOTIFICATIONS)
CHANGE_KEPT = Promise("A change is recorded in the same commit as the value, and removed in the commit that", CHANGES)
BEGINS_AGAIN = Promise("crash, pending changes are delivered, and a run that was in progress begins again", CHANGES)
CHANGE_ORDER = Promise("Changes start runs of a job one at a time and in order, whatever `overlap` says.", CHANGES)
AUDITED = Promise("`unexplained`. Exit code 1 if one is unexplained: neither a run nor a reason is on record", COMMANDS)
ONE_NODE = Promise("At most one node records a run for it", CLUSTER)
DEAD = Promise("**A node that was declared dead writes nothing any more**", CLUSTER)
DEAD_BEGINS = Promise("A node begins nothing once its own last answered beat is almost a lease old", CLUSTER)
IN_CLUSTER = Promise("Nothing is skipped in silence, whichever node fails at whichever moment.", CLUSTER)
GOES_ON = Promise("then its slots are free, and the others take equal shares", CLUSTER)
PROMISES = [each for each in globals().values() if isinstance(each, Promise)]


class Broken(Exception):
    """A promise is not kept."""

    def __init__(self, promise: Promise, how: str) -> None:
        super().__init__(f"{how}\n{'':16}{promise.file}: {promise.words}")
        self.promise = promise


class Invariants:
    """The checks of a cluster."""

    def __init__(self) -> None:
        self.furthest: Counter[str] = Counter()  # the greatest cursor so far, by job
        self.begun: Counter[tuple[str, int | None, int, int]] = Counter()

    def begins(self, raw: sqlite3.Connection, run: int) -> tuple[str, int | None]:
        """Check a run that begins outside, where no transaction reaches; return its job and due time."""
        found = raw.execute("SELECT job, due_ms, attempt, state FROM run WHERE id = ?", (run,)).fetchone()
        if found is None or found[3] == "waiting":
            raise Broken(ON_RECORD, f"run {run} begins, and is not on record as running: {found}")
        job, due_ms, attempt, _ = found
        key = (job, due_ms, attempt, 0 if due_ms is not None else run)
        self.begun[key] += 1
        if self.begun[key] > 1:
            raise Broken(ONCE, f"{key} begins twice")
        return job, due_ms

    def begins_on(self, database: SimDatabase, node: int, run: int) -> None:
        job, _ = self.begins(database.raw, run)
        if not database.lanes[node].is_alive:
            raise Broken(DEAD_BEGINS, f"run {run} of {job} begins on node {node}, which is dead")

    def recovered(self, database: SimDatabase, daemons: Mapping[int, Daemon]) -> None:
        """Check that all work is done again, once nothing fails any more."""
        for slot, owner in database.owners.items():
            if owner not in daemons or slot not in (daemons[owner or 0].ownership.owned or ()):
                raise Broken(GOES_ON, f"{slot} is owned by {owner}, which does not work for it")
        now_ms = database.now_ms()
        for job, due_ms, schedule, pool in database.raw.execute("SELECT job, due_ms, schedule, pool FROM cursor"):
            live = daemons[database.owners[slot_of(job, pool)] or 0].parts.live.find(job)
            if live and schedule.startswith("every") and now_ms - due_ms > LATE_MS:
                raise Broken(GOES_ON, f"{job} is not run any more: its cursor is {now_ms - due_ms} ms behind")
        under_way = {run.id for daemon in daemons.values() for run in daemon.parts.runner.under_way()}
        check_none_left(database.raw, under_way, now_ms - LATE_MS)

    def commits(self, database: SimDatabase, node: int) -> None:
        """Check what a transaction is about to commit."""
        if not database.lanes[node].is_alive:
            raise Broken(DEAD, f"a write of node {node}, which is dead, is accepted")
        for writer, job, owner, after, was_due_ms, due_ms, is_plain in database.raw.execute("SELECT * FROM touched"):
            is_nobodys = after == writer and (owner is None or not database.lanes[owner].is_alive)
            if owner != writer and not is_nobodys:
                raise Broken(ONE_NODE, f"node {writer} claims {job}, in a slot of node {owner}")
            # Only those after an earlier cursor, where a clock was set back.
            if is_plain and due_ms > was_due_ms:
                period_ms = int(database.raw.execute(PERIOD, (job,)).fetchone()[0])
                for each_ms in range(due_ms, max(was_due_ms, self.furthest[job]), -period_ms):
                    if not database.raw.execute(RECORDED, (job, each_ms)).fetchone():
                        raise Broken(IN_CLUSTER, f"{job}: {each_ms} is below its cursor {due_ms}, and on no record")
            self.furthest[job] = max(self.furthest[job], was_due_ms, due_ms)
        database.raw.execute("DELETE FROM touched")


def check_none_left(raw: sqlite3.Connection, under_way: set[RunId], before_ms: int) -> None:
    """Check that each run on record as running is one; those that have only just been claimed aside."""
    running = "SELECT id, job FROM run WHERE state = 'running' AND started_ms < ?"
    for run, job in raw.execute(running, (before_ms,)):
        if run not in under_way:
            raise Broken(TAKEN_UP, f"run {run} of {job} is on record as running, and nobody runs it")


# A daemon alone on its database notes in it, by triggers, what it has changed; `kept` notes are looked at again after a
# crash.
WATCH_ALONE = """
    CREATE TABLE sim_moved (job, was_due_ms, due_ms, was_schedule, schedule, was_idle_ms, idle_ms, active_ms);
    CREATE TRIGGER sim_moved AFTER UPDATE ON cursor
        WHEN NEW.due_ms <> OLD.due_ms OR NEW.schedule <> OLD.schedule OR NEW.idle_since_ms IS NOT OLD.idle_since_ms
        BEGIN INSERT INTO sim_moved SELECT NEW.job, OLD.due_ms, NEW.due_ms, OLD.schedule, NEW.schedule,
            OLD.idle_since_ms, NEW.idle_since_ms, NEW.active_since_ms; END;
    CREATE TABLE sim_ended (run INTEGER);
    CREATE TRIGGER sim_ended AFTER UPDATE OF state ON run WHEN NEW.state = 'ended' AND OLD.state <> 'ended'
        BEGIN INSERT INTO sim_ended VALUES (NEW.id); END;
    CREATE TABLE sim_event (id INTEGER PRIMARY KEY);
    CREATE TRIGGER sim_event AFTER INSERT ON wanted BEGIN INSERT OR IGNORE INTO sim_event VALUES (NEW.event); END;
    CREATE TABLE sim_paused (job, run);
    CREATE TRIGGER sim_paused AFTER INSERT ON run WHEN NEW.due_ms IS NOT NULL AND NEW.attempt = 1 AND
        NEW.last_due_ms IS NULL AND (SELECT paused FROM cursor WHERE job = NEW.job)
        BEGIN INSERT INTO sim_paused VALUES (NEW.job, NEW.id); END;
"""
MOST_CHECKED = 400  # due times of one move of a cursor
QUIET_MS = 60_000
NEXT = """
    EXISTS (SELECT 1 FROM run AS next WHERE next.job = run.job AND next.attempt = run.attempt + 1 AND next.id > run.id
        AND json_extract(next."trigger", '$.of') = coalesce(json_extract(run."trigger", '$.of'), run.id))
"""
ENDS = f"""
    SELECT run.job, run.outcome, coalesce(run.failure, ''), run."trigger", {NEXT}, run.attempt
        - coalesce(json_extract(run."trigger", '$.lost'), 0) - coalesce(json_extract(run."trigger", '$.cut_short'), 0)
    FROM sim_ended JOIN run ON run.id = sim_ended.run ORDER BY sim_ended.rowid
"""
UNFOLLOWED = """
    SELECT first.id, (SELECT count(*) FROM run AS second
        WHERE second.job = ?2 AND json_extract(second."trigger", '$.run_id') = first.id) AS started
    FROM run AS first WHERE first.job = ?1 AND first.outcome = 'success' AND started <> 1
"""
STARTED_BY = """
    SELECT id, (SELECT count(*) FROM run
        WHERE job = ?1 AND json_extract("trigger", '$.event') = sim_event.id AND attempt = 1) AS starts,
        (SELECT count(*) FROM wanted WHERE event = sim_event.id AND run IS NULL) AS waits
    FROM sim_event WHERE starts + waits <> 1
"""
CUT_SHORT = f"""
    SELECT id FROM run WHERE job = ? AND outcome IN ('lost', 'stopped') AND reason <> 'its worker died'
        AND instr(run."trigger", '"event"') > 0 AND NOT {NEXT}
"""
# Those that no earlier one to the same address holds up.
UNSENT = """
    SELECT id, address FROM message AS one WHERE dead_ms IS NULL AND max(next_ms, created_ms) < ?1 AND NOT EXISTS (
        SELECT 1 FROM message WHERE dead_ms IS NULL AND channel = one.channel AND address = one.address AND id < one.id)
"""
UNTOLD = """
    SELECT id FROM incident WHERE opened_ms < ? AND id NOT IN (SELECT incident FROM told WHERE channel = 'ops')
"""
HOOK_RUNS = """
    SELECT json_extract("trigger", '$.incident.id') AS incident, json_extract("trigger", '$.hook') AS hook, count(*)
    FROM run WHERE json_extract("trigger", '$.type') = 'alert' AND attempt = 1
    GROUP BY incident, hook HAVING count(*) > 1
"""


def due_between(schedule: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """Yield the due times of a schedule, as it is on record, computed in the plainest way; the newest first.

    Of a cron expression minute and hour are known, each a number or `*`; the minute may be `*/n`.
    """
    kind, _, rest = schedule.partition(" ")
    if kind == "every":
        yield from range(until_ms - (until_ms - after_ms) % int(rest), after_ms, -int(rest))
    elif kind == "at" and after_ms < int(rest) <= until_ms:
        yield int(rest)
    elif kind == "cron":
        zone, minutes, hours, *_ = rest.split()
        found = real_minutes if hours == "*" else clock_times
        yield from found(ZoneInfo(zone), minutes, hours, after_ms, until_ms)


def last_before_edit(was_due_ms: int, due_ms: int, schedule: str, edited_ms: int) -> int:
    """Return the moment up to which an earlier schedule counts: the new one does from its first due time on."""
    first_ms = min(due_between(schedule, due_ms, edited_ms), default=edited_ms + 1)
    if schedule.startswith("every"):
        period_ms = int(schedule[6:])
        first_ms = max(min(was_due_ms, edited_ms), edited_ms - period_ms) + period_ms
    return min(edited_ms, first_ms - 1)


def real_minutes(zone: ZoneInfo, minutes: str, _hours: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """Yield the minutes of each hour, in real time."""
    every = int(minutes.removeprefix("*/")) if minutes.startswith("*/") else 0
    for each_ms in range(until_ms - until_ms % 60_000, after_ms, -60_000):
        minute = datetime.fromtimestamp(each_ms / 1000, zone).minute
        if minute % every == 0 if every else minute == int(minutes):
            yield each_ms


def clock_times(zone: ZoneInfo, minutes: str, hours: str, after_ms: int, until_ms: int) -> Iterator[int]:
    """Yield a time of each day: the first of two that are the same, and for one that is skipped the end of the gap."""
    day = datetime.fromtimestamp(until_ms / 1000, zone).date() + timedelta(days=1)
    while (at_ms := moment_of(zone, day, int(hours), int(minutes))) > after_ms:
        if at_ms <= until_ms:
            yield at_ms
        day -= timedelta(days=1)


def moment_of(zone: ZoneInfo, day: date, hour: int, minute: int) -> int:
    local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
    moment = local.astimezone(UTC)
    while moment.astimezone(zone).replace(tzinfo=None, fold=0) != local.replace(tzinfo=None):
        before = moment - timedelta(minutes=1)
        if before.astimezone(zone).utcoffset() != moment.astimezone(zone).utcoffset():
            break
        moment = before
    return int(moment.timestamp() * 1000)


class Judge(Invariants):
    """The checks of a daemon that is alone on its database, with what it has acknowledged and what is known outside."""

    def __init__(self, *, steady: Mapping[str, int], follower: tuple[str, str], watcher: str) -> None:
        super().__init__()
        self._steady = steady  # jobs whose files stay as they are, and how often in a row each must fail
        self._follower, self._watcher = follower, watcher
        self.life = 0
        self.was_set = 0  # how often the clock
        self.now_ms: Callable[[], int] = lambda: 0
        self.running: dict[str, set[int]] = defaultdict(set)
        self.values: dict[
            bytes, tuple[bytes, bytes]
        ] = {}  # by key: the last value acknowledged, and the last asked for
        self.asked: set[str] = set()  # messages that were acknowledged, by text
        self.arrived: dict[str, list[int]] = defaultdict(list)  # by delivery: in which lives
        self.texts: dict[str, str] = {}  # of messages that have arrived, by their delivery
        self.ids: dict[str, str] = {}  # of messages that have arrived, by their text
        self.told: dict[tuple[int, str], set[str]] = defaultdict(set)  # by incident and kind: deliveries
        self.newest: dict[str, int] = {}  # by address: the latest message that has arrived
        self.refused = set[str]()  # messages that do not hold up others
        self.held: dict[bytes, tuple[int, int, int, int]] = {}  # by lock: life, run, until when, how often set then
        self.done: set[tuple[int, str]] = set()  # tasks whose end was acknowledged, with the first run of their chain
        self.failures: Counter[str] = Counter()
        self.begun_events: dict[object, int] = {}  # by key: the latest change for which a run began

    def begins_alone(self, raw: sqlite3.Connection, spec: JobSpec, run: Run) -> None:
        job, due_ms = self.begins(raw, run.id)
        if due_ms is not None and due_ms > self.now_ms() and not self.was_set:
            raise Broken(CADENCE, f"run {run.id} of {job} begins {due_ms - self.now_ms()} ms before it is due")
        running = self.running[job]
        if running and spec.overlap != "allow":
            raise Broken(OVERLAP, f"run {run.id} of {job} begins beside {running}, with overlap = {spec.overlap}")
        running.add(run.id)
        if (
            run.attempt - run.trigger.lost - run.trigger.cut_short > spec.retry.retries + 1
            and run.trigger.type == "retry"
        ):
            raise Broken(RETRIES, f"run {run.id} of {job} is attempt {run.attempt}, with {spec.retry.retries} retries")
        event = run.trigger.event
        if event is not None:
            if event < self.begun_events.get(run.trigger.key, 0):
                raise Broken(CHANGE_ORDER, f"run {run.id} of {job}: change {event} of {run.trigger.key} comes too late")
            self.begun_events[run.trigger.key] = event

    def takes_lock(self, raw: sqlite3.Connection, name: bytes, run: int) -> None:
        now_ms = self.now_ms()
        lease = raw.execute(
            "SELECT acquired_ms + lease_ms FROM lock WHERE name = ? AND run = ?", (name, run)
        ).fetchone()
        if held := self.held.get(name):
            life, other, until_ms, was_set = held
            if life == self.life and other in set().union(*self.running.values()):
                raise Broken(EXCLUSIVE, f"run {run} takes {name!r}, which run {other} holds")
            if life != self.life and now_ms < until_ms and was_set == self.was_set:
                raise Broken(LEASE, f"run {run} takes {name!r}, {until_ms - now_ms} ms too early")
        self.held[name] = (self.life, run, lease[0] if lease else 0, self.was_set)

    def lets_go(self, run: int) -> None:
        """Note that the end of a run of this daemon is on record; those of an earlier one leave their locks."""
        self.held = {name: held for name, held in self.held.items() if held[:2] != (self.life, run)}

    def performs(self, first: int, task: str) -> None:
        if (first, task) in self.done:
            raise Broken(RESUMED, f"{task} is performed again, in the chain of run {first}")

    def arrives(self, message: QueuedMessage, text: str) -> None:
        lives = self.arrived[message.delivery]
        if self.life in lives:
            raise Broken(TWICE_AFTER_CRASH, f"{text} arrives twice in the life of one daemon")
        self.texts[message.delivery] = text
        if self.ids.setdefault(text, message.delivery) != message.delivery:
            raise Broken(DELIVERED, f"{text} arrives with another id")
        address = str(message.target)
        if not lives and message.delivery not in self.refused:
            if message.id < self.newest.get(address, 0):
                raise Broken(IN_ORDER, f"{text} (message {message.id}) arrives after message {self.newest[address]}")
            self.newest[address] = message.id
        lives.append(self.life)

    def tells(self, message: QueuedMessage) -> None:
        for item in msgspec.json.decode(message.payload)["items"]:
            told = self.told[item["incident"], item["kind"]]
            told.add(message.delivery)
            if len(told) > 1 and item["kind"] != "reminder":
                raise Broken(NOTIFIED, f"incident {item['incident']} is {item['kind']} by two messages")

    def commits_alone(self, raw: sqlite3.Connection) -> None:
        """Check what has just been committed."""
        for row in raw.execute("SELECT * FROM sim_moved").fetchall():
            self._moves(raw, *row)
        for job, run in raw.execute("SELECT * FROM sim_paused"):
            raise Broken(PAUSES, f"run {run} of {job} is claimed while the job is paused")
        ended = set[str]()
        for job, outcome, failure, trigger, is_retried, tries in raw.execute(ENDS).fetchall():
            if job in self._steady and failure != "cancelled" and not is_retried and '"incident"' not in trigger:
                ended.add(job)
                is_failure = outcome in ("failed", "lost") or (outcome == "skipped" and tries > 1)
                self.failures[job] = (
                    self.failures[job] + 1 if is_failure else 0 if outcome == "success" else self.failures[job]
                )
        for job in ended:
            is_open = raw.execute("SELECT 1 FROM incident WHERE subject = ? AND closed_ms IS NULL", (f"job:{job}",))
            if (self.failures[job] >= self._steady[job]) != bool(is_open.fetchone()):
                raise Broken(INCIDENTS, f"{job}: {self.failures[job]} failures in a row")
        for table in ("sim_moved", "sim_ended"):
            raw.execute(f"DELETE FROM {table}")

    def _moves(
        self,
        raw: sqlite3.Connection,
        job: str,
        was_due_ms: int,
        due_ms: int,
        was: str,
        now: str,
        was_idle_ms: int | None,
        idle_ms: int | None,
        active_ms: int,
    ) -> None:
        """Check that each due time that a cursor has passed is on record, once."""
        promise = NO_LOSS if was_idle_ms is None else PAUSES
        until_ms = due_ms if was == now else last_before_edit(was_due_ms, due_ms, now, active_ms)
        if was == now and was_idle_ms is not None and idle_ms is None:
            for passed_ms in due_between(now, due_ms, active_ms):
                raise Broken(
                    promise, f"{job}: {passed_ms} passed while the job was away, and its cursor is at {due_ms}"
                )
        rows = "SELECT due_ms, coalesce(last_due_ms, due_ms) FROM run WHERE job = ?1 AND attempt = 1 AND due_ms <= ?3"
        found = raw.execute(f"{rows} AND coalesce(last_due_ms, due_ms) > ?2", (job, was_due_ms, until_ms)).fetchall()
        if self.was_set and until_ms == due_ms and was.startswith("every"):
            due = iter(range(due_ms, was_due_ms, -int(was[6:])))  # counted from where the clock had been before
        else:
            due = due_between(was, was_due_ms, until_ms)
        for count, each_ms in enumerate(due):
            if each_ms <= self.furthest[job] or count == MOST_CHECKED:
                break
            times = sum(first <= each_ms <= last for first, last in found)
            if times != 1:
                raise Broken(promise if times == 0 else ONCE, f"{job}: due time {each_ms} is on record {times} times")
        self.furthest[job] = max(self.furthest[job], was_due_ms, due_ms, until_ms)

    def reopened(self, raw: sqlite3.Connection) -> None:
        """Check what a daemon has left on the disk."""
        self.commits_alone(raw)
        for name, (_, run, *_) in list(self.held.items()):
            if raw.execute("SELECT 1 FROM run WHERE id = ? AND state = 'ended'", (run,)).fetchone():
                del self.held[name]
        self._check_what_follows(raw)
        for key, (acknowledged, asked) in self.values.items():
            row = raw.execute("SELECT value FROM entry WHERE key = ?", (key,)).fetchone()
            if row is None or row[0] not in (acknowledged, asked):
                raise Broken(STORED, f"{key!r} is {row and row[0]!r}, and {acknowledged!r} was acknowledged")
            self.values[key] = (row[0], row[0])  # one whose answer the crash has swallowed counts from now on
        kept = {bytes(text).decode() for (text,) in raw.execute("SELECT payload FROM message")}
        for text in self.asked - kept - set(self.texts.values()):
            raise Broken(DELIVERED, f"the message {text} is neither kept nor delivered")

    def _check_what_follows(self, raw: sqlite3.Connection) -> None:
        base, after = self._follower
        for run, count in raw.execute(UNFOLLOWED, (base, after)):
            raise Broken(AFTER, f"run {run} of {base} has succeeded, and {after} was started {count} times")
        for event, starts, waits in raw.execute(STARTED_BY, (self._watcher,)):
            raise Broken(CHANGE_KEPT, f"change {event} has started {starts} runs, and waits {waits} times")
        for (run,) in raw.execute(CUT_SHORT, (self._watcher,)):
            raise Broken(BEGINS_AGAIN, f"run {run} was cut short, and does not begin again")
        for incident, hook, count in raw.execute(HOOK_RUNS):
            raise Broken(HOOKS, f"{hook} is called {count} times for incident {incident}")

    def recovered_alone(self, raw: sqlite3.Connection, under_way: set[RunId], wanted: Mapping[JobId, int]) -> None:
        """Check that all work is done again, once nothing fails any more; `wanted`: jobs, and how late each may be."""
        self.reopened(raw)
        now_ms = self.now_ms()
        check_none_left(raw, under_way, now_ms - QUIET_MS)
        for job, late_ms in wanted.items():
            cursor = raw.execute("SELECT due_ms, schedule FROM cursor WHERE job = ?", (job,)).fetchone()
            if cursor is None or not now_ms - late_ms <= cursor[0] <= now_ms + late_ms:
                raise Broken(CLOCK, f"{job} is not run any more: at {now_ms} its cursor is {cursor}")
        # Where a clock was set back, one that was put off holds up others for so much longer.
        for message, address in () if self.was_set else raw.execute(UNSENT, (now_ms - QUIET_MS,)):
            raise Broken(DELIVERED, f"message {message} to {address} is due, and not sent")
        unheard = "SELECT event FROM wanted JOIN event ON event.id = event WHERE wanted.run IS NULL AND at_ms < ?"
        for (event,) in raw.execute(unheard, (now_ms - QUIET_MS,)):
            raise Broken(CHANGE_KEPT, f"change {event} starts nothing")
        for (incident,) in raw.execute(UNTOLD, (now_ms - QUIET_MS,)):
            raise Broken(NOTIFIED, f"nobody is notified of incident {incident}")

    def audited(self, found: Sequence[JobAudit]) -> None:
        """Check that the audit, which knows only what is on record, finds all explained."""
        for job in found:
            if job.counts["unexplained"]:
                raise Broken(AUDITED, f"{job.job}: unexplained: {job.groups}")
