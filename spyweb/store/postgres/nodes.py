"""The nodes of a cluster: each joins, beats, declares others dead, and takes and gives slots.

A node's row in `lane` is locked by each of its write transactions, so its death is declared before or after each of
them.  Beats have a connection of their own, and lock no lane but that of a node which is declared dead.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import suppress
from typing import ParamSpec, TypeVar, cast

import structlog
from msgspec import json

from spyweb.clock import Clock
from spyweb.errors import Refused, StoreError, StoreFenced
from spyweb.model import JobId
from spyweb.ownership import EVERY_NODE, Slot, slots_in
from spyweb.store.model.nodes import Beat, Node, NodeState
from spyweb.store.postgres.bell import Bell
from spyweb.store.postgres.connection import PgConnection
from spyweb.store.sqlite.batch import BatchQueue, OpKind
from spyweb.store.sqlite.connections import Call, Connections, StorePart, Work, on_writer, queued, read_as

P = ParamSpec("P")
T = TypeVar("T")

LOOK_AGAIN_S = 0.5  # at a node of the same name
ALIVE = "state IN ('a', 'd')"
NOW_MS = "CAST(extract(epoch FROM {}) * 1000 AS bigint)"
FROM_NODES = "FROM node JOIN lane ON lane.node = node.id JOIN heart ON heart.node = node.id"
NODES = f"""
    SELECT node.id, name, url, version, folder, labels, is_standby, only_labels, lease_ms, CAST(state AS text),
        {NOW_MS.format("started")}, {NOW_MS.format("beat")}, offset_ms {FROM_NODES}
"""
ADD_NODE = """
    INSERT INTO node (name, url, place, version, labels, is_standby, only_labels, lease_ms)
    VALUES (?, ?, ?, ?, ?, ? <> 0, ? <> 0, ?) RETURNING id
"""
BEAT = f"""
    UPDATE heart SET beat = clock_timestamp(), beats = beats + 1, offset_ms = ?2,
        timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    WHERE node = ?1 AND beats >= 0 AND EXISTS (SELECT 1 FROM lane WHERE node = ?1 AND {ALIVE})
    RETURNING beats, timeline, {NOW_MS.format("clock_timestamp()")}
"""
# A beat that comes meanwhile is done again: it comes before, or is not answered.
STOP_BEATS = "UPDATE heart SET beats = -1 FROM node WHERE heart.node = ?1 AND node.id = ?1"
IS_LATE = "AND beat < clock_timestamp() - node.lease_ms * interval '1 ms'"
# Of a node that stands still: its session does not always end by itself (PgConnection.each says why).
END_TRANSACTION = f"""
    SELECT pg_terminate_backend(pid) {FROM_NODES} JOIN pg_stat_activity ON backend_xid = lane.xmax
    WHERE node.id = ? {IS_LATE} AND xact_start < clock_timestamp() - node.lease_ms * interval '0.5 ms'
"""
LIVING = f"WHERE {ALIVE} AND NOT (true {IS_LATE})"
TAKE = f"""
    UPDATE slot SET owner = ?1 FROM unnest(CAST(?2 AS text[]), CAST(?3 AS bigint[])) AS wanted (pool, id)
    WHERE slot.pool = wanted.pool AND slot.id = wanted.id
        AND (owner IS NULL OR owner = ?1 OR owner NOT IN (SELECT node FROM lane WHERE {ALIVE}))
    RETURNING slot.pool, slot.id
"""
GIVE = """
    UPDATE slot SET owner = NULL FROM unnest(CAST(?2 AS text[]), CAST(?3 AS bigint[])) AS given (pool, id)
    WHERE slot.pool = given.pool AND slot.id = given.id AND owner = ?1
"""
EMPTY = f"""
    UPDATE slot SET owner = NULL WHERE pool = ? AND id = ?
        AND (owner IS NULL OR owner NOT IN (SELECT node FROM lane WHERE {ALIVE})) RETURNING id
"""
# Of a job whose owner does not have its file, or will move it as well.
IS_ABSENT = """
    SELECT 1 FROM cursor WHERE job = ? AND idle_since_ms IS NOT NULL AND paused = 0
        AND NOT EXISTS (SELECT 1 FROM run WHERE run.job = cursor.job AND state = 'running')
"""
ADD_POOL = """
    INSERT INTO slot (pool, id) SELECT ?, number FROM generate_series(0, CAST(? AS bigint) - 1) AS number
    ON CONFLICT DO NOTHING
"""
DROP_POOLS = f"""
    DELETE FROM slot WHERE pool <> '{EVERY_NODE}' AND NOT EXISTS (SELECT 1 FROM cursor WHERE cursor.pool = slot.pool)
        AND pool NOT IN (SELECT pool FROM slot WHERE owner IN (SELECT node FROM lane WHERE {ALIVE}))
"""

log = structlog.get_logger()


def on_heart(work: Work[Nodes, P, T]) -> Call[Nodes, P, T]:
    """Make a method an op of the connection for beats."""
    return queued(lambda nodes, call: nodes.heart.submit(OpKind.WRITE, call), work)


class Nodes(StorePart):
    """The cluster as this node takes part in it."""

    def __init__(self, connections: Connections, clock: Clock, heart: BatchQueue, bell: Bell) -> None:
        super().__init__(connections, clock)
        self.heart = heart
        self.bell = bell
        self.me = 0  # until it has joined

    async def join(self, node: Node, place: bytes) -> None:
        """Become a new node, after the death of each that used this `place`, the lock of which the caller holds.

        One of the same name must have ended: this waits for its death, and raises Refused as soon as it beats.
        """
        seen = None
        while not isinstance(found := await self._add(node, place), int):
            if await self.declare(found[0]):
                continue
            if seen is None:
                log.warning("a node of this name has not left: waiting for its death", name=node.name)
            elif seen != found:
                raise Refused(f"[cluster] name: a node named {node.name!r} is alive: give this one another name")
            seen = found
            await self._clock.sleep(LOOK_AGAIN_S)
        self.me = found
        await self._be_fenced()

    @on_writer(OpKind.WRITE)
    def _add(self, connection: sqlite3.Connection, node: Node, place: bytes) -> int | tuple[int, int]:
        """Return the new node, or one of the same name and how often it has beaten."""
        connection.execute(ADD_POOL, (EVERY_NODE, slots_in(EVERY_NODE)))
        # Of two that join at once, the later one does this again, and finds the other.
        connection.execute("UPDATE slot SET owner = owner WHERE pool = ? AND id = 0", (EVERY_NODE,))
        for (former,) in connection.execute("SELECT id FROM node WHERE place = ?", (place,)).fetchall():
            bury(connection, former, None)
        alive = f"SELECT node.id, beats {FROM_NODES} WHERE name = ? AND {ALIVE}"
        if namesake := connection.execute(alive, (node.name,)).fetchone():
            return cast("tuple[int, int]", namesake)
        labels = json.encode(node.labels).decode()
        facts = (node.name, node.url, place, node.version, labels, node.is_standby, node.only_labels, node.lease_ms)
        me = int(connection.execute(ADD_NODE, facts).fetchone()[0])
        connection.execute("INSERT INTO heart (node) VALUES (?)", (me,))
        connection.execute("INSERT INTO lane (node, state) VALUES (?, 'a')", (me,))
        return me

    @on_writer(OpKind.READ)
    def _be_fenced(self, connection: sqlite3.Connection) -> None:
        cast("PgConnection", connection).node = self.me

    @on_heart
    def beat(self, connection: sqlite3.Connection, folder: bytes = b"", offset_ms: int = 0) -> Beat:
        """Say that this node is alive, which digest its job files have, and by how much its clock is behind.

        Raises StoreFenced where it is not on record as alive, StoreError where PostgreSQL does not answer.
        """
        beaten = connection.execute(BEAT, (self.me, offset_ms)).fetchone()
        if beaten is None:
            raise StoreFenced
        beats, timeline, now_ms = beaten
        connection.execute("UPDATE node SET folder = ?2 WHERE id = ?1 AND folder <> ?2", (self.me, folder))
        living = tuple(read_nodes(connection, f"WHERE {ALIVE}"))
        slots = {Slot(pool, number): owner for pool, number, owner in connection.execute("SELECT * FROM slot")}
        return Beat(now_ms=now_ms, timeline=timeline, beats=beats, living=living, slots=slots)

    @on_heart
    def declare(self, connection: sqlite3.Connection, late: int) -> bool:
        """Declare a node dead, or this one; return False where it has beaten within its lease."""
        connection.execute(END_TRANSACTION, (late,))
        return bury(connection, late, self.me or None, "" if late == self.me else IS_LATE)

    @on_heart
    def known(self, connection: sqlite3.Connection) -> list[Node]:
        """Return the nodes that live, and those that have ended, by id."""
        return read_nodes(connection)

    @on_heart
    def living(self, connection: sqlite3.Connection) -> list[Node]:
        """Return the nodes that have beaten within their lease."""
        return read_nodes(connection, LIVING)

    @on_heart
    def set_draining(self, connection: sqlite3.Connection, node: int, draining: bool) -> bool:
        """Have a node give its slots, or take its share again; return False where it has ended."""
        state = NodeState.DRAINING if draining else NodeState.ALIVE
        change = 'UPDATE lane SET state = CAST(?2 AS "char") WHERE node = ?1'
        return lock_lane(connection, node) and bool(connection.execute(change, (node, state.value)).rowcount)

    @on_heart
    def forget(self, connection: sqlite3.Connection, node: int) -> int:
        """Remove a node that has ended from the record; return how many were removed."""
        return remove(connection, "node.id = ?", node)

    @on_heart
    def prune(self, connection: sqlite3.Connection, than_ms: int) -> int:
        """Remove nodes that ended before then, and pools without a job and an owner; return how many nodes."""
        connection.execute(DROP_POOLS)
        return remove(connection, "ended < to_timestamp(? / 1000.0)", than_ms)

    @on_writer(OpKind.WRITE)
    def take(self, connection: sqlite3.Connection, slots: Collection[Slot]) -> list[Slot]:
        """Take what is free of these slots, one at least; return it."""
        wanted = map(list, zip(*slots, strict=True))
        return [Slot(*row) for row in connection.execute(TAKE, (self.me, *wanted)).fetchall()]

    @on_writer(OpKind.WRITE)
    def give(self, connection: sqlite3.Connection, slots: Collection[Slot]) -> None:
        """Give own slots away, one at least, after all that was asked for before."""
        connection.execute(GIVE, (self.me, *map(list, zip(*slots, strict=True))))

    @on_writer(OpKind.SEVERAL)
    def take_out(self, connection: sqlite3.Connection, jobs: Collection[tuple[JobId, Slot, str]]) -> None:
        """Move each job from a slot into a pool, where no living node owns that slot, or its owner does not run it."""
        for job, slot, pool in jobs:
            if connection.execute(EMPTY, slot).fetchall() or connection.execute(IS_ABSENT, (job,)).fetchall():
                connection.execute("UPDATE cursor SET pool = ? WHERE job = ? AND pool = ?", (pool, job, slot.pool))

    @on_writer(OpKind.WRITE)
    def add_pools(self, connection: sqlite3.Connection, pools: Collection[str]) -> None:
        """Make the slots of each pool where there are none yet."""
        connection.executemany(ADD_POOL, [(pool, slots_in(pool)) for pool in sorted(pools)])

    @on_writer(OpKind.SEVERAL)
    def _leave(self, connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE slot SET owner = NULL WHERE owner = ?", (self.me,))
        connection.execute("UPDATE node SET ended = clock_timestamp() WHERE id = ?", (self.me,))
        connection.execute("UPDATE lane SET state = 'l' WHERE node = ?", (self.me,))

    async def close(self) -> None:
        """Give all, as the last write of this node."""
        if self.me:
            with suppress(StoreError):  # its death is declared instead
                await self._leave()
        await self.heart.close()


def read_nodes(connection: sqlite3.Connection, which: str = "") -> list[Node]:
    rows = connection.execute(f"{NODES} {which} ORDER BY node.id")
    return [read_as(Node, row, labels=json.decode(row[5])) for row in rows]


def refuse_living(connection: sqlite3.Connection, name: str) -> None:
    """Raise StoreError while a node is alive; the lock on `node` that the caller holds keeps others from joining."""
    if living := read_nodes(connection, LIVING):
        raise StoreError(f"{name}: end every node first: {', '.join(node.name for node in living)}")


def lock_lane(connection: sqlite3.Connection, node: int) -> bool:
    """Wait for what a node is writing, but not for long; return whether it is alive."""
    connection.execute("SET LOCAL lock_timeout = '500ms'")
    return bool(connection.execute(f"SELECT 1 FROM lane WHERE node = ? AND {ALIVE} FOR UPDATE", (node,)).fetchone())


def bury(connection: sqlite3.Connection, node: int, by: int | None, condition: str = "") -> bool:
    """Declare a node dead if it is alive and the condition holds."""
    if not lock_lane(connection, node) or not connection.execute(f"{STOP_BEATS} {condition}", (node,)).rowcount:
        return False
    connection.execute("UPDATE lane SET state = 'x' WHERE node = ?", (node,))
    connection.execute("UPDATE node SET ended = clock_timestamp(), ended_by = ? WHERE id = ?", (by, node))
    return True


def remove(connection: sqlite3.Connection, condition: str, value: int) -> int:
    gone = connection.execute(f"SELECT node.id {FROM_NODES} WHERE NOT {ALIVE} AND {condition}", (value,)).fetchall()
    for delete in ("heart WHERE node", "lane WHERE node", "node WHERE id"):
        connection.executemany(f"DELETE FROM {delete} = ?", gone)
    return len(gone)
